"""A small gloo training with the fault of FAULT, FAULT_RANK and FAULT_STEP in the environment. Writes real logs.

With SPAWN=N it starts N ranks with torch.multiprocessing; under mpirun and srun it takes its rank from them. With
RECORDER it leaves the dump of torch's flight recorder in that folder when it fails.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

TIMEOUT_S = int(os.environ.get("TIMEOUT_S", "10"))
STEPS = 12


def main(spawned: int | None = None) -> None:
    """Trains a few steps; the rank FAULT_RANK has the fault at FAULT_STEP."""
    rank = _place(spawned)
    fault = os.environ.get("FAULT", "none")
    mine = rank == int(os.environ.get("FAULT_RANK", "-1"))
    at = int(os.environ.get("FAULT_STEP", "4"))
    if mine:
        _before_start(fault)
    _enter_network(rank)
    torch.set_num_threads(1)
    dist.set_debug_level_from_env()  # the process that forks the ranks has another environment
    report = _reporter(rank)
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT_S))
    try:
        for step in range(STEPS):
            tensor = torch.ones(1024)
            if mine and step == at:
                tensor = recover(fault, tensor) if fault in RECOVERS else strike(fault, tensor)
            if mine and fault == "order" and step == at:
                dist.all_gather([torch.empty(1024) for _ in range(dist.get_world_size())], tensor)
            elif mine and fault == "skip" and step == at:
                continue
            else:
                dist.all_reduce(tensor)
            report(f"step {step} rank {rank} loss {1.0 / (step + 1):.4f}")
        dist.barrier()
    except BaseException:
        _dump_recorder(rank)
        raise
    dist.destroy_process_group()
    report("training finished")


def _place(spawned: int | None) -> int:
    """The rank, from torch.multiprocessing, Open MPI, Slurm or the environment."""
    sources = ("OMPI_COMM_WORLD_", "RANK", "SIZE", "LOCAL_RANK"), ("SLURM_", "PROCID", "NTASKS", "LOCALID")
    if spawned is not None:
        os.environ.update(RANK=str(spawned), WORLD_SIZE=os.environ["SPAWN"], LOCAL_RANK=str(spawned))
    elif "RANK" not in os.environ:
        prefix, rank, size, local = next(row for row in sources if row[0] + row[1] in os.environ)
        names = zip(("RANK", "WORLD_SIZE", "LOCAL_RANK"), (rank, size, local), strict=True)
        os.environ.update({name: os.environ[prefix + key] for name, key in names})
    return int(os.environ["RANK"])


def _reporter(rank: int) -> Callable[[str], None]:
    """How progress is printed: plainly, with the time, or as a bar that rewrites its line."""
    style = os.environ.get("STYLE", "plain")
    if style == "logging":
        logging.basicConfig(
            format="%(asctime)s %(levelname)s [%(name)s] %(message)s", level=logging.INFO, stream=sys.stdout
        )
        report: Callable[[str], None] = logging.getLogger(f"train.{rank}").info
        return report
    end = "\r" if style == "bar" else "\n"
    return lambda text: print(text, end=end, flush=True)


def _before_start(fault: str) -> None:
    if fault == "never-starts":
        os._exit(0)
    if fault == "import":
        import_module("a_module_that_is_not_installed")
    if fault == "wrong-master":
        os.environ["MASTER_ADDR"] = "127.0.0.99"
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
        _mark(fault)
    if fault == "wrong-interface":
        os.environ["GLOO_SOCKET_IFNAME"] = "bond9"
        _mark(fault)


def _enter_network(rank: int) -> None:
    """The network namespace of the rank, where NETWORKS names them."""
    name = os.environ.get("NETWORKS")
    if name:
        handle = os.open(f"/run/netns/{name}{rank}", os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(handle, 0x40000000):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(handle)


def _dump_recorder(rank: int) -> None:
    folder = os.environ.get("RECORDER")
    if folder:
        c10d: Any = import_module("torch._C._distributed_c10d")
        as_json = os.environ.get("RECORDER_FORM") == "json"
        data = c10d._dump_fr_trace_json() if as_json else c10d._dump_fr_trace()
        suffix = ".json" if as_json else ""
        Path(folder, f"nccl_trace_rank_{rank}{suffix}").write_bytes(data)


RECOVERS = frozenset({"caught", "warns", "late", "restart", "child", "reads-again"})
"""What goes wrong in a run that ends well."""


def recover(fault: str, tensor: torch.Tensor) -> torch.Tensor:
    """Trouble that the program, or its launcher, overcomes."""
    _mark(fault)
    if fault == "caught":
        try:
            open("/nosuch/data/part-0007.bin", "rb")  # noqa: SIM115
        except OSError:
            logging.getLogger("data").exception("cannot read part 7, trying the copy")
    elif fault == "reads-again":
        for attempt in range(3):
            print(
                f"WARNING: attempt {attempt + 1}/3 failed: [Errno 104] Connection reset by peer, retrying", flush=True
            )
    elif fault == "warns":
        warnings.warn("the old format of checkpoints will go; OSError: use the new one", FutureWarning, stacklevel=1)
        print("WARNING: no InfiniBand, falling back to sockets; timeout 600 s", file=sys.stderr, flush=True)
    elif fault == "late":
        time.sleep(TIMEOUT_S / 3)
    elif fault == "child":
        subprocess.run([sys.executable, "-c", "raise ValueError('no such tool')"], check=False)
    elif fault == "restart" and os.environ.get("TORCHELASTIC_RESTART_COUNT", "1") == "0":
        raise ValueError("the first attempt fails")
    return tensor


def _mark(fault: str) -> None:
    """Marks that the fault struck, so that a trial without a fault is known as such."""
    Path(os.environ["STRUCK"]).write_text(fault, encoding="utf-8")


def strike(fault: str, tensor: torch.Tensor) -> torch.Tensor:  # noqa: C901, PLR0912 - one branch for each fault
    """The fault itself."""
    _mark(fault)
    signals = {"kill": signal.SIGKILL, "segv": signal.SIGSEGV, "term": signal.SIGTERM, "stop": signal.SIGSTOP}
    if fault in signals:
        os.kill(os.getpid(), signals[fault])
    elif fault == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
    elif fault == "abort":
        os.abort()
    elif fault == "raise":
        raise ValueError("cannot reshape the batch of size 7")
    elif fault == "assert":
        assert tensor.sum() < 0, "the mask is empty"
    elif fault == "runtime-error":
        raise RuntimeError("the loss became negative")
    elif fault == "nan":
        loss = torch.tensor(float("nan"))
        if not torch.isfinite(loss):
            raise FloatingPointError("Loss is nan, stopping training")
    elif fault == "file":
        open("/nosuch/data/part-0007.bin", "rb")  # noqa: SIM115
    elif fault == "memory":
        torch.empty(1 << 50)
    elif fault == "oom":
        _exhaust_memory()
    elif fault == "sleep":
        time.sleep(TIMEOUT_S * 3)
    elif fault == "exit":
        sys.exit(0)
    elif fault == "early":
        print("training finished", flush=True)
        os._exit(0)
    elif fault == "exit-code":
        os._exit(3)
    elif fault == "disk":
        with open("/dev/full", "w", encoding="utf-8") as full:
            full.write("checkpoint")
    elif fault == "shm":
        _exhaust_shared_memory()
    elif fault == "drop":
        rules = "add table inet d; add chain inet d o { type filter hook output priority 0; policy drop; }"
        subprocess.run(["nft", rules], check=True)
    elif fault == "shape":
        return torch.ones(512)
    elif fault == "larger":
        return torch.ones(2048)
    return tensor


def _exhaust_memory() -> None:
    """Fills the memory of the control group CGROUP until the kernel kills this process."""
    folder = Path(os.environ["CGROUP"])
    folder.mkdir(exist_ok=True)
    (folder / "memory.limit_in_bytes").write_text("64M")
    (folder / "cgroup.procs").write_text(str(os.getpid()))
    block = mmap.mmap(-1, 512 << 20)
    for offset in range(0, len(block), 4096):
        block[offset] = 1


def _exhaust_shared_memory() -> None:
    """A data loader whose batches do not fit into a /dev/shm of 1 MB, in a mount namespace of this rank."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x00020000):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run("mount --make-rprivate / && mount -t tmpfs -o size=1m none /dev/shm", shell=True, check=True)
    from torch.utils.data import DataLoader, TensorDataset

    batches = DataLoader(TensorDataset(torch.zeros(64, 100_000)), batch_size=32, num_workers=1)
    for _ in batches:
        pass


if __name__ == "__main__":
    if "SPAWN" in os.environ:
        import torch.multiprocessing as mp

        mp.start_processes(main, nprocs=int(os.environ["SPAWN"]), start_method=os.environ.get("SPAWN_BY", "spawn"))
    else:
        main()
