#!/usr/bin/env bash
# usage: scripts/setup.sh [--for demo|test|ci|all] [--without PACKAGE]... [--no-install]
#
# Makes sure that what libddp needs is on this machine. It is the only script that installs anything: it prints
# the apt line for what is missing and runs it as root or in CI (CI=true), else asks first.
#   --for demo     what building and running the demo needs
#   --for test     and what the tests need (default)
#   --for ci       and formatter, linter and sanitizers
#   --for all      and what is compared with (PyTorch)
#   --without P    do not ask for package P
#   --no-install   only check: exit code 1 and the apt line when something is missing
#
# Something is looked for by what it brings (a command, a header), not by its package, so a copy built or
# unpacked by hand counts; folders with such copies are named in DDP_DEPS_DIR, separated by colons.
set -euo pipefail
. "$(dirname "$0")/common.sh"

what=test install=1 without=" "
while [ $# -gt 0 ]; do
  case $1 in
    --for) what=${2:-}; shift ;;
    --without) without+="${2:-} "; shift ;;
    --no-install) install=0 ;;
    -h | --help) sed -n '2,/^set/{s/^# \{0,1\}//;/^set/!p}' "$0"; exit 0 ;;
    *) printf 'setup.sh: unknown option %s\n' "$1" >&2; exit 2 ;;
  esac
  shift
done
case $what in demo | test | ci | all) ;; *) printf 'setup.sh: --for takes demo, test, ci or all\n' >&2; exit 2 ;; esac

# set | needed or useful | Debian 12 package | Ubuntu 24.04 package | what it brings
# Debian 12: tested. Ubuntu 24.04: not run; the names are those of its archive.
packages='
demo needed g++                   g++                   command:c++
demo needed cmake                 cmake                 cmake:3.25
demo needed ninja-build           ninja-build           command:ninja
demo useful ccache                ccache                command:ccache
demo needed zlib1g-dev            zlib1g-dev            header:zlib.h
demo needed nlohmann-json3-dev    nlohmann-json3-dev    header:nlohmann/json.hpp
demo needed libcli11-dev          libcli11-dev          header:CLI/CLI.hpp
demo needed libgloo-dev           libgloo-dev           header:gloo/allreduce.h
demo needed dataset-fashion-mnist dataset-fashion-mnist file:/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz
demo useful libhwloc-dev          libhwloc-dev          header:hwloc.h
test needed libeigen3-dev         libeigen3-dev         header:eigen3/Eigen/Core
test needed libgtest-dev          libgtest-dev          header:gtest/gtest.h
test needed python3               python3               command:python3
test needed pkg-config            pkg-config            command:pkg-config
ci   needed git                   git                   command:git
ci   needed clang-19              clang-19              command:clang++-19
ci   needed libclang-rt-19-dev    libclang-rt-19-dev    file:/usr/lib/llvm-19/lib/clang/19/lib/*/libclang_rt.asan*.a
ci   useful llvm-19               llvm-19               command:llvm-symbolizer-19
ci   needed clang-format-19       clang-format-19       command:clang-format-19
ci   needed clang-tidy-19         clang-tidy-19         command:run-clang-tidy-19
all  useful libbenchmark-dev      libbenchmark-dev      header:benchmark/benchmark.h
all  useful python3-torch         -                     file:/usr/lib/python3/dist-packages/torch/__init__.py
all  useful libopenblas0-pthread  -                     file:/usr/lib/*/openblas-pthread/libopenblas.so.0
'

exists() {  # any file that matches
  local file
  for file in "$@"; do if [ -e "$file" ]; then return 0; fi; done
  return 1
}

