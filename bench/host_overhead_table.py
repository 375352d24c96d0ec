#!/usr/bin/env python3
"""One or more results of host_overhead as a table in Markdown.

    host_overhead --benchmark_out=now.json --benchmark_out_format=json
    host_overhead_table.py now.json
    host_overhead_table.py before=old.json after=now.json
    host_overhead_table.py --keep bench/results/NAME.json now.json     # the figures alone, a line a function
"""

import argparse
import json
import os
import sys


def read(path):
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    rows = []
    for one in result["benchmarks"]:
        if one.get("run_type", "iteration") != "iteration":
            continue
        row = {"name": "/".join(one["name"].split("/")[:2])}
        if one.get("error_occurred"):
            row["error"] = one["error_message"]
        else:
            row.update({key: round(one[key], 3) for key in ("ns", "ns_min", "heap")})
        rows.append(row)
    context = {key: value for key, value in result["context"].items() if key not in ("executable", "host_name")}
    return context, rows


def keep(path, context, rows):
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    temporary = path + ".new"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write('{"context": %s,\n "benchmarks": [\n  %s\n ]}\n' % (json.dumps(context), lines))
    os.replace(temporary, path)


def cell(row):
    if row is None:
        return " | "
    if "error" in row:
        return "%s |" % row["error"].replace("|", "/")
    return "%.0f | %.3g" % (row["ns"], row["heap"])


def main():
    parser = argparse.ArgumentParser(description="host_overhead's results as a table in Markdown")
    parser.add_argument("results", nargs="+", metavar="[TITLE=]FILE")
    parser.add_argument("--keep", metavar="FILE", help="writes the figures of the last one there")
    options = parser.parse_args()
    columns = []
    for text in options.results:
        title, _, path = text.rpartition("=")
        context, rows = read(path)
        columns.append((title, {row["name"]: row for row in rows}))
    if options.keep:
        keep(options.keep, context, rows)
    names = list(dict.fromkeys(name for _, rows in columns for name in rows))
    head = " | ".join("%s ns | heap" % title if title else "ns | heap" for title, _ in columns)
    print("| function | %s |" % head)
    print("|---%s|" % ("|---|---" * len(columns)))
    for name in names:
        print("| %s | %s |" % (name, " | ".join(cell(rows.get(name)) for _, rows in columns)))


if __name__ == "__main__":
    sys.exit(main())
