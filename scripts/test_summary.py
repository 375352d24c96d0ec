#!/usr/bin/env python3
"""Says what ctest ran, from its JUnit files: programs, cases, what was skipped and why.

usage: test_summary.py FILE...   exit code 1 when a test failed or none ran
"""

import collections
import re
import sys
import xml.etree.ElementTree as ElementTree


def skipped_cases(output):
    """Reason of each skipped GoogleTest case: the text that follows 'file:line: Skipped'."""
    return [reason.strip() or "no reason given" for reason in re.findall(r": Skipped\n(.*)", output)]


def main():
    passed, failed, cases = 0, [], 0
    programs, parts = [], []  # skipped, with the reason
    for file in sys.argv[1:]:
        for test in ElementTree.parse(file).getroot().iter("testcase"):
            name, status = test.get("name"), test.get("status")
            output = test.findtext("system-out") or ""
            cases += sum(map(int, re.findall(r"^\[==========\] (\d+) tests? from .* ran", output, re.MULTILINE)))
            message = test.find("skipped")
            message = message.get("message", "") if message is not None else ""
            if status == "run":
                passed += 1
                for reason, count in collections.Counter(skipped_cases(output)).items():
                    parts.append(f"{count} of the cases of {name}: {reason}")
            elif status == "disabled" or "SKIP_RETURN_CODE" in message:
                why = re.search(r"SKIP REASON: (.*)", output)
                programs.append(f"{name}: {why[1] if why else message or status}")
            elif status == "notrun":
                failed.append(f"{name} (could not be run: {message})")
            else:
                failed.append(name)
    print(f"{passed + len(failed)} test programs ran, with {cases} GoogleTest cases; {len(programs)} were skipped")
    for text in programs + parts:
        print(f"  skipped: {text}")
    for text in failed:
        print(f"  FAILED: {text}")
    print(f"tests: {passed} passed, {len(failed)} failed, {len(programs)} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
