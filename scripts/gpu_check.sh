#!/usr/bin/env bash
# usage: scripts/gpu_check.sh FOLDER
# What needs a GPU, on a machine that has one: configures preset cuda, builds and runs the tests labelled gpu (none may
# be skipped; with several GPUs the tests of ranks use them), then the kernel tests under compute-sanitizer where the
# toolkit has it, then, where Fashion-MNIST is (DDP_DATA_DIR), train_cnn: one rank, and two ranks on one GPU with a
# trace. Writes its logs to FOLDER.
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
  step build cmake --build --preset cuda --target ddp_tests_gpu ddp_cli train_cnn &&
  step test ctest --preset cuda -L '^gpu$' --output-on-failure
if [ -f "$build/tests.xml" ]; then
  cp "$build/tests.xml" "$out/tests.xml"
  if command -v python3 >/dev/null; then python3 scripts/test_summary.py "$out/tests.xml"; fi
fi
if [ $status = 0 ]; then
  if command -v compute-sanitizer >/dev/null; then
    # Every block is an allocation of its own, so that the checker sees where it ends.
    export DDP_CUDA_ALLOCATOR=plain
    for tool in memcheck racecheck; do
      for test in "$build"/tests/kernels/*_kernel_test; do
        step "$tool-$(basename "$test")" compute-sanitizer --tool $tool --error-exitcode 1 "$test"
      done
    done
    step memcheck-cuda_tensor_test compute-sanitizer --tool memcheck --error-exitcode 1 "$build/tests/tensor/cuda_tensor_test"
    unset DDP_CUDA_ALLOCATOR
  else
    printf 'skipped: compute-sanitizer is not in this toolkit\n'
  fi
fi
if [ $status = 0 ] && [ -n "${DDP_DATA_DIR:-}" ]; then
  step train_cnn "$build/bin/train_cnn" --mode local --device cuda --epochs 2 --json "$out/train_cnn.jsonl"
  step train_cnn-2-ranks "$build/bin/ddp" run -n 2 --share-gpu -- "$build/bin/train_cnn" --epochs 1 \
    --json "$out/train_cnn-2-ranks.jsonl" --no-test
  step trace-2-ranks "$build/bin/ddp" run -n 2 --share-gpu -- "$build/bin/train_cnn" --steps 30 --no-test --trace "$out/trace"
  tail -n 1 "$out"/train_cnn*.jsonl
fi
exit $status
