"""A small gloo training with the fault of FAULT, FAULT_RANK and FAULT_STEP in the environment. Writes real logs."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from importlib import import_module

import torch
import torch.distributed as dist

TIMEOUT_S = 10
STEPS = 12


def main() -> None:
    """Trains a few steps; the rank FAULT_RANK has the fault at FAULT_STEP."""
    rank, fault = int(os.environ["RANK"]), os.environ.get("FAULT", "none")
    mine = rank == int(os.environ.get("FAULT_RANK", "-1"))
    at = int(os.environ.get("FAULT_STEP", "4"))
    if mine and fault == "never-starts":
        os._exit(0)
    if mine and fault == "import":
        import_module("a_module_that_is_not_installed")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=int(os.environ.get("TIMEOUT_S", TIMEOUT_S))))
    for step in range(STEPS):
        tensor = torch.ones(1024)
        if mine and step == at:
            tensor = strike(fault, tensor)
        dist.all_reduce(tensor)
        print(f"step {step} rank {rank} loss {1.0 / (step + 1):.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    print("training finished", flush=True)


def strike(fault: str, tensor: torch.Tensor) -> torch.Tensor:
    """The fault itself; marks that it struck with a file, so that a trial without a fault is known as one."""
    with open(os.environ["STRUCK"], "w", encoding="utf-8") as file:
        file.write(fault)
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif fault == "raise":
        raise ValueError("cannot reshape the batch of size 7")
    elif fault == "runtime-error":
        raise RuntimeError("the loss became negative")
    elif fault == "file":
        open("/nosuch/data/part-0007.bin", "rb")  # noqa: SIM115
    elif fault == "memory":
        torch.empty(1 << 50)
    elif fault == "sleep":
        time.sleep(TIMEOUT_S * 3)
    elif fault == "exit":
        sys.exit(0)
    elif fault == "exit-code":
        os._exit(3)
    elif fault == "disk":
        with open("/dev/full", "w", encoding="utf-8") as full:
            full.write("checkpoint")
    elif fault == "shape":
        return torch.ones(512)
    return tensor


if __name__ == "__main__":
    main()
