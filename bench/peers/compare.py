#!/usr/bin/env python3
"""Compares libddp's training step with PyTorch's on this machine's CPUs: interleaved runs, medians, losses first.

    bench/peers/compare.py --program build/cpu/bench/peer_step --data DIR --out bench/results/NAME.json

Each run starts one process per rank with the same environment for both sides. PyTorch gets the settings that
make it fastest here: its BLAS kernel by name, malloc kept from giving memory back, gradients as bucket views.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TORCH_ENV = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
    "MALLOC_TOP_PAD_": "268435456",
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(command, world, extra_env, pin, timeout):
    """Runs one process per rank; returns rank 0's result file as a dict."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.json")
        port = str(free_port())
        processes = []
        for rank in range(world):
            env = dict(os.environ, OMP_NUM_THREADS="1", **extra_env)
            if world > 1:
                env.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world),
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            prefix = ["taskset", "-c", str(rank % os.cpu_count())] if pin else []
            processes.append(subprocess.Popen(prefix + command + ["--json", path], env=env))
        try:
            for process in processes:
                if process.wait(timeout=timeout) != 0:
                    sys.exit(f"{command[0]} failed with {process.returncode}")
        finally:
            for process in processes:
                process.kill()
        with open(path) as file:
            return json.load(file)


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the peer_step executable")
    parser.add_argument("--python", default="/usr/bin/python3", help="the Python that has torch")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--models", default="mlp,cnn")
    parser.add_argument("--worlds", default="1,2", help="world sizes; 1 is local training without DDP")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--coretype", default="", help="OPENBLAS_CORETYPE for PyTorch; empty: try several, keep the fastest")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()

    def torch(model, world, coretype, pin, caps, steps=None):
        command = [args.python, str(HERE / "torch_step.py"), "--model", model, "--mode", "ddp" if world > 1 else "local",
                   "--data", args.data, "--steps", str(steps or args.steps), "--warmup", str(args.warmup),
                   "--bucket-cap-mb", str(caps)]
        return run(command, world, dict(TORCH_ENV, OPENBLAS_CORETYPE=coretype), pin, 600)

    def ours(model, world, pin):
        command = [args.program, "--model", model, "--mode", "ddp" if world > 1 else "local", "--data", args.data,
                   "--steps", str(args.steps), "--warmup", str(args.warmup)]
        return run(command, world, {}, pin, 600)

    report = {"date": datetime.datetime.now().isoformat(timespec="seconds"), "command": " ".join(sys.argv),
              "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "kernel": platform.release()}, "cells": []}
    for model in args.models.split(","):
        for world in map(int, args.worlds.split(",")):
            # The peer's best configuration on this machine, by a short trial of each.
            trials = {}
            for coretype in [args.coretype] if args.coretype else ["SkylakeX", "Zen", "Haswell"]:
                for pin in (False, True):
                    for cap in (25, 5, 1) if world > 1 else (25,):
                        result = torch(model, world, coretype, pin, cap, steps=30)
                        trials[(coretype, pin, cap)] = statistics.median(result["step_ms"])
            coretype, pin, cap = min(trials, key=trials.get)
            runs = {"pytorch": [], "libddp": []}
            for repeat in range(args.repeats):
                runs["pytorch"].append(torch(model, world, coretype, pin, cap))
                runs["libddp"].append(ours(model, world, world > 1))
                print(f"{model} world {world} repeat {repeat + 1}/{args.repeats}: "
                      f"pytorch {statistics.median(runs['pytorch'][-1]['step_ms']):.2f} ms, "
                      f"libddp {statistics.median(runs['libddp'][-1]['step_ms']):.2f} ms", flush=True)
            gap = max(abs(a - b) for a, b in zip(runs["pytorch"][0]["losses"][:20], runs["libddp"][0]["losses"][:20]))
            cell = {"model": model, "world_size": world, "batch_size": 64, "loss_gap_first_20_steps": gap,
                    "pytorch_settings": {"OPENBLAS_CORETYPE": coretype, "pinned": pin, "bucket_cap_mb": cap, **TORCH_ENV},
                    "pytorch_trials_ms": {f"{c}, pinned {p}, cap {b}": v for (c, p, b), v in trials.items()},
                    "pytorch_version": runs["pytorch"][0]["peer"]}
            for side in runs:
                medians = [statistics.median(r["step_ms"]) for r in runs[side]]
                pooled = [t for r in runs[side] for t in r["step_ms"]]
                cell[side] = {"median_ms": statistics.median(medians), "p10_ms": percentile(pooled, 0.1),
                              "run_medians_ms": medians}
                for key in ("comm_ms", "exposed_comm_ms"):
                    if key in runs[side][0]:
                        cell[side][key] = statistics.median(r[key] for r in runs[side])
            cell["ratio_libddp_to_pytorch"] = cell["libddp"]["median_ms"] / cell["pytorch"]["median_ms"]
            report["cells"].append(cell)
            print(f"{model} world {world}: ratio {cell['ratio_libddp_to_pytorch']:.3f}, loss gap {gap:.2e}", flush=True)
    partial = args.out + ".partial"
    with open(partial, "w") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    os.replace(partial, args.out)


def cpu_name():
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
