"""A job that a program starts itself: `python spawned_job.py HOW PORT FOLDER [CULPRIT]`, three gloo ranks.

``HOW``: ``environment`` names the ranks inside Python, as notebooks and Ray's workers do; ``arguments`` names them
nowhere; ``fork`` as arguments, without new interpreters; ``reversed``: the last that starts is rank 0; ``driver``: as
this, and the process that starts them serves the store. The culprit sleeps in its fifth step.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 3


def work(number: int, start_method: str, port: str, folder: str, culprit: int) -> None:
    rank = WORLD - 1 - number if start_method in ("reversed", "driver") else number
    if start_method == "environment":
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        dist.init_process_group("gloo")
    elif start_method == "driver":
        dist.init_process_group("gloo", store=dist.TCPStore("127.0.0.1", int(port)), rank=rank, world_size=WORLD)
    else:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    step = 0
    while True:
        dist.all_reduce(torch.ones(1 << 14))
        step += 1
        if step == 5:
            Path(folder, f"{rank}.pid").write_text(str(os.getpid()))
            if rank == culprit:
                time.sleep(3600)
        time.sleep(0.02)


if __name__ == "__main__":
    start_method, port, folder = sys.argv[1:4]
    culprit = int(sys.argv[4]) if len(sys.argv) > 4 else -1
    if start_method == "driver":
        store = dist.TCPStore("127.0.0.1", int(port), is_master=True, wait_for_workers=False)
    start = "fork" if start_method == "fork" else "spawn"
    mp.start_processes(work, args=(start_method, port, folder, culprit), nprocs=WORLD, start_method=start)