present() {
  local kind=${1%%:*} name=${1#*:} dir deps=${DDP_DEPS_DIR:-}
  case $kind in
    command) command -v "$name" >/dev/null 2>&1 ;;
    cmake)
      command -v cmake >/dev/null 2>&1 &&
        [ "$(printf '%s\n' "$name" "$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')" | sort -V | head -1)" = "$name" ]
      ;;
    file) # shellcheck disable=SC2086  # a pattern
      exists $name ;;
    header)
      for dir in /usr /usr/local ${deps//:/ }; do
        if exists "$dir/include/$name" "$dir/usr/include/$name" "$dir"/include/*-linux-gnu/"$name"; then return 0; fi
      done
      return 1
      ;;
  esac
}

distribution=debian
if grep -qsE '^ID=ubuntu' /etc/os-release; then distribution=ubuntu; fi

# Fills needed and useful with the packages that are missing.
find_missing() {
  needed="" useful=""
  local set weight debian ubuntu brings package
  while read -r set weight debian ubuntu brings; do
    [ -n "$set" ] || continue
    package=$debian
    if [ $distribution = ubuntu ]; then package=$ubuntu; fi
    case $what-$set in demo-test | demo-ci | demo-all | test-ci | test-all | ci-all) continue ;; esac
    case $without in *" $debian "*) continue ;; esac
    if present "$brings"; then continue; fi
    if [ "$package" = - ]; then printf 'not packaged here: what %s brings on Debian\n' "$debian"; continue; fi
    if [ $weight = needed ]; then needed+=" $package"; else useful+=" $package"; fi
  done <<<"$packages"
}

find_missing
if [ -z "$needed$useful" ]; then
  printf 'setup: everything for "%s" is present\n' "$what"
  exit 0
fi

sudo=""
if [ "$(id -u)" != 0 ]; then sudo="sudo "; fi
printf 'setup: missing for "%s":%s\n' "$what" "$needed$useful"
printf '  %sapt-get install -y --no-install-recommends%s\n' "$sudo" "$needed$useful"
if [ $distribution = ubuntu ]; then printf '  (the list for Ubuntu 24.04 was not run)\n'; fi

may_install() {
  [ $install = 1 ] || return 1
  if ! command -v apt-get >/dev/null 2>&1; then printf 'setup: no apt-get here; install these by other means\n'; return 1; fi
  if [ -z "$sudo" ] || is_true "${CI:-}"; then return 0; fi
  if ! [ -t 0 ]; then printf 'setup: not root and nobody to ask; nothing is installed\n'; return 1; fi
  local answer
  read -r -p 'Run it now? [y/N] ' answer
  case $answer in y | Y | yes) return 0 ;; *) return 1 ;; esac
}

if may_install; then
  apt() { ${sudo}env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" </dev/null; }
  install_packages() { apt install -y --no-install-recommends "$@" >"$log" 2>&1; }
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  # The package lists of a fresh machine are empty, or too old.
  if ! install_packages $needed $useful; then  # shellcheck disable=SC2086  # several packages
    apt update >/dev/null 2>&1 || printf 'setup: apt-get update failed (no network?)\n'
    if ! install_packages $needed $useful; then
      tail -5 "$log"
      # One package that cannot be had must not keep the others away.
      for package in $needed $useful; do install_packages "$package" || true; done
    fi
  fi
  find_missing
fi

if [ -n "$useful" ]; then printf 'setup: going on without:%s\n' "$useful"; fi
if [ -n "$needed" ]; then
  case $needed in
    *libgloo-dev*) printf 'setup: Gloo (libgloo-dev), which carries the sums between the ranks, is missing. Without root: apt-get download libgloo-dev libgloo0 libhiredis0.14 libibverbs1 libnl-3-200 libnl-route-3-200, unpack each with dpkg -x FILE DIR, and set DDP_DEPS_DIR=DIR.\n' ;;
  esac
  case $needed in
    *dataset-fashion-mnist*) printf 'setup: Fashion-MNIST is missing. scripts/demo.sh --synthetic does without it; --data DIR takes it from a folder.\n' ;;
  esac
  printf 'setup: cannot go on without:%s\n' "$needed" >&2
  exit 1
fi
if [ -z "$useful" ]; then printf 'setup: done\n'; fi
