#!/usr/bin/env python3
"""PyTorch's side of the step comparison on a GPU: the same model, weights, batches and optimiser as peer_step.cpp.

One process per rank. Tries several configurations one after the other in the same process, short, and keeps the
fastest; then times that one: steps queued back to back, the mean of each window of steps.
"""
import argparse
import itertools
import json
import os
import statistics
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F

from torch_models import Cnn, Mlp, read_idx, set_weights


def make_batches(args, rank, size, device):
    images = read_idx(os.path.join(args.data, "train-images-idx3-ubyte.gz"), 16).reshape(-1, 1, 28, 28)
    labels = read_idx(os.path.join(args.data, "train-labels-idx1-ubyte.gz"), 8)
    batches = []
    for step in range(64):
        first = (step * size + rank) * args.batch_size
        where = np.arange(first, first + args.batch_size) % len(labels)
        x = (images[where].astype(np.float32) / 255 - 0.2860) / 0.3530
        batches.append((torch.from_numpy(x.astype(np.float32)).to(device),
                        torch.from_numpy(labels[where].astype(np.int64)).to(device)))
    return batches


def train(args, config, batches, device, warmup, windows, steps):
    """Returns (ms a step of each window, losses of the first 20 steps)."""
    model = (Mlp() if args.model == "mlp" else Cnn())
    set_weights(model)
    model.to(device)
    if args.mode == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(
            model, device_ids=[device.index], bucket_cap_mb=config["bucket_cap_mb"], gradient_as_bucket_view=True,
            static_graph=config["static_graph"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **{config["optimizer"]: True})
    losses, at = [], 0

    def run(count):
        nonlocal at
        for _ in range(count):
            x, y = batches[at % len(batches)]
            at += 1
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            if len(losses) < 20:
                losses.append(loss.detach())

    run(warmup)
    times = []
    for _ in range(windows):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run(steps)
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start) / steps)
    return times, [loss.item() for loss in losses]


def ceilings(device):
    """What this GPU does at best: bytes per second of a copy (read and written), FLOP per second of a TF32 product."""
    def seconds(work):
        for _ in range(3):
            work()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(10):
            work()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1e-4

    source = torch.randn(1 << 28, device=device)
    target = torch.empty_like(source)
    a, b = (torch.randn(8192, 8192, device=device) for _ in range(2))
    return {"copy_bytes_per_s": 2 * 4 * source.numel() / seconds(lambda: target.copy_(source)),
            "tf32_flop_per_s": 2 * 8192**3 / seconds(lambda: torch.mm(a, b, out=target[:8192**2].view(8192, 8192)))}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["mlp", "cnn"], required=True)
    parser.add_argument("--mode", choices=["local", "ddp"], required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=50)
    parser.add_argument("--windows", type=int, default=10)
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--port", type=int, default=29511)
    parser.add_argument("--config", help="JSON of the configuration to time; without it the fastest is found first")
    parser.add_argument("--ceilings", action="store_true")
    parser.add_argument("--json", required=True)
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.tf32
    torch.backends.cudnn.benchmark = True
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    if args.mode == "ddp":
        dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=size,
                                device_id=device)
    batches = make_batches(args, rank, size, device)
    trials = {}
    if args.config:
        config = json.loads(args.config)
    else:
        caps = (1, 5, 25, 100) if size > 1 else (25,)
        static = (False, True) if args.mode == "ddp" else (False,)
        configs = [{"optimizer": o, "bucket_cap_mb": c, "static_graph": s}
                   for o, c, s in itertools.product(("fused", "foreach"), caps, static)]
        for candidate in configs:
            ms = statistics.median(train(args, candidate, batches, device, 20, 3, 50)[0])
            if args.mode == "ddp":  # all ranks must choose alike
                shared = torch.tensor([ms], device=device)
                dist.broadcast(shared, 0)
                ms = shared.item()
            trials[json.dumps(candidate)] = ms
        config = json.loads(min(trials, key=trials.get))
    times, losses = train(args, config, batches, device, args.warmup, args.windows, args.steps)
    if rank == 0:
        result = {"peer": "pytorch " + torch.__version__, "model": args.model, "mode": args.mode, "device": "cuda",
                  "world_size": size, "batch_size": args.batch_size, "config": config, "trials_ms": trials,
                  "losses": losses, "step_ms": times, "gpu": torch.cuda.get_device_name(device),
                  "cudnn": torch.backends.cudnn.version(), "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
        if args.ceilings:
            result["ceilings"] = ceilings(device)
        with open(args.json + ".partial", "w") as file:
            json.dump(result, file)
        os.replace(args.json + ".partial", args.json)
    if args.mode == "ddp":
        dist.barrier()
        dist.destroy_process_group()


main()
