#!/usr/bin/env bash
# usage: scripts/demo.sh [--data DIR | --synthetic] [--epochs N] [--no-install]
# Sets up, builds and runs the demo: a CNN trained on Fashion-MNIST by 2 ranks, then the same step by one
# process, and what the difference is made of. Leaves its JSON lines in build/demo.jsonl.
#   --data DIR     where the four IDX files of Fashion-MNIST are (default: DDP_DATA_DIR, else where Debian's
#                  dataset-fashion-mnist puts them)
#   --synthetic    made-up images instead
#   --epochs N     default 2
#   --no-install   only check what is missing
set -euo pipefail
from=$PWD
. "$(dirname "$0")/common.sh"

usage() { printf 'demo.sh: %s (see --help)\n' "$*" >&2; exit 2; }

ranks=2 batch=64 epochs=2 data=/usr/share/datasets/fashion-mnist source="" setup=()
if [ -n "${DDP_DATA_DIR:-}" ]; then data=$DDP_DATA_DIR source=given; fi
while [ $# -gt 0 ]; do
  case $1 in
    --data) [ -n "${2:-}" ] || usage "--data needs a folder"; data=$2 source=given; shift ;;
    --synthetic) source=synthetic ;;
    --epochs) epochs=${2:-}; shift $(($# > 1)) ;;
    --no-install) setup+=(--no-install) ;;
    -h | --help) sed -n '2,/^set/{s/^# \{0,1\}//;/^set/!p}' "$0"; exit 0 ;;
    *) usage "unknown option $1" ;;
  esac
  shift
done
case $epochs in "" | *[!0-9]* | 0*) usage "--epochs is '$epochs'; allowed: a whole number from 1" ;; esac
if [ "$epochs" = 1 ]; then epochs_text="1 epoch"; else epochs_text="$epochs epochs"; fi

input=(--synthetic)
if [ "$source" = given ]; then  # before anything is installed or built
  folder=$(cd "$from" && cd "$data" 2>/dev/null && pwd) || die "no folder $data (--data DIR or DDP_DATA_DIR; --synthetic needs none)"
  data=$folder
  for file in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do
    [ -e "$data/$file-ubyte" ] || [ -e "$data/$file-ubyte.gz" ] ||
      die "$data has neither $file-ubyte nor $file-ubyte.gz (--synthetic needs no files)"
  done
fi
if [ "$source" != synthetic ]; then input=(--data "$data"); fi
if [ -n "$source" ]; then setup+=(--without dataset-fashion-mnist); fi
scripts/setup.sh --for demo "${setup[@]}"

say "build, preset demo-$preset"
cmake --workflow --preset "demo-$preset"
if has_gpu; then
  if [ "$preset" = cpu ]; then
    say "a GPU was found but is not used: nvcc (CUDA toolkit 12.4 or newer) is missing"
  else
    say "a GPU was found; this demo is about ranks on CPU cores. On the GPU: $build/bin/train_cnn --mode local --device cuda (docs/gpus.md)"
  fi
fi

ddp=$build/bin/ddp train=$build/bin/train_cnn
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
common=(--device cpu --batch-size $batch --lr 0.05 --momentum 0.9 "${input[@]}")

say "train_cnn on $ranks ranks, $epochs_text, batch $batch a rank"
"$ddp" run -n $ranks -- "$train" --mode ddp "${common[@]}" --epochs "$epochs" --json "$work/train.jsonl"

# Short runs in turn, and of each kind the one in the middle: what the machine does meanwhile weighs on all alike.
steps=40 rounds=3
say "the same step in one process with 1 thread, with all threads, and on $ranks ranks: $rounds rounds of $steps steps each"
for round in $(seq $rounds); do
  short=("${common[@]}" --no-test --steps $steps --json)
  OMP_NUM_THREADS=1 "$train" --mode local "${short[@]}" "$work/one_thread.$round"
  "$train" --mode local "${short[@]}" "$work/all_threads.$round"
  "$ddp" run -n $ranks -- "$train" --mode ddp "${short[@]}" "$work/ranks.$round"
