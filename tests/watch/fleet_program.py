"""A small training over several hosts, with one fault of the user's side if asked.

    python fleet_program.py STEPS [FAULT RANK STEP]

Under torchrun, mpirun or srun each process is a rank. With FORK=N in its environment one process forks the N ranks of
its host, FIRST being the first of WORLD_SIZE: torch is imported once a host.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
import traceback

import torch
import torch._dynamo  # the first step would import it, in every rank
import torch.distributed as dist

WIDTH = 16


def fault(name: str, rank: int, step: int) -> None:
    """What one rank does wrong before a step."""
    if name == "sleep":
        time.sleep(1000)
    elif name == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "raise":
        raise ValueError("bad batch 17")
    elif name == "shape":
        dist.all_reduce(torch.ones(3))
    elif name == "memory":
        hoard = [bytearray(os.urandom(1) * (1 << 20)) for _ in range(4096)]
        print(len(hoard))
    elif name == "mark":  # every rank is here now: whoever breaks something may begin
        open(os.environ["MARK"], "w").close()


def work(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))


def train(steps: int, name: str, at_rank: int, at_step: int) -> None:
    """One rank, by the environment of its launcher."""
    for ours, launchers in (
        ("RANK", ("OMPI_COMM_WORLD_RANK", "SLURM_PROCID")),
        ("WORLD_SIZE", ("OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")),
    ):
        for variable in launchers:
            if ours not in os.environ and variable in os.environ:
                os.environ[ours] = os.environ[variable]
    rank = int(os.environ["RANK"])
    first_start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    if name == "absent" and rank == at_rank:
        threading.Event().wait()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Linear(WIDTH, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pause = float(os.environ.get("PAUSE", "0.01"))
    for step in range(steps):
        if name == "slow" and rank == at_rank:
            time.sleep(2 * pause)
        if (rank, step) == (at_rank, at_step) and first_start:
            fault(name, rank, step)
        time.sleep(pause)
        loss = model(torch.randn(4, WIDTH)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Trains, or forks the ranks of this host and ends with the first exit status that is not 0."""
    steps, name = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    at_rank, at_step = (int(sys.argv[3]), int(sys.argv[4])) if name else (-1, -1)
    torch.set_num_threads(1)
    count = int(os.environ.get("FORK", "0"))
    if not count:
        train(steps, name, at_rank, at_step)
        return
    children = []
    for local_rank in range(count):
        pid = os.fork()
        if not pid:
            os.environ["RANK"] = str(int(os.environ["FIRST"]) + local_rank)
            code = 1
            try:
                train(steps, name, at_rank, at_step)
                code = 0
            except BaseException:  # noqa: BLE001
                sys.excepthook(*sys.exc_info())
                traceback.print_exc()
            finally:
                atexit._run_exitfuncs()
                os._exit(code)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    sys.exit(next((code if code > 0 else 128 - code for code in codes if code), 0))


if __name__ == "__main__":
    main()
