#!/usr/bin/env python3
"""Runs clang-tidy-19 on the library's sources of a finished build, skipping files known to be clean.

usage: tidy.py BUILD_FOLDER [--no-cache]

A clean result is remembered under a hash of everything it depends on: the tool, .clang-tidy, the compile
command, the source, and every header that the build's dependency log names (own headers by content, the
system's by path, size and time). So an unchanged tree costs seconds instead of minutes, in another clone too.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

TOOL = "clang-tidy-19"
ROOT = pathlib.Path(__file__).resolve().parent.parent


def dependencies(build):
    """Object -> files it was compiled from, out of ninja's log."""
    found, current = {}, None
    for line in subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True).stdout.splitlines():
        if line.startswith("    "):
            current.append(line.strip())
        elif ": #deps" in line:
            current = found.setdefault(line.split(": #deps")[0], [])
    return found


def key_of(entry, build, deps, basis):
    digest = hashlib.sha256(basis)
    digest.update(entry["command"].replace(str(ROOT), "").encode())
    for name in sorted(deps):
        path = pathlib.Path(build, name).resolve()
        if path.is_relative_to(ROOT):
            digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
        else:
            stat = path.stat()
            digest.update(f"{path} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()


def check(entry, build, key, cache):
    if key and (cache / key).exists():
        return "known", ""
    done = subprocess.run([TOOL, "-quiet", "-p", build, entry["file"]], capture_output=True, text=True)
    if done.returncode != 0 or re.search(r"(warning|error):", done.stdout):
        return "dirty", done.stdout + ("" if done.stdout else done.stderr)
    if key:
        (cache / key).touch()
    return "clean", ""


def main():
    arguments = [a for a in sys.argv[1:] if a != "--no-cache"]
    if len(arguments) != 1:
        print(__doc__)
        return 2
    build = os.path.abspath(arguments[0])
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = [e for e in json.load(file)
                   if e["file"].endswith(".cpp") and pathlib.Path(e["file"]).is_relative_to(ROOT / "libddp/src")]
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "ddp-tidy"
    cache.mkdir(parents=True, exist_ok=True)
    log = dependencies(build) if "--no-cache" not in sys.argv else {}
    version = subprocess.run([TOOL, "--version"], capture_output=True, check=True).stdout
    basis = version + (ROOT / ".clang-tidy").read_bytes()

    keys = {}
    for entry in entries:
        words = shlex.split(entry["command"])
        deps = log.get(words[words.index("-o") + 1])
        keys[entry["file"]] = key_of(entry, build, deps, basis) if deps else None
    outcomes = {"known": 0, "clean": 0, "dirty": 0}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {pool.submit(check, e, build, keys[e["file"]], cache): e["file"] for e in entries}
        for job in concurrent.futures.as_completed(jobs):
            outcome, text = job.result()
            outcomes[outcome] += 1
            if outcome == "dirty":
                print(text.strip().replace(str(ROOT) + "/", ""), flush=True)
    print(f"clang-tidy: {len(entries)} files: {outcomes['known']} known to be clean, {outcomes['clean']} clean, "
          f"{outcomes['dirty']} with findings")
    return 1 if outcomes["dirty"] or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
