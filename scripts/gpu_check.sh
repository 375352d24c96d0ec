#!/usr/bin/env bash
# usage: scripts/gpu_check.sh FOLDER
# The tests that need a GPU, on a machine that has one: configures preset cuda, builds and runs the tests
# labelled gpu (none may be skipped), then the kernel tests under compute-sanitizer where the toolkit has it.
# Writes its logs to FOLDER.
set -uo pipefail
. "$(dirname "$0")/common.sh"
[ $# -eq 1 ] || { printf 'usage: scripts/gpu_check.sh FOLDER\n' >&2; exit 2; }
mkdir -p "$1" && out=$(cd "$1" && pwd) || exit 1
command -v nvcc >/dev/null || die "nvcc is needed"
command -v cmake >/dev/null || die "cmake is needed"
export DDP_REQUIRE_GPU=1 CTEST_PARALLEL_LEVEL=1
build=build/cuda status=0

{ nvidia-smi; nvcc --version | tail -2; c++ --version | head -1; cmake --version | head -1; } >"$out/machine.txt" 2>&1
step() {  # step NAME COMMAND...: output to FOLDER/NAME.txt, last lines shown on failure
  local name=$1 from=$SECONDS
  shift
  if "$@" >"$out/$name.txt" 2>&1; then
    printf 'ok      %4d s  %s\n' $((SECONDS - from)) "$name"
  else
    printf 'FAILED  %4d s  %s\n' $((SECONDS - from)) "$name"
    tail -30 "$out/$name.txt"
    status=1
    return 1
  fi
}

step configure cmake --preset cuda &&
  step build cmake --build --preset cuda --target ddp_tests_gpu &&
  step test ctest --preset cuda -L '^gpu$' --output-on-failure
if [ -f "$build/tests.xml" ]; then
  cp "$build/tests.xml" "$out/tests.xml"
  if command -v python3 >/dev/null; then python3 scripts/test_summary.py "$out/tests.xml"; fi
fi
if [ $status = 0 ]; then
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
      for test in "$build"/tests/kernels/*_kernel_test; do
        step "$tool-$(basename "$test")" compute-sanitizer --tool $tool --error-exitcode 1 "$test"
      done
    done
    step memcheck-cuda_tensor_test compute-sanitizer --tool memcheck --error-exitcode 1 "$build/tests/tensor/cuda_tensor_test"
  else
    printf 'skipped: compute-sanitizer is not in this toolkit\n'
  fi
fi
exit $status
