#!/usr/bin/env bash
# usage: tests/package/run.sh BUILD_FOLDER
# Installs a finished build into a folder of its own, moves that folder, and builds examples/cmake_project
# against it twice, through find_package(ddp) and through pkg-config; each is run by the installed command.
set -euo pipefail
project=$(cd "$(dirname "$0")/../../examples/cmake_project" && pwd)
build=$(cd "$1" && pwd)
work=$build/package_test
rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/staged" >"$work/install.log"
mv "$work/staged" "$work/prefix"  # nothing may remember where it was installed first

cmake -S "$project" -B "$work/project" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$work/prefix" ${DDP_DEPS_DIR:+-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags} \
  >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/project" >"$work/build.log" || { cat "$work/build.log"; exit 1; }

pc=$(dirname "$(find "$work/prefix" -name ddp.pc)")
flags=$(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs ddp)
# shellcheck disable=SC2086  # several flags
# pkg-config names no run path; a shared library in a folder of its own needs one.
${CXX:-c++} "$project/main.cpp" -o "$work/with_pkg_config" $flags -Wl,-rpath,"$(dirname "$pc")"

run() {  # by the installed command on 2 ranks; without Gloo it can only say so
  if grep -qE 'DDP_HAVE_GLOO (ON|TRUE|1)\)' "$(find "$work/prefix" -name ddpConfig.cmake)"; then
    "$work/prefix/bin/ddp" run -n 2 -- "$1" 2>"$work/run.log" || { cat "$work/run.log"; exit 1; }
  else
    RANK=0 WORLD_SIZE=1 "$1" 2>&1 | grep "this build has no Gloo"
  fi
}
echo "find_package: $(run "$work/project/fit_line")"
echo "pkg-config:   $(run "$work/with_pkg_config")"
