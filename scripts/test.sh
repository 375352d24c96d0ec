#!/usr/bin/env bash
# usage: scripts/test.sh [--no-install]
# Sets up, configures, builds and tests the optimised build (preset cuda where nvcc is, else cpu; DDP_PRESET
# decides otherwise) and says how many tests ran, how many were skipped, and why.
set -euo pipefail
. "$(dirname "$0")/common.sh"

case ${1:-} in
  "" | --no-install) ;;
  -h | --help) sed -n '2,/^set/{s/^# \{0,1\}//;/^set/!p}' "$0"; exit 0 ;;
  *) printf 'test.sh: unknown option %s\n' "$1" >&2; exit 2 ;;
esac

scripts/setup.sh --for test "$@"
export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$(nproc)}
rm -f "$build/tests.xml"
say "configure, build and test, preset $preset"
status=0
cmake --workflow --preset "$preset" || status=$?
if [ -f "$build/tests.xml" ]; then
  say "tests of preset $preset"
  python3 scripts/test_summary.py "$build/tests.xml" || status=1
fi
exit $status
