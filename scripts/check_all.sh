#!/usr/bin/env bash
# usage: scripts/check_all.sh [--no-install]
# What takes longer than CI allows: all tests (not only the labelled ones) under both sanitizer builds, the
# other flavours of the library (shared, without vector instructions, without Gloo), and the comparison with
# PyTorch. The outcome goes to docs/check_all.txt, which is committed.
set -uo pipefail
. "$(dirname "$0")/common.sh"
case ${1:-} in "" | --no-install) ;; *) printf 'check_all.sh: unknown option %s\n' "$1" >&2; exit 2 ;; esac
scripts/setup.sh --for all "$@" || exit 1
export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$(nproc)}

report=$(mktemp) status=0
trap 'rm -f "$report"' EXIT
{
  printf 'Commit %s%s\n' "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" \
    "$([ -z "$(git status --porcelain -- . ':!docs/check_all.txt' 2>/dev/null)" ] || echo ' with local changes')"
  printf 'Date %s, %s cores, %s, kernel %s\n' "$(date -u +%F)" "$(nproc)" \
    "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)" "$(uname -r)"
  printf '%s; %s; %s\n\n' "$(c++ --version | head -1)" "$(clang++-19 --version | head -1)" "$(cmake --version | head -1)"
} >"$report"

check() {  # check NAME COMMAND...
  local name=$1 from=$SECONDS outcome=passed
  shift
  say "$name"
  "$@" || { outcome=FAILED; status=1; }
  printf '%-7s %5d s  %s\n' $outcome $((SECONDS - from)) "$name" >>"$report"
}
tests_of() {  # the last line of the test summary
  [ -f "build/$1/tests.xml" ] && python3 scripts/test_summary.py "build/$1/tests.xml" | sed 's/^/                 /' >>"$report"
}

optimised() { scripts/test.sh --no-install; }
sanitized() {
  cmake --preset "$1" && cmake --build --preset "$1" --target all && ctest --preset "$1-all"
}
flavour() {  # flavour NAME OPTION...: another configuration, built and tested
  local folder=build/$1
  shift
  cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDDP_WERROR=ON "$@" &&
    cmake --build "$folder" && ctest --test-dir "$folder" --output-on-failure && tests/package/run.sh "$folder"
}

check "all tests, preset $preset" optimised
tests_of "$preset"
for name in asan tsan; do
  check "all tests, preset $name" sanitized $name
  tests_of $name
done
check "shared library, baseline instructions" flavour shared -DBUILD_SHARED_LIBS=ON -DDDP_NATIVE=OFF -DDDP_WITH_CUDA=OFF
check "without Gloo" flavour no_gloo -DDDP_WITH_GLOO=OFF -DDDP_WITH_CUDA=OFF
bench_build() {
  cmake -S . -B build/bench -G Ninja -DCMAKE_BUILD_TYPE=Release -DDDP_WERROR=ON -DDDP_BUILD_BENCH=ON -DDDP_BUILD_TESTS=OFF \
    -DDDP_WITH_CUDA=OFF && cmake --build build/bench
}
check "benchmarks build" bench_build
if [ -e /usr/lib/python3/dist-packages/torch/__init__.py ]; then
  check "training step against PyTorch" python3 bench/peers/compare.py --program build/bench/bench/peer_step \
    --data "${DDP_DATA_DIR:-/usr/share/datasets/fashion-mnist}" --out bench/results/cpu_peers.json
else
  printf 'skipped          training step against PyTorch: python3-torch is not here\n' >>"$report"
fi

mkdir -p docs
cp "$report" docs/check_all.txt.new && mv docs/check_all.txt.new docs/check_all.txt
say "docs/check_all.txt"
cat docs/check_all.txt
exit $status
