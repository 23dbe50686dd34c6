"""A training over gloo that knows nothing of doctor: `python attach_job.py FAULT RANK`, as one rank by its environment.

``FAULT`` is what rank ``RANK`` does after some steps; the parent of the ranks may do the rest by a signal.
"""

import ctypes
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

FAULT_STEP = 5


class Samples(Dataset):  # type: ignore[misc]
    """Rows of random numbers; one of them never comes."""

    def __init__(self, stuck: bool) -> None:
        self.stuck = stuck

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.stuck and index >= (FAULT_STEP + 3) * 4:
            with open(os.environ["JOB_FIFO"], "rb") as file:
                file.read()
        return torch.full((256,), float(index % 7))


def spin() -> None:
    """An endless loop."""
    number = 0
    while True:
        number = (number * 31 + 7) % 1000003


def misbehave(fault: str) -> None:
    """What the faulty rank does instead of its collective."""
    if fault == "loop":
        spin()
    elif fault == "sleep":
        time.sleep(3600)
    elif fault == "fifo":
        with open(os.environ["JOB_FIFO"], "rb") as file:
            file.read()
    elif fault == "file":
        with open(os.environ["JOB_FILE"], "w") as file:
            file.write("x")
    elif fault == "input":
        input()
    elif fault == "pdb":
        import pdb

        pdb.set_trace()
    elif fault == "exit":
        os._exit(0)
    elif fault == "broadcast":
        dist.broadcast(torch.zeros(4096), src=(dist.get_rank() + 1) % dist.get_world_size())


def end_with(parent: int) -> None:
    """Also if pytest's time limit ends the test's process, ``parent`` of a rank: no ``finally`` runs then."""
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def main() -> None:
    end_with(int(os.environ["JOB_TEST"]))
    fault, culprit = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    faulty = rank == culprit
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    stuck = fault == "loader" and faulty
    workers = 1 if fault == "loader" or os.environ.get("JOB_WORKERS") else 0
    parent = os.getpid()
    loader = DataLoader(
        Samples(stuck), batch_size=4, num_workers=workers, worker_init_fn=lambda number: end_with(parent)
    )
    for step, batch in enumerate(loader):
        if step == FAULT_STEP:
            with open(f"{os.environ['JOB_FOLDER']}/{rank}.ready", "w"):
                pass
            if faulty:
                misbehave(fault)
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        time.sleep(float(os.environ.get("JOB_PAUSE", "0.01")))


try:
    main()
except RuntimeError:
    if sys.argv[1] != "exit":
        raise
    threading.Event().wait()  # gloo ends the ranks that wait for one that has gone; under other backends they stay
