#!/usr/bin/env python3
"""Checks which file includes which: rooms look down only, and native headers stay in their homes.

usage: check_layering.py [ROOT]        checks a source tree (default: the one this file is in)
       check_layering.py --self-test   plants one violation of each kind in a mock tree and expects it found

The tables below are those of docs/architecture.md.
"""

import os
import re
import sys
import tempfile

# Room -> rooms that it may include. A room always sees itself.
ROOMS = {
    "core": "",
    "kernels": "",
    "trace": "core",
    "schedule": "core",
    "tensor": "kernels trace core",
    "autograd": "tensor trace core",
    "data": "tensor trace core",
    "comm": "tensor trace core",
    "nn": "autograd tensor trace core",
    "optim": "autograd tensor trace core",
    "checkpoint": "comm tensor trace core",
    "parallel": "nn autograd comm schedule tensor trace core",
    "train": "parallel optim data nn autograd comm schedule tensor trace core",
    "diagnose": "trace schedule comm tensor core",
}
ROOMS = {room: set(below.split()) | {room} for room, below in ROOMS.items()}
# launch serves tools, bench and tests; it knows how ranks meet, not what they compute.
LAUNCH_SEES = {"core", "comm", "trace", "launch"}

# (header, where it may be included, whether headers may do so). A place ending in / is a folder.
HOMES = [
    (r"nccl\.h", ["libddp/src/comm/nccl/"]),
    (r"gloo/.*", ["libddp/src/comm/gloo/"]),
    (r"(unsupported/)?Eigen/.*", ["libddp/src/tensor/cpu/", "tests/tensor/", "bench/eigen_"]),
    (r"(cublas|cudnn|curand).*", ["libddp/src/tensor/cuda/", "libddp/src/core/cuda/"]),
    (r"(cub|thrust|cuda/std)/.*", ["kernels/src/"]),
    (r"cupti.*", ["libddp/src/trace/cupti/"]),
    (r"nvtx3/.*", ["libddp/src/trace/nvtx/"]),
    (r"cuda[_.].*|cuda\.h|device_launch_parameters\.h|vector_types\.h",
     ["libddp/src/tensor/cuda/", "libddp/src/core/cuda/", "libddp/src/trace/cuda/", "libddp/src/trace/cupti/",
      "libddp/src/comm/nccl/", "kernels/"]),
    (r"zlib\.h", ["libddp/src/data/"]),
    (r"hwloc(\.h|/.*)", ["libddp/launch/", "libddp/src/diagnose/machine/"]),
    (r"nvml\.h", ["libddp/src/diagnose/machine/"]),
    (r"spdlog/.*", ["libddp/src/core/log.cpp"]),
    (r"nlohmann/.*", [".cpp"]),
    (r"CLI/.*", ["libddp/tools/", "examples/", "bench/"]),
]
# CLI11 is slow to compile: one file each.
ONE_FILE = {r"CLI/.*": ["libddp/tools/", "examples/"]}

