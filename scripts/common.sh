# Shared by the scripts; sourced, not run. Sets root, changes to it, and knows which preset suits the machine.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

say() { printf '\n==> %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
is_true() { case "${1:-}" in 1 | true | TRUE | yes | on) return 0 ;; *) return 1 ;; esac }

# The CUDA toolkit is often installed without being on the PATH.
if ! command -v nvcc >/dev/null 2>&1; then
  for cuda in "${CUDA_HOME:-/usr/local/cuda}" /usr/local/cuda; do
    if [ -x "$cuda/bin/nvcc" ]; then PATH=$cuda/bin:$PATH; break; fi
  done
fi

has_gpu() { [ -e /dev/nvidiactl ] || { command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1; }; }

# The preset of the optimised build: cuda where nvcc is, else cpu. DDP_PRESET decides otherwise.
preset=${DDP_PRESET:-}
if [ -z "$preset" ]; then
  if command -v nvcc >/dev/null 2>&1; then preset=cuda; else preset=cpu; fi
fi
build=build/$preset
