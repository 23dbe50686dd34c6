"""Stage ``loader``: a DataLoader with worker processes, as training scripts use one."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import random
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from doctor.remote.runtime.host_texts import filled
from doctor.smoke.programs.worker.context import STAGE_FUNCTIONS, RankContext
from doctor.smoke.programs.worker.libraries import numpy, torch
from doctor.smoke.programs.worker.processes import die_with_parent
from doctor.smoke.programs.worker.values import digest

LOADER_WORKERS, LOADER_BATCHES, LOADER_BATCH_ROWS = 2, 4, 4
LISTENER, MAX_SOCKET_PATH = len("/listener-xxxxxxxx"), 107
"""Bytes of the path of a socket by which a worker passes its tensors, and of any socket (unix(7), sun_path)."""
ROW_NUMBERS = 1 << 14
"""Numbers in a row: enough that batches need /dev/shm."""


class SampleDataset:
    """Each row begins with what Python's, NumPy's and torch's generator gave in the worker, and with its seed."""

    def __len__(self) -> int:
        return LOADER_BATCHES * LOADER_BATCH_ROWS

    def __getitem__(self, index: int) -> torch.Tensor:
        row = torch.zeros(ROW_NUMBERS, dtype=torch.float64)
        row[0], row[1], row[2] = random.random(), numpy.random.random() if numpy else 0.0, torch.rand(())
        row[3] = torch.utils.data.get_worker_info().seed % (1 << 53)
        return row


def data_share(ctx: RankContext) -> tuple[int, int]:
    """The index of the layout that decides which ranks read the same data, and this rank's share in it.

    Preferred is a layout in which some ranks read the same data and others do not.
    """
    layouts = ctx.plan["layouts"]
    scores = [(layout.get("dp", 1) > 1) + (layout.get("tp", 1) * layout.get("pp", 1) > 1) for layout in layouts]
    index = scores.index(max(scores))
    return index, ctx.rank // layouts[index].get("tp", 1) % layouts[index].get("dp", 1)


def loader_seed(ctx: RankContext) -> int:
    """The DataLoader's base seed: the same on ranks that read the same data, another on all others."""
    return int(ctx.plan["seed"]) * 1000003 + data_share(ctx)[1]


def make_worker_init(parent: int) -> Callable[[int], None]:
    """What each loader worker does first: it ties its life to its rank's, and seeds all generators.

    It inherits from its rank the signal handler that writes its stack.
    """

    def init_worker(number: int) -> None:
        die_with_parent(parent)
        seed = torch.initial_seed() % (1 << 32)
        random.seed(seed)
        if numpy:
            numpy.random.seed(seed)

    return init_worker


def registered(ctx: RankContext, initialize: Callable[[int], None]) -> Callable[[int], None]:
    """``initialize``, after the worker has told the agent its pid: what it leaves in /dev/shm can be removed then."""

    def init_worker(number: int) -> None:
        ctx.emit("child", pid=os.getpid())
        initialize(number)

    return init_worker


@contextlib.contextmanager
def named_leftovers(ctx: RankContext) -> Iterator[None]:
    """Semaphores and the folder of sockets get this rank's pid in their names, for the agent to remove them.

    Workers that are killed have no time to do so. The folder is where multiprocessing would make one of its own, and
    its name as long. Raises: OSError where no socket can be made there: the workers would fail, and the rank wait.
    """
    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    config["semprefix"] = f"/torch_{os.getpid()}_"
    folder = os.path.join(tempfile.gettempdir(), f"pymp-d{os.getpid():07}")
    too_long = len(os.fsencode(folder)) + LISTENER > MAX_SOCKET_PATH
    if too_long and torch.multiprocessing.get_sharing_strategy() == "file_descriptor":
        raise OSError(errno.ENAMETOOLONG, "AF_UNIX path too long")
    ctx.emit("child", pid=os.getpid(), folder=tempfile.gettempdir())
    with contextlib.suppress(FileExistsError):  # of an earlier process: multiprocessing makes one of another name
        os.mkdir(folder, 0o700)
        config["tempdir"] = folder
    try:
        yield
    finally:
        if config.pop("tempdir", None) == folder:
            shutil.rmtree(folder, ignore_errors=True)


