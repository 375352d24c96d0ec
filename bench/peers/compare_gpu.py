#!/usr/bin/env python3
"""Compares libddp's training step with PyTorch's on a GPU: interleaved runs, medians, losses first.

    bench/peers/compare_gpu.py --build build/cuda-bench --python PYTHON_WITH_TORCH --data DIR --out bench/results/NAME.json

Cells: each model local, under DDP at world size 1, and under DDP on --ranks ranks that share the GPU. Both sides run
under the same launcher with the same environment (MPS and NCCL's socket settings come from `ddp run --share-gpu`).
PyTorch runs eagerly in the configuration that is fastest here: TF32, cudnn.benchmark, fused or foreach SGD, gradients as
bucket views, bucket cap and static graph by trial. libddp tries its bucket cap as well.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

from compare import cpu_name, free_port, percentile

HERE = pathlib.Path(__file__).resolve().parent
PARAMETERS = {"mlp": 1863690, "cnn": 1199882}
# Multiply-adds of one example's forward pass; a training step costs three times that.
MULTIPLY_ADDS = {"mlp": 784 * 1024 + 1024 * 1024 + 1024 * 10,
                 "cnn": 26 * 26 * 32 * 9 + 24 * 24 * 64 * 288 + 9216 * 128 + 128 * 10}


def run(command, timeout=300):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.json")
        done = subprocess.run(command + ["--json", path], timeout=timeout, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        with open(path) as file:
            return json.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="build folder with bin/ddp and bench/peer_step")
    parser.add_argument("--python", default=sys.executable, help="the Python that has torch")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--models", default="mlp,cnn")
    parser.add_argument("--modes", default="local,ddp,shared")
    parser.add_argument("--ranks", type=int, default=2, help="ranks that share the GPU")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--windows", type=int, default=10)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    launcher = os.path.join(args.build, "bin", "ddp")
    common = ["--data", args.data, "--steps", str(args.steps), "--windows", str(args.windows), "--warmup", "50", "--tf32"]

    def prefix(mode):
        if mode == "local":
            return []
        return [launcher, "run", "-n", str(args.ranks if mode == "shared" else 1),
                *(["--share-gpu"] if mode == "shared" else []), "--"]

    def torch(model, mode, *more):
        return run(prefix(mode) + [args.python, str(HERE / "torch_step_gpu.py"), "--model", model, "--mode",
                                   "local" if mode == "local" else "ddp", "--port", str(free_port()), *common, *more])

    def ours(model, mode, cap):
        return run(prefix(mode) + [os.path.join(args.build, "bench", "peer_step"), "--model", model, "--mode",
                                   "local" if mode == "local" else "ddp", "--device", "cuda", "--bucket-cap-mb", str(cap),
                                   *common])

    report = {"date": datetime.datetime.now().isoformat(timespec="seconds"), "command": " ".join(sys.argv),
              "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "kernel": platform.release()}, "cells": []}
    best = None
    for model in args.models.split(","):
        for mode in args.modes.split(","):
            first = torch(model, mode, *([] if best else ["--ceilings"]))
            best = best or first["ceilings"]
            report.setdefault("ceilings", best)
            report["machine"].update(gpu=first["gpu"], cudnn_of_pytorch=first["cudnn"], nccl_of_pytorch=first["nccl"])
            caps = {cap: statistics.median(ours(model, mode, cap)["step_ms"]) for cap in (1, 5, 25)} if mode == "shared" \
                else {25: 0.0}
            cap = min(caps, key=caps.get)
            runs = {"pytorch": [], "libddp": []}
            for repeat in range(args.repeats):
                runs["pytorch"].append(torch(model, mode, "--config", json.dumps(first["config"])))
                runs["libddp"].append(ours(model, mode, cap))
                print(f"{model} {mode} repeat {repeat + 1}/{args.repeats}: "
                      f"pytorch {statistics.median(runs['pytorch'][-1]['step_ms']):.3f} ms, "
                      f"libddp {statistics.median(runs['libddp'][-1]['step_ms']):.3f} ms", flush=True)
            gap = max(abs(a - b) for a, b in zip(runs["pytorch"][0]["losses"], runs["libddp"][0]["losses"]))
            flops = 6 * 64 * MULTIPLY_ADDS[model]
            # Weights read forward and backward, gradients written and read, momentum and weights read and written.
            bytes_moved = 4 * PARAMETERS[model] * 8
            cell = {"model": model, "mode": mode, "world_size": runs["libddp"][0]["world_size"], "batch_size": 64,
                    "ranks_share_one_gpu": mode == "shared", "loss_gap_first_20_steps": gap,
                    "pytorch_version": first["peer"], "pytorch_config": first["config"],
                    "pytorch_trials_ms": first["trials_ms"], "libddp_bucket_cap_mb": cap,
                    "floor_ms": {"flops": 1000 * flops / best["tf32_flop_per_s"],
                                 "parameter_bytes": 1000 * bytes_moved / best["copy_bytes_per_s"]}}
            for side in runs:
                medians = [statistics.median(r["step_ms"]) for r in runs[side]]
                pooled = [t for r in runs[side] for t in r["step_ms"]]
                cell[side] = {"median_ms": statistics.median(medians), "p10_ms": percentile(pooled, 0.1),
                              "p90_ms": percentile(pooled, 0.9), "run_medians_ms": medians}
                for key in ("comm_ms", "exposed_comm_ms", "launches_per_step", "blocking_calls"):
                    if key in runs[side][0]:
                        cell[side][key] = statistics.median(r[key] for r in runs[side])
            cell["ratio_libddp_to_pytorch"] = cell["libddp"]["median_ms"] / cell["pytorch"]["median_ms"]
            report["cells"].append(cell)
            print(f"{model} {mode}: ratio {cell['ratio_libddp_to_pytorch']:.3f}, loss gap {gap:.2e}", flush=True)
            with open(args.out + ".partial", "w") as file:
                json.dump(report, file, indent=1)
                file.write("\n")
    os.replace(args.out + ".partial", args.out)


if __name__ == "__main__":
    main()
