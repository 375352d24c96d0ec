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
    passed, failed, skipped, cases = 0, [], [], 0
    for file in sys.argv[1:]:
        for test in ElementTree.parse(file).getroot().iter("testcase"):
            name, status = test.get("name"), test.get("status")
            output = test.findtext("system-out") or ""
            ran = re.findall(r"^\[==========\] (\d+) tests? from .* ran", output, re.MULTILINE)
            cases += sum(map(int, ran))
            if status == "run":
                passed += 1
                reasons = collections.Counter(skipped_cases(output))
                skipped += [(f"{name}, {count} of its cases", reason) for reason, count in reasons.items()]
            elif status in ("notrun", "disabled"):
                why = re.search(r"SKIP REASON: (.*)", output)
                message = test.find("skipped")
                reason = why[1] if why else message.get("message") if message is not None else status
                skipped.append((name, reason))
                if "SKIP_RETURN_CODE" not in str(reason) and not why:
                    failed.append(f"{name} (could not be run: {reason})")
            else:
                failed.append(name)
    programs = [entry for entry in skipped if ", " not in entry[0]]
    print(f"{passed + len(failed)} test programs ran with {cases} GoogleTest cases; {len(programs)} programs were skipped")
    for name, reason in skipped:
        print(f"  skipped: {name}: {reason}")
    for name in failed:
        print(f"  FAILED: {name}")
    print(f"tests: {passed} passed, {len(failed)} failed, {len(programs)} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