SOURCE = re.compile(r"\.(h|hpp|cpp|cc|cu|cuh|inc)$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CHECKED = ("libddp", "kernels", "examples", "bench", "tests")


def owner(path):
    """('room', name), ('launch'|'outside'|'tests', folder) or None for a file whose folder is unknown."""
    parts = path.split("/")
    if parts[0] == "kernels":
        return "room", "kernels"
    if parts[0] == "examples":
        return "outside", "examples"
    if parts[0] in ("tests", "bench"):  # they look at one function at a time, the private ones too
        return "tests", parts[0]
    if parts[0] == "libddp" and len(parts) > 2:
        if parts[1] in ("tools", "adapters"):
            return "outside", "libddp/" + parts[1]
        if parts[1] == "launch":
            return "launch", "launch"
        if parts[1] == "src" and len(parts) > 3 and parts[2] in ROOMS:
            return "room", parts[2]
        if parts[1] == "include" and parts[2] == "ddp":
            if path == "libddp/include/ddp/ddp.h":
                return "outside", "umbrella"
            if len(parts) > 4 and parts[3] in ROOMS:
                return "room", parts[3]
    return None


def target(root, path, name):
    """What a quoted include names: ('public'|'private', room), ('umbrella', ''), ('launch', ''), or None (local)."""
    if name == "ddp/ddp.h":
        return "umbrella", ""
    parts = name.split("/")
    if parts[0] == "ddp":
        return "public", parts[1] if len(parts) > 2 else "?"
    if parts[0] == "ddp_kernels":
        return "public", "kernels"
    if parts[0] == "launch":
        return "launch", ""
    if len(parts) > 1 and (parts[0] in ROOMS or os.path.isdir(os.path.join(root, "libddp/src", parts[0]))):
        return "private", parts[0]
    return None


def check_room(kind, room, seen, to):
    what, name = to
    if what == "umbrella":
        return "the umbrella ddp/ddp.h is for users, examples and tests"
    if what == "launch":
        return None if "launch" in seen else "launch is for tools, examples, bench and tests"
    if name not in ROOMS:
        return f"unknown room '{name}'"
    if name not in seen:
        return f"{room} must not include {name} (it may include: {' '.join(sorted(seen)) or 'nothing'})"
    return None


def check(root):
    problems, users = [], {}
    for top in CHECKED:
        for folder, _, files in sorted(os.walk(os.path.join(root, top))):
            for file in sorted(files):
                if not SOURCE.search(file):
                    continue
                path = os.path.relpath(os.path.join(folder, file), root).replace(os.sep, "/")
                problems += check_file(root, path, users)
    for pattern, places in ONE_FILE.items():
        for place in places:
            files = sorted(p for p in users.get(pattern, []) if p.startswith(place))
            if len(files) > 1:
                problems.append(f"{files[1]}:1: <{pattern}> is included in {files[0]} already; one file of {place} may")
    return problems


def check_file(root, path, users):
    own = owner(path)
    if own is None:
        return [f"{path}:1: this file is in no room that docs/architecture.md knows"]
    kind, room = own
    problems = []
    with open(os.path.join(root, path), encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if match:
                problem = check_include(root, path, kind, room, match[1] == "<", match[2], users)
                if problem:
                    problems.append(f"{path}:{number}: {problem}: {line.strip()}")
    return problems


def check_include(root, path, kind, room, angled, name, users):
    if ".." in name.split("/"):
        return "includes are written from the room, not with ../"
    if room != "tests":
        for pattern, places in HOMES:
            if re.fullmatch(pattern, name):
                users.setdefault(pattern, []).append(path)
                if not any(path.startswith(p) if "/" in p else path.endswith(p) for p in places):
                    return f"<{name}> has its home in {', '.join(places)}"
                break
    if path.startswith("libddp/include/") and angled and ("/" in name or "." in name):
        return "a public header needs no third-party or system header"
    if angled:
        return None
    to = target(root, path, name)
    if to is None or kind == "tests":
        return None
    if kind == "outside":
        if to[0] == "private":
            return f"{room} sees public headers only"
        return f"unknown room '{to[1]}'" if to[0] == "public" and to[1] not in ROOMS else None
    if path.startswith("libddp/include/") and to[0] == "private":
        return "a public header must not include a private one"
    return check_room(kind, room, ROOMS[room] if kind == "room" else LAUNCH_SEES, to)


GOOD = {
    "libddp/include/ddp/ddp.h": '#include "ddp/core/device.h"\n',
    "libddp/include/ddp/core/device.h": "#include <string>\n#include <source_location>\n",
    "libddp/src/core/cuda/runtime.cpp": '#include <cuda_runtime_api.h>\n#include "core/cuda/check.h"\n',
    "libddp/src/tensor/cpu/gemm.cpp": '#include <Eigen/Core>\n#include "ddp/core/device.h"\n',
    "libddp/src/tensor/cuda/add.cpp": '#include "ddp_kernels/elementwise.h"\n',
    "libddp/src/comm/gloo/group.cpp": "#include <gloo/context.h>\n",
    "libddp/src/data/idx.cpp": "#include <zlib.h>\n",
    "libddp/src/trace/json.cpp": "#include <nlohmann/json.hpp>\n",
    "libddp/launch/spawn.cpp": '#include "launch/spawn.h"\n#include "ddp/comm/store.h"\n',
    "libddp/tools/main.cpp": '#include <CLI/CLI.hpp>\n#include "ddp/ddp.h"\n#include "launch/spawn.h"\n',
    "examples/train.cpp": '#include "common/loop.h"\n#include "ddp/ddp.h"\n',
    "kernels/src/sum.cu": '#include <cub/cub.cuh>\n#include "strided.cuh"\n',
    "bench/gemm_bench.cpp": '#include "tensor/gemm.h"\n#include <benchmark/benchmark.h>\n',
    "tests/core/device_test.cpp": '#include "core/env.h"\n#include <gtest/gtest.h>\n',
}
# File to plant, its text, what the complaint must say.
BAD = [
    ("libddp/src/core/a.cpp", '#include "ddp/trace/recorder.h"', "core must not include trace"),
    ("libddp/src/comm/a.cpp", '#include "autograd/node.h"', "comm must not include autograd"),
    ("libddp/src/tensor/a.cpp", '#include "ddp/nn/module.h"', "tensor must not include nn"),
    ("libddp/src/diagnose/a.cpp", '#include "ddp/parallel/reducer.h"', "diagnose must not include parallel"),
    ("libddp/src/optim/a.cpp", '#include "ddp/comm/store.h"', "optim must not include comm"),
    ("libddp/src/garage/a.cpp", "#include <vector>", "in no room"),
    ("libddp/include/ddp/garage/a.h", "#include <vector>", "in no room"),
    ("libddp/src/core/b.cpp", '#include "ddp/garage/a.h"', "unknown room 'garage'"),
    ("libddp/src/core/c.cpp", '#include "../tensor/x.h"', "not with ../"),
    ("tests/core/a_test.cpp", '#include "../support/x.h"', "not with ../"),
    ("libddp/src/nn/a.cpp", '#include "ddp/ddp.h"', "the umbrella"),
    ("libddp/tools/b.cpp", '#include "core/env.h"', "public headers only"),
    ("examples/b.cpp", '#include "tensor/copy.h"', "public headers only"),
    ("libddp/src/core/d.cpp", '#include "launch/spawn.h"', "launch is for"),
    ("libddp/launch/a.cpp", '#include "ddp/tensor/tensor.h"', "launch must not include tensor"),
    ("libddp/include/ddp/tensor/a.h", '#include "tensor/copy.h"', "must not include a private one"),
    ("libddp/include/ddp/tensor/b.h", "#include <fmt/format.h>", "no third-party"),
    ("libddp/include/ddp/core/b.h", "#include <cuda_runtime.h>", "has its home"),
    ("libddp/src/tensor/d.cpp", "#include <Eigen/Core>", "has its home in libddp/src/tensor/cpu/"),
    ("libddp/src/parallel/a.cpp", "#include <gloo/allreduce.h>", "has its home in libddp/src/comm/gloo/"),
    ("libddp/src/comm/b.cpp", "#include <nccl.h>", "has its home in libddp/src/comm/nccl/"),
    ("libddp/src/tensor/cuda/b.cpp", "#include <cub/cub.cuh>", "has its home in kernels/src/"),
    ("libddp/src/nn/b.cpp", "#include <cublasLt.h>", "has its home"),
    ("libddp/src/comm/c.cpp", "#include <zlib.h>", "has its home in libddp/src/data/"),
    ("libddp/src/trace/j.h", "#include <nlohmann/json.hpp>", "has its home in .cpp"),
    ("libddp/tools/c.cpp", "#include <CLI/CLI.hpp>", "already; one file of libddp/tools/"),
    ("bench/a.cpp", "#include <Eigen/Core>", "has its home in libddp/src/tensor/cpu/"),
    ("kernels/src/a.cu", '#include "ddp/core/dtype.h"', "kernels must not include core"),
]


def self_test():
    def write(root, path, text):
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(text + "\n")

    failures = []
    with tempfile.TemporaryDirectory() as root:
        for path, text in GOOD.items():
            write(root, path, text)
        failures += [f"the good tree: {problem}" for problem in check(root)]
        for path, text, expected in BAD:
            write(root, path, text)
            problems = check(root)
            if len(problems) != 1 or expected not in problems[0]:
                failures.append(f"{path} with {text}: expected one '{expected}', got {problems}")
            os.remove(os.path.join(root, path))
            if not os.listdir(os.path.dirname(os.path.join(root, path))):
                os.rmdir(os.path.dirname(os.path.join(root, path)))
    print("\n".join(failures) or f"self-test: {len(BAD)} planted violations found, the good tree is clean")
    return 1 if failures else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    if not os.path.isdir(os.path.join(root, "libddp")):
        print(f"{root}: no folder libddp here")
        return 2
    problems = check(root)
    print("\n".join(problems) or "layering: clean")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
