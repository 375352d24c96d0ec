#!/usr/bin/env bash
# usage: tests/package/run.sh BUILD_FOLDER
# Installs a finished build into a folder of its own, moves that folder, and builds and runs a program
# against it twice: through find_package(ddp) and through pkg-config.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
work=$build/package_test
rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/staged" >"$work/install.log"
mv "$work/staged" "$work/prefix"  # nothing may remember where it was installed first

cmake -S "$here/downstream" -B "$work/downstream" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$work/prefix" ${DDP_DEPS_DIR:+-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags} \
  >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/downstream" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
echo "find_package: $("$work/downstream/downstream")"

pc=$(dirname "$(find "$work/prefix" -name ddp.pc)")
flags=$(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs ddp)
# shellcheck disable=SC2086  # several flags
${CXX:-c++} "$here/downstream/main.cpp" -o "$work/with_pkg_config" $flags
echo "pkg-config:   $("$work/with_pkg_config")"
if [ -x "$work/prefix/bin/ddp" ]; then
  "$work/prefix/bin/ddp" --version >/dev/null && echo "command:      bin/ddp runs"
fi