def read_batches(ctx: RankContext) -> tuple[torch.Tensor, list[int]]:
    """The first numbers of all rows, and the workers' seeds.

    The loader has no timeout, as in most training scripts: with one, torch would notice a dead worker only at its end.
    """
    loader = torch.utils.data.DataLoader(
        SampleDataset(), batch_size=LOADER_BATCH_ROWS, num_workers=LOADER_WORKERS,
        worker_init_fn=registered(ctx, make_worker_init(os.getpid())), multiprocessing_context="fork",
        generator=torch.Generator().manual_seed(loader_seed(ctx)),
    )  # fmt: skip
    batches = []
    ctx.recorder.mark("input")
    iterator = iter(loader)
    try:
        for batch in iterator:
            ctx.recorder.mark("compute")
            batches.append(batch[:, :4].clone())
            ctx.recorder.step += 1
            # torch gives each worker 5 s to end, and kills it then: no job stalls for longer than that.
            ctx.recorder.mark("input" if len(batches) < LOADER_BATCHES else "start")
    except (ConnectionError, EOFError) as error:
        # The pipe to a worker that was killed can break before torch hears of its end, which is the cause.
        raise RuntimeError(dead_worker(getattr(iterator, "_workers", ())) or str(error)) from error
    rows = torch.cat(batches)
    return rows, sorted({int(seed) for seed in rows[:, 3]})


def dead_worker(workers: Any) -> str:
    """Which worker process was killed, in the words that torch has for it; empty where all live or ended well."""
    for process in workers:
        process.join(1.0)
        code = process.exitcode
        if code:
            signalled = filled("is killed by signal: {0}", signal.strsignal(-code)) if code < 0 else ""
            how = signalled or filled("exited with code {0}", code)
            return filled("DataLoader worker (pid {0}) {1}", process.pid, how)
    return ""


def stage_loader(ctx: RankContext) -> None:
    """Tests the loader's shared memory, and its workers' random numbers."""
    started, text = time.monotonic(), ""
    digests: dict[str, int] = {}
    seeds: list[int] = []
    try:
        with named_leftovers(ctx):
            rows, seeds = read_batches(ctx)
        columns: list[Any] = ["python", "numpy" if numpy else None, "torch"]
        digests = {name: digest(rows[:, column]) for column, name in enumerate(columns) if name}
    except (RuntimeError, OSError) as error:
        # A worker's error comes with its complete traceback; the message is its last line.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        text = filled("{0}; {1}", lines[-1][:600], reached_limit(lines[-1]))
    ctx.recorder.mark("compute")
    layout, share = data_share(ctx)
    ctx.emit(
        "loader", workers=LOADER_WORKERS, digests=digests, seeds=seeds, seconds=round(time.monotonic() - started, 3),
        text=text, layout=layout, dp=share,
    )  # fmt: skip


def reached_limit(text: str) -> str:
    """The limit that an error of the loader is about: of open files, of a file, of processes, else of shared memory."""
    if "Too many open files" in text:
        return filled("ulimit -n is {0}", soft_limit(resource.RLIMIT_NOFILE))
    if "AF_UNIX path too long" in text:
        most = MAX_SOCKET_PATH - LISTENER - len("/pymp-xxxxxxxx")
        return filled("TMPDIR is {0}; sockets need one of {1} characters or fewer", tempfile.gettempdir(), most)
    if "File too large" in text:  # shared memory is a file
        return filled("ulimit -f is {0} bytes", soft_limit(resource.RLIMIT_FSIZE))
    if "Resource temporarily unavailable" in text or "can't start new thread" in text:
        allowed = soft_limit(resource.RLIMIT_NPROC)
        return filled("ulimit -u is {0}; its control group may allow less (pids.max)", allowed)
    return shm_usage()


def soft_limit(resource_kind: int) -> int | str:
    """Of this process, for a message."""
    allowed = resource.getrlimit(resource_kind)[0]
    return "unlimited" if allowed < 0 else allowed


def shm_usage() -> str:
    """The size of /dev/shm and what is free of it, for a message."""
    try:
        stat = os.statvfs("/dev/shm")
    except OSError as error:
        return f"/dev/shm: {error.strerror}"
    size, free = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
    return filled("/dev/shm has {0} MB, {1} MB of them free", f"{size / 1e6:.1f}", f"{free / 1e6:.1f}")


STAGE_FUNCTIONS["loader"] = stage_loader
