"""Two ranks whose calls end before their collectives do, as over NCCL: emulated over gloo, torch 2.8 to 2.13.

A synchronous call returns no Work, and `loss.item()`, here a loop, waits for the device (seen: torch 2.11, an H100).
``sleep``: rank 1 sleeps before a step; ``work``: it computes there; ``long``: each step takes long on all ranks;
``given up``: all ranks have entered a collective that does not end, and the watchdog of rank 0 ends its process
(emulated, with the line of torch 2.11 on an H200).
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

kind, seconds = sys.argv[1], float(sys.argv[2])
distributed_c10d.get_backend = lambda *_, **__: "nccl"
dist.init_process_group("gloo")
rank, works = dist.get_rank(), []
method = dist.ProcessGroup.allreduce  # the hook's
[original] = [
    cell for name, cell in zip(method.__code__.co_freevars, method.__closure__, strict=True) if name == "original"
]
allreduce = original.cell_contents


def behind_stream(group, tensors, options):
    works.append(allreduce(group, tensors, options))


original.cell_contents = behind_stream


def spend(limit: float) -> None:
    end = time.monotonic() + limit
    while time.monotonic() < end:
        torch.randn(64, 64) @ torch.randn(64, 64)


model = torch.nn.Linear(8, 8)
for parameter in model.parameters():
    dist.broadcast(parameter.data, 0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(rank)
for step in range(12):
    if rank == 1 and step == 8:
        time.sleep(100000 if kind == "sleep" else 0)
        spend(seconds if kind == "work" else 0)
    model(torch.randn(4, 8)).pow(2).mean().backward()
    for parameter in model.parameters():
        parameter.grad /= 2
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
    if kind == "given up" and step == 8 and rank == 0:
        given_up = f"WorkNCCL(SeqNum={2 + 2 * step}, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=12000)"
        line = f"[Rank 0] Watchdog caught collective operation timeout: {given_up} ran for 12049 milliseconds before"
        os.write(2, f"[rank0]:[E1126 11:16:22.968557097 ProcessGroupNCCL.cpp:689] {line} timing out.\n".encode())
        os.abort()
    while not all(work.is_completed() for work in works):
        pass
    works.clear()
    spend(seconds if kind == "long" and step > 8 else 0)
dist.destroy_process_group()
