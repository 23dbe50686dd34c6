"""A small training as users write it: DistributedDataParallel over gloo, with one fault of the user's side if asked.

    python program.py WORLD STEPS [FAULT RANK STEP]

One process imports torch and forks the ranks.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch._dynamo  # the first step would import it, in every rank
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 32


class Faults:
    """What one rank does wrong in one step."""

    def __init__(self, name: str, rank: int, step: int) -> None:
        self.name, self.rank, self.step = name, rank, step

    def here(self, name: str, rank: int, step: int) -> bool:
        return (name, rank, step) == (self.name, self.rank, self.step)

    def before(self, rank: int, step: int) -> None:
        """Called at the beginning of each step."""
        if self.name == "say-steps" and rank == self.rank and step == 5:
            os.write(1, f"rank {rank} is in step {step}\n".encode())
        if self.name == "slow" and rank == self.rank:
            work(0.03)
        if (rank, step) != (self.rank, self.step):
            return
        if self.name == "sleep":
            time.sleep(1000)
        elif self.name == "spin":
            work(1000)
        elif self.name == "raise":
            raise ValueError("bad batch 17")
        elif self.name in ("kill", "segv", "stop"):
            os.kill(os.getpid(), {"kill": 9, "segv": 11, "stop": signal.SIGSTOP}[self.name])
        elif self.name == "exit":
            sys.exit(0)
        elif self.name == "shape":
            dist.all_reduce(torch.ones(3))
        elif self.name == "another":
            dist.broadcast(torch.ones(WIDTH), 0)


def work(seconds: float) -> None:
    """Computes."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))


def save_checkpoint(seconds: float) -> None:
    """As long as a real one takes."""
    time.sleep(seconds)


class Batches(TensorDataset):  # type: ignore[misc]
    """Data whose loading one rank gets stuck in."""

    stuck_at = -1

    def __getitem__(self, index: int) -> object:
        if index == self.stuck_at:
            time.sleep(1000)
        return super().__getitem__(index)


def train(rank: int, world: int, steps: int, faults: Faults, port: int) -> None:
    """One rank."""
    if faults.here("absent", rank, faults.step):
        time.sleep(1000)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1))
    model = torch.nn.parallel.DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    halves = [dist.new_group(list(range(world))) for _ in range(2)]
    data = Batches(torch.randn(steps * 4, WIDTH, generator=torch.Generator().manual_seed(rank)))
    if faults.here("input", rank, faults.step):
        data.stuck_at = faults.step * 4
    for step, (batch,) in enumerate(DataLoader(data, batch_size=4)):
        faults.before(rank, step)
        if faults.name == "save-all" and step == faults.step:
            save_checkpoint(8)
        if faults.here("save-one", rank, step):
            save_checkpoint(8)
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        order = reversed(halves) if faults.here("order", rank, step) else halves
        for group in order:
            dist.all_reduce(loss.detach().clone(), group=group)
    dist.barrier()
    digest = sum(float(parameter.detach().double().sum()) for parameter in model.parameters())
    os.write(1, f"rank {rank} of {world} ends with {digest!r}\n".encode())  # in one piece, beside the others'
    dist.destroy_process_group()


def free_port() -> int:
    """A port that nobody uses."""
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def main() -> None:
    """Forks the ranks, and ends with the first exit status that is not 0."""
    world, steps = int(sys.argv[1]), int(sys.argv[2])
    faults = Faults(sys.argv[3], int(sys.argv[4]), int(sys.argv[5])) if len(sys.argv) > 3 else Faults("", -1, -1)
    torch.set_num_threads(1)
    port, children = free_port(), []
    for rank in range(world):
        pid = os.fork()
        if not pid:
            import atexit
            import traceback

            code = 1
            try:
                train(rank, world, steps, faults, port)
                code = 0
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 1
            except BaseException:  # noqa: BLE001
                sys.excepthook(*sys.exc_info())
                traceback.print_exc()
            finally:
                atexit._run_exitfuncs()
                sys.stdout.flush()
                os._exit(code)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    sys.exit(next((code if code > 0 else 128 - code for code in codes if code), 0))


if __name__ == "__main__":
    main()
