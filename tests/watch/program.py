"""A small training as users write it: DistributedDataParallel over gloo, with one fault of the user's side if asked.

    python program.py WORLD STEPS [FAULT RANK STEP]

One process imports torch and forks the ranks.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch._dynamo  # the first step would import it, in every rank
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 32
LIMIT = timedelta(seconds=float(os.environ.get("GROUP_SECONDS", "1800")))
"""How long a rank waits in a collective."""


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
        self.act()

    def act(self) -> None:
        """What goes wrong, or takes long."""
        signals = {"kill": 9, "segv": 11, "stop": signal.SIGSTOP}
        if self.name in LONG:
            LONG[self.name]()
        elif self.name == "raise":
            raise ValueError("bad batch 17")
        elif self.name in signals:
            os.kill(os.getpid(), signals[self.name])
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


UPLOAD = "import time; end = time.time() + 8\nwhile time.time() < end: sum(range(1000))"
"""What another process compresses."""


def download(seconds: float) -> None:
    """Waits for a server that answers late."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Timer(seconds, lambda: server.accept()[0].sendall(b"x")).start()
        with socket.create_connection(server.getsockname()) as connection:
            connection.recv(1)


def wait_for_ever() -> None:
    """Takes a lock that it holds."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def poll(seconds: float) -> None:
    """Asks again and again whether another job is done."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.5)


LONG: dict[str, Callable[[], object]] = {
    "sleep": lambda: time.sleep(1000),
    "lock": wait_for_ever,
    "spin": lambda: work(1000),
    "scores": lambda: work(8),
    "uploads": lambda: subprocess.run([sys.executable, "-c", UPLOAD], check=True),
    "downloads": lambda: download(8),
    "polls": lambda: poll(8),
}
"""What one rank does for long, or for ever."""


def save_checkpoint(seconds: float) -> None:
    """As long as a real one takes, on a slow disk."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryFile() as file:
        while time.monotonic() < end:
            file.seek(0)
            file.write(bytes(1 << 20))
            os.fsync(file.fileno())
            time.sleep(0.1)


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
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world, timeout=LIMIT)
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
        if faults.name == "group" and rank != faults.rank and step == faults.step:
            dist.new_group(list(range(world)))
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