done
for kind in one_thread all_threads ranks; do  # the round with the median step
  middle=$(grep -H '"summary"' "$work/$kind".? | sed 's/^\([^:]*\):.*"step_ms": *\([0-9.eE+-]*\).*/\2 \1/' | sort -g |
    sed -n "$(((rounds + 1) / 2))p" | cut -d' ' -f2-)
  cp "$middle" "$work/$kind.jsonl"
done

mkdir -p build
cat "$work"/train.jsonl "$work"/{one_thread,all_threads,ranks}.? >build/demo.jsonl.new
mv build/demo.jsonl.new build/demo.jsonl

value() {  # number of field $2 in the summary of $1, or - where there is none
  local number
  number=$(sed -n '/"event": *"summary"/{s/.*"'"$2"'": *\(-\{0,1\}[0-9][0-9.eE+-]*\).*/\1/p;}' "$work/$1.jsonl" | tail -1)
  printf '%s' "${number:--}"
}
row() {
  printf '%-28s %s %s %s %s\n' "$1" "$(value "$2" step_ms)" "$(value "$2" samples_per_s)" "$(value "$2" comm_ms)" \
    "$(value "$2" exposed_comm_ms)" | awk '
    { n = NF; label = $1; for (i = 2; i <= n - 4; ++i) label = label " " $i
      printf "%-28s", label
      for (i = n - 3; i <= n; ++i) if ($i == "-") printf " %12s", "-"; else printf " %12.1f", $i
      print "" }'
}

say "what DDP did"
printf '%-28s %12s %12s %12s %12s\n' "" "ms a step" "samples/s" "comm ms" "exposed ms"
row "1 rank, 1 thread" one_thread
row "1 rank, $(nproc) threads" all_threads
row "$ranks ranks" ranks
awk -v one="$(value one_thread samples_per_s)" -v all="$(value all_threads samples_per_s)" \
  -v two="$(value ranks samples_per_s)" -v comm="$(value ranks comm_ms)" -v exposed="$(value ranks exposed_comm_ms)" \
  -v one_ms="$(value one_thread step_ms)" -v two_ms="$(value ranks step_ms)" \
  -v ranks=$ranks -v cores="$(nproc)" 'BEGIN {
    if (one + 0 <= 0 || two + 0 <= 0) exit
    printf "\n%d ranks train %.2f times the samples a second of 1 rank with 1 thread", ranks, two / one
    if (all + 0 > 0) printf " (1 rank with all threads: %.2f)", all / one
    if (comm != "-" && exposed != "-") {
      hidden = comm - exposed
      if (hidden < 0) hidden = 0
      printf ".\nOf %.1f ms communication a step %.1f are hidden behind backward and %.1f are waited for", comm, hidden, exposed
      longer = two_ms - one_ms
      if (longer > 0) printf ".\nA step on %d ranks takes %.1f ms longer than on 1", ranks, longer
      if (longer > exposed) {
        printf ": about %.1f wait for communication and %.1f go into slower computing", exposed, longer - exposed
        printf "\n(shared memory and caches, sums beside backward, other programs on the machine: run it when idle)"
      }
    }
    if (cores < ranks) printf ".\nWith %d core(s) the ranks take turns, so no more than 1 could be had", cores
    print "."
  }'
printf 'Test accuracy after %s: %s\nJSON lines: %s\n' "$epochs_text" "$(value train test_accuracy)" "$root/build/demo.jsonl"

more=$((ranks * 2))
printf -v input_text ' %q' "${input[@]}"
say "to try next, in $root"
printf '  %s run -n %d -- %s --mode ddp%s --steps 60    # more ranks\n' "$ddp" $more "$train" "$input_text"
printf '  %s run -n %d -- %s --mode ddp%s --steps 60 --bucket-cap-mb 100    # one bucket: nothing to overlap\n' \
  "$ddp" $ranks "$train" "$input_text"
printf '  %s --help    # everything else it can do; scripts/test.sh runs the tests\n' "$train"
