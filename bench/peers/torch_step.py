#!/usr/bin/python3
"""PyTorch's side of the step comparison: the same model, weights, batches and optimiser as peer_step.cpp.

Started once per rank by compare.py, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set in ddp mode.
"""
import argparse
import json
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from torch_models import Cnn, Mlp, read_idx, set_weights


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["mlp", "cnn"], required=True)
    parser.add_argument("--mode", choices=["local", "ddp"], required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--bucket-cap-mb", type=float, default=25)
    parser.add_argument("--static-graph", action="store_true")
    parser.add_argument("--json", required=True)
    args = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    rank, size = 0, 1
    if args.mode == "ddp":
        dist.init_process_group("gloo")
        rank, size = dist.get_rank(), dist.get_world_size()

    images = read_idx(os.path.join(args.data, "train-images-idx3-ubyte.gz"), 16).reshape(-1, 1, 28, 28)
    labels = read_idx(os.path.join(args.data, "train-labels-idx1-ubyte.gz"), 8)
    batches = []
    for step in range(args.steps + args.warmup):
        first = (step * size + rank) * args.batch_size
        where = np.arange(first, first + args.batch_size) % len(labels)
        x = (images[where].astype(np.float32) / 255 - 0.2860) / 0.3530
        batches.append((torch.from_numpy(x.astype(np.float32)), torch.from_numpy(labels[where].astype(np.int64))))

    model = Mlp() if args.model == "mlp" else Cnn()
    set_weights(model)
    if args.mode == "ddp":
        model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=args.bucket_cap_mb,
                                                    gradient_as_bucket_view=True, static_graph=args.static_graph)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    times, losses = [], []
    last = time.perf_counter()
    for x, y in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        now = time.perf_counter()
        times.append(1000 * (now - last))
        last = now
    if rank == 0:
        result = {"peer": "pytorch " + torch.__version__, "model": args.model, "mode": args.mode, "world_size": size,
                  "batch_size": args.batch_size, "threads": torch.get_num_threads(), "losses": losses,
                  "step_ms": times[args.warmup:]}
        with open(args.json + ".partial", "w") as file:
            json.dump(result, file)
        os.replace(args.json + ".partial", args.json)
    if args.mode == "ddp":
        dist.barrier()
        dist.destroy_process_group()


main()
