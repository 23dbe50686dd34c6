"""More small jobs, written without a look at how doctor decides: `further_ways.py KIND FOLDER`, under torchrun.

Kinds of the first half hang or train wrongly, as in the public threads that their docstrings name; those of the second
half are healthy. The moment at which a job goes wrong is the time of the file ``FOLDER/struck``.
"""

import asyncio
import concurrent.futures
import contextlib
import ctypes
import datetime
import fcntl
import functools
import gc
import logging
import math
import multiprocessing
import os
import queue
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

KIND, FOLDER = sys.argv[1], Path(sys.argv[2])
LONG = float(os.environ.get("LONG", "85"))
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
FORK = multiprocessing.get_context("fork")


def struck():
    (FOLDER / "struck").touch()


def start(seconds=3600):
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))
    torch.set_num_threads(1)
    torch.manual_seed(7)


def mlp(width=24):
    return nn.Sequential(nn.Linear(12, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 3))


def one_step(model, optimizer, rows=None, scale=1.0):
    rows = torch.randn(6, 12) if rows is None else rows
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(rows), (rows.sum(1) > 0).long()) * scale
    loss.backward()
    optimizer.step()
    time.sleep(0.03)
    return loss.detach()


def trained(steps=30, seconds=3600, **options):
    """Some steps of DDP; what comes then is the kind's."""
    start(seconds)
    model = DistributedDataParallel(mlp(), **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(100 + RANK)
    for _ in range(steps):
        one_step(model, optimizer)
    return model, optimizer


def goes_on(model, optimizer, steps=30):
    for _ in range(steps):
        one_step(model, optimizer)


# ---- collectives


def zero3_dummy_chunk():
    """ms-swift #8102: a rank's dummy forward is not part of the loss, so that its backward has fewer collectives."""
    from torch.distributed.fsdp import fully_shard

    start()
    model = mlp()
    for part in (*[layer for layer in model if isinstance(layer, nn.Linear)], model):
        fully_shard(part, mesh=dist.init_device_mesh("cpu", (WORLD,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(40):
        losses = []
        for chunk in range(2):
            loss = model(torch.randn(4, 12)).square().mean()
            if step == 20 and RANK == 1 and chunk == 1:
                struck()
            else:
                losses.append(loss)
        sum(losses).backward()
        optimizer.step()
        optimizer.zero_grad()


def fsdp_unused_expert():
    """A module that is wrapped by itself gets no token on one rank."""
    from torch.distributed.fsdp import fully_shard

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.experts = nn.Linear(12, 12), nn.ModuleList([nn.Linear(12, 12) for _ in range(3)])

        def forward(self, rows, chosen):
            out = self.stem(rows)
            for number in chosen:
                out = out + self.experts[number](out)
            return out

    start()
    model = Experts()
    for part in (*model.experts, model):
        fully_shard(part, mesh=dist.init_device_mesh("cpu", (WORLD,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(40):
        chosen = [0, 1, 2]
        if step == 20 and RANK == 2:
            struck()
            chosen = [0, 2]
        model(torch.randn(4, 12), chosen).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)


def entropy_gather():
    """trl #3933: what is gathered has another length on each rank."""
    trained()
    values = torch.rand(40 + 3 * RANK)
    out = torch.zeros(len(values) * WORLD)
    struck()
    dist.all_gather_into_tensor(out, values)
    dist.barrier()


def state_file_exists():
    """KempnerForge #49: on a file system that is not coherent, only one rank sees the file."""
    trained()
    if RANK == 0:
        (FOLDER / "train_state.pt").touch()
        struck()
        dist.broadcast_object_list([{"step": 30}], src=0)
    goes_on(*remake())


def remake():
    model = DistributedDataParallel(mlp())
    torch.manual_seed(100 + RANK)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def finalizes_on_rank_0():
    """miles #1763: the checkpoint's finalization is a collective, and only rank 0 calls it."""
    model, optimizer = trained()
    if RANK == 0:
        struck()
        dist.all_gather_object([None] * WORLD, {"files": 3})
    goes_on(model, optimizer)


def forked_writer():
    """Megatron-LM #2422: a writer that was forked while a thread held a lock never ends, and is joined."""
    model, optimizer = trained()
    if RANK == 0:
        lock = threading.Lock()
        taken = threading.Event()

        def hold():
            with lock:
                taken.set()
                time.sleep(1)

        threading.Thread(target=hold, daemon=True).start()
        taken.wait()
        writer = FORK.Process(target=lambda: lock.acquire() and lock.release())
        writer.start()
        struck()
        writer.join()
    goes_on(model, optimizer)


def skips_on_overflow():
    """Each rank decides for itself whether the gradients have overflowed."""
    start()
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(60):
        optimizer.zero_grad()
        loss = model(torch.randn(6, 12)).square().mean() * (math.inf if step == 30 and RANK == 1 else 1)
        loss.backward()
        if not torch.isfinite(loss):
            struck()
            continue
        norm = sum(weight.grad.square().sum() for weight in model.parameters())
        dist.all_reduce(norm)
        for weight in model.parameters():
            dist.all_reduce(weight.grad)
            weight.grad /= WORLD
        optimizer.step()


def expert_counts():
    """One rank counts wrongly what it gets of the others' tokens."""
    trained()
    sends = [2] * WORLD
    takes = [2] * WORLD if RANK != 2 else [3] * WORLD
    for step in range(20):
        wrong = step == 10
        if wrong:
            struck()
        out = torch.zeros(sum(takes) if wrong else 2 * WORLD, 4)
        dist.all_to_all_single(out, torch.ones(2 * WORLD, 4), takes if wrong else sends, sends)
    dist.barrier()


def monitored():
    """A barrier with a limit, and a rank that waits for a program which waits for its input."""
    trained()
    if RANK == 2:
        read, write = os.pipe()
        struck()
        subprocess.run(["cat"], stdin=read, stdout=subprocess.DEVNULL, check=False)
        os.close(write)
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=600))


def unpicklable():
    """What one rank wants to gather cannot be pickled; its error is logged."""
    model, optimizer = trained()
    box = [None] * WORLD if RANK == 0 else None
    try:
        if RANK == 1:
            struck()
        dist.gather_object({"metric": (lambda: 1) if RANK == 1 else 1}, box, dst=0)
    except Exception:
        logging.exception("no metrics")
    goes_on(model, optimizer)


def subgroups_of_some():
    model, optimizer = trained()
    if RANK != 3:
        struck()
        dist.new_subgroups(group_size=2)
    goes_on(model, optimizer)


def dcp_on_rank_0():
    """The habit of `if rank == 0: save`, with a checkpoint that all must save."""
    import torch.distributed.checkpoint as dcp

    model, optimizer = trained()
    if RANK == 0:
        struck()
        dcp.save({"model": model.state_dict()}, checkpoint_id=str(FOLDER / "dcp"))
    goes_on(model, optimizer)


def consolidates_on_rank_0():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    start()
    model = DistributedDataParallel(mlp())
    torch.manual_seed(100 + RANK)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
    goes_on(model, optimizer)
    if RANK == 0:
        struck()
        optimizer.consolidate_state_dict(to=0)
    goes_on(model, optimizer)


def unused_parameter():
    """The last step of one rank does not use a part of the model, and find_unused_parameters is off."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(12, 3), nn.Linear(12, 3)

        def forward(self, rows, both=True):
            return self.first(rows) + (self.second(rows) if both else 0)

    start()
    model = DistributedDataParallel(Two())
    torch.manual_seed(100 + RANK)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(30):
        both = step < 29 or RANK != 1
        if not both:
            struck()
        model(torch.randn(6, 12), both).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.all_reduce(torch.ones(5))


def returns_on_nan():
    model, optimizer = trained(5)
    for step in range(60):
        loss = one_step(model, optimizer)
        if RANK == 2 and step == 30:
            loss = loss * math.nan
        if torch.isnan(loss):
            struck()
            return
        seen = loss.clone()
        dist.all_reduce(seen)


def evaluates_at_other_steps():
    model, optimizer = trained(5)
    every = 11 if RANK == 1 else 10
    for step in range(1, 60):
        one_step(model, optimizer)
        if step % every == 0:
            struck()
            score = torch.rand(1)
            dist.all_reduce(score)
            dist.broadcast(score, src=0)


def pipeline_order():
    """The middle stage wants a gradient before it has sent what the last stage needs for it."""
    trained()
    rows = torch.zeros(4)
    struck()
    if RANK == 0:
        dist.send(rows, dst=1)
        dist.recv(rows, src=1)
    elif RANK == 1:
        dist.recv(rows, src=0)
        dist.recv(rows, src=2)
        dist.send(rows, dst=2)
    else:
        dist.recv(rows, src=1)
        dist.send(rows, dst=1)


def one_receive_too_many():
    trained()
    struck()
    if RANK == 1:
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(4), 2)])
    elif RANK == 2:
        works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, torch.zeros(4), 1) for _ in range(2)])
    else:
        works = []
    for work in works:
        work.wait()
    dist.barrier()


def key_never_set():
    """A barrier of the program's own, over the store; one rank writes another key."""
    trained()
    store = dist.distributed_c10d._get_default_store()
    store.set(f"done/{RANK if RANK != 2 else 'two'}", "1")
    if RANK == 1:
        struck()
        store.wait(["done/0", "done/1", "done/2"], datetime.timedelta(hours=1))
    dist.barrier()


def key_of_most():
    """Rank 0 leaves out the branch in which it sets the key that the others wait for."""
    trained()
    store = dist.distributed_c10d._get_default_store()
    struck()
    if RANK:
        store.wait(["saved"], datetime.timedelta(hours=1))
    dist.barrier()


def second_rpc():
    """A function that another rank calls never returns."""
    start()
    from torch.distributed import rpc

    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{FOLDER}/rpc", rpc_timeout=0)
    rpc.init_rpc(f"w{RANK}", rank=RANK, world_size=WORLD, rpc_backend_options=options)
    model, optimizer = remake()
    goes_on(model, optimizer)
    if RANK == 1:
        struck()
        rpc.rpc_sync("w0", never_returns)
    goes_on(model, optimizer)


def never_returns():
    threading.Event().wait()


def reduces_on_two_threads():
    """A hook of a background thread uses the group in which the main thread trains; on one rank it is late."""
    model, optimizer = trained()
    if RANK == 1:
        struck()
        time.sleep(1)
        side = threading.Thread(target=lambda: dist.all_reduce(torch.ones(3)))
        side.start()
        side.join()
    goes_on(model, optimizer)


class ReadSlowly(Dataset):
    """Rows that are read while the main thread is in its backward pass."""

    def __len__(self):
        return 600

    def __getitem__(self, index):
        time.sleep(0.1)
        return torch.full((12,), index / 600)


def feeder_ends():
    """A thread that feeds batches from a loader ends on one rank; the others' go on meanwhile."""
    start()
    model = DistributedDataParallel(mlp())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = queue.Queue(2)

    def feed():
        for number, rows in enumerate(DataLoader(ReadSlowly(), batch_size=2)):
            if RANK == 1 and number == 8:
                struck()
                return
            batches.put(rows)

    threading.Thread(target=feed, daemon=True).start()
    for _ in range(300):
        one_step(model, optimizer, batches.get())


# ---- a rank that is held up


class Tokens(Dataset):
    """Each item logs, in a worker that was forked while the logger's lock was held."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        logging.getLogger("data").warning("item %d", index)
        return torch.randn(12)


def forked_log_lock():
    """pytorch #1355, allennlp #4330: a worker that was forked with a lock that is taken."""
    model, optimizer = trained()
    if RANK == 1:
        lock, taken = threading.Lock(), threading.Event()
        handler = logging.NullHandler()
        handler.handle = lambda _record: lock.acquire() and lock.release()  # a lock that no fork makes anew
        logging.getLogger("data").addHandler(handler)

        def hold():
            with lock:
                taken.set()
                time.sleep(2)

        threading.Thread(target=hold, daemon=True).start()
        taken.wait()
    struck()
    workers = {"num_workers": 1, "multiprocessing_context": "fork"} if RANK == 1 else {}
    for rows in DataLoader(Tokens(), batch_size=6, **workers):
        one_step(model, optimizer, rows)


def holds_gil():
    """A call into C that waits and keeps the interpreter's lock."""
    model, optimizer = trained()
    if RANK == 2:
        mutex, libc = (ctypes.c_char * 64)(), ctypes.PyDLL(None)
        libc.pthread_mutex_lock(mutex)
        struck()
        libc.pthread_mutex_lock(mutex)
    goes_on(model, optimizer)


def mutex_of_c():
    model, optimizer = trained()
    if RANK == 1:
        mutex, libc = (ctypes.c_char * 64)(), ctypes.CDLL(None)
        libc.pthread_mutex_lock(mutex)
        struck()
        libc.pthread_mutex_lock(mutex)
    goes_on(model, optimizer)


def full_queue():
    """The process that takes from the queue has ended."""
    model, optimizer = trained()
    if RANK == 0:
        results = FORK.Queue(2)
        taker = FORK.Process(target=results.get)
        taker.start()
        struck()
        for number in range(10):
            results.put(bytes(1000) * number)
    goes_on(model, optimizer)


def prefetch_thread():
    """A thread reads from a server that has taken the request and answers nothing; the main thread waits for it."""
    model, optimizer = trained()
    if RANK == 2:
        server = socket.create_server(("127.0.0.1", 0))
        silent = FORK.Process(target=lambda: (server.accept(), time.sleep(10**6)))
        silent.start()
        client = socket.create_connection(server.getsockname())
        server.close()
        shards = queue.Queue()
        threading.Thread(target=lambda: shards.put(client.recv(10)), daemon=True).start()
        struck()
        shards.get()
    goes_on(model, optimizer)


def udp_answer():
    """As a resolver without a limit of time: the answer to a datagram never comes."""
    model, optimizer = trained()
    if RANK == 0:
        asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        asked.bind(("127.0.0.1", 0))
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        client.connect(asked.getsockname())
        client.send(b"name")
        struck()
        client.recv(512)
    goes_on(model, optimizer)


def database_locked():
    """Rank 0 keeps a transaction open while it waits for the others."""
    model, optimizer = trained()
    file = FOLDER / "index.db"
    if RANK == 0:
        base = sqlite3.connect(file, isolation_level=None)
        base.execute("create table t (a)")
        base.execute("begin exclusive")
    dist.barrier()
    if RANK == 1:
        struck()
        sqlite3.connect(file, timeout=100000).execute("select * from t").fetchall()
    goes_on(model, optimizer)


def child_never_ends():
    model, optimizer = trained()
    if RANK == 0:
        struck()
        subprocess.run(["sleep", "100000"], check=False)
    goes_on(model, optimizer)


def handler_locks():
    """A signal's handler wants the lock that the main thread holds."""
    model, optimizer = trained()
    if RANK == 1:
        lock = threading.Lock()
        signal.signal(signal.SIGUSR1, lambda *_: lock.acquire())
        struck()
        with lock:
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.1)
    goes_on(model, optimizer)


def import_lock():
    """A module whose import waits for a thread that imports the same module."""
    model, optimizer = trained()
    if RANK == 2:
        text = "import threading\ndef load():\n    from plugin import Name\n"
        text += "t = threading.Thread(target=load)\nt.start()\nt.join()\nName = 1\n"
        (FOLDER / "plugin.py").write_text(text)
        sys.path.insert(0, str(FOLDER))
        struck()
        import plugin  # noqa: F401
    goes_on(model, optimizer)


def asks_user():
    """`Trust remote code? [y/N]`"""
    model, optimizer = trained()
    if RANK == 0:
        struck()
        os.dup2(os.pipe()[0], 0)
        input("Trust remote code? [y/N] ")
    goes_on(model, optimizer)


def pool_at_exit():
    """At the end of the interpreter, a pool's thread is joined that waits for what never comes."""
    model, optimizer = trained()
    if RANK == 1:
        concurrent.futures.ThreadPoolExecutor(1).submit(threading.Event().wait)
        struck()
        sys.exit(0)
    goes_on(model, optimizer)


def lock_in_finalizer():
    """A finalizer that the garbage collection calls wants a lock that is held."""
    model, optimizer = trained()
    if RANK == 1:
        lock = threading.Lock()

        class Handle:
            def __del__(self):
                with lock:
                    pass

        first, second = Handle(), Handle()
        first.other, second.other = second, first
        del first, second
        struck()
        with lock:
            gc.collect()
    goes_on(model, optimizer)


def awaits_event():
    """An agent's loop in asyncio waits for an event that nobody sets."""
    model, optimizer = trained()
    if RANK == 0:
        struck()
        asyncio.run(asyncio.wait_for(forever(), None))
    goes_on(model, optimizer)


async def forever():
    await asyncio.Event().wait()


def pool_of_processes():
    """A task of a pool of processes is stuck in a read."""
    model, optimizer = trained()
    if RANK == 2:
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=FORK) as pool:
            read, _ = os.pipe()
            struck()
            list(pool.map(functools.partial(os.read, read), [10, 10]))
    goes_on(model, optimizer)


def stopped_service():
    """The logging service of rank 0 (as wandb-core) is stopped."""
    model, optimizer = trained()
    if RANK == 0:
        mine, other = socket.socketpair()
        service = FORK.Process(target=lambda: [mine.close(), [other.sendall(other.recv(100)) for _ in iter(int, 1)]])
        service.start()
        other.close()
        mine.sendall(b"metrics")
        mine.recv(100)
        os.kill(service.pid, signal.SIGSTOP)
        struck()
        mine.sendall(b"metrics")
        mine.recv(100)
    goes_on(model, optimizer)


def locks_itself_out():
    """filelock: two handles of one file in one process."""
    model, optimizer = trained()
    if RANK == 2:
        handles = [(FOLDER / "model.lock").open("w") for _ in range(2)]
        fcntl.flock(handles[0], fcntl.LOCK_EX)
        struck()
        fcntl.flock(handles[1], fcntl.LOCK_EX)
    goes_on(model, optimizer)


def baton_left():
    """torch's extensions: an earlier build left its baton, and all ranks wait for it to go."""
    from torch.utils.file_baton import FileBaton

    model, optimizer = trained()
    (FOLDER / "lock").touch()
    dist.barrier()
    struck()
    baton = FileBaton(str(FOLDER / "lock"))
    baton.wait()
    goes_on(model, optimizer)


def condition_missed():
    """A notification that came before the wait."""
    model, optimizer = trained()
    if RANK == 1:
        ready = threading.Condition()
        with ready:
            ready.notify_all()
        struck()
        with ready:
            ready.wait()
    goes_on(model, optimizer)


def waits_at_rendezvous():
    """A second process group, as of a weight update, whose other side never comes."""
    model, optimizer = trained()
    if RANK == 0:
        struck()
        dist.TCPStore("127.0.0.1", 0, 2, True, datetime.timedelta(hours=1))
    goes_on(model, optimizer)


def retries_for_ever():
    """A request to a port where nothing listens, again and again, each second; no limit."""
    model, optimizer = trained(seconds=100)
    if RANK == 2:
        struck()
        while True:
            try:
                socket.create_connection(("127.0.0.1", 1), timeout=1)
            except OSError:
                time.sleep(1)
    goes_on(model, optimizer)


def livelock():
    """A while loop over a condition that only another rank could change, with a sleep."""
    model, optimizer = trained(seconds=100)
    state = {"done": False}
    if RANK == 1:
        struck()
        while not state["done"]:
            time.sleep(0.01)
    goes_on(model, optimizer)


def killed_rank():
    model, optimizer = trained()
    if RANK == 1:
        struck()
        os.kill(os.getpid(), signal.SIGKILL)
    goes_on(model, optimizer)


# ---- wrong, and no hang


def lr_of_one():
    start()
    model = DistributedDataParallel(mlp())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2 if RANK == 2 else 1e-3)
    torch.manual_seed(100 + RANK)
    struck()
    goes_on(model, optimizer)


def sum_for_mean():
    """Gradients are added up by hand, and not divided."""
    start()
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    torch.manual_seed(100 + RANK)
    struck()
    for _ in range(30):
        optimizer.zero_grad()
        model(torch.randn(6, 12)).square().mean().backward()
        for weight in model.parameters():
            dist.all_reduce(weight.grad)
        optimizer.step()
        time.sleep(0.02)


def stale_weights():
    """One rank loads another checkpoint after the model was wrapped."""
    start()
    model = DistributedDataParallel(mlp())
    if RANK == 1:
        torch.manual_seed(99)
        model.module.load_state_dict(mlp().state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(100 + RANK)
    struck()
    goes_on(model, optimizer)


def same_data():
    """A loader that shuffles with the same seed on each rank; DistributedSampler was forgotten."""
    start()
    model = DistributedDataParallel(mlp())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.randn(256, 12)), batch_size=8, shuffle=True)
    struck()
    for (rows,) in loader:
        one_step(model, optimizer, rows)


def sampler_seed():
    """Each rank shuffles with a seed of its own: shards overlap."""
    start()
    model = DistributedDataParallel(mlp())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(240, 12))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, seed=RANK))
    struck()
    for (rows,) in loader:
        one_step(model, optimizer, rows)


def not_wrapped():
    """The program calls model.module: no gradient is reduced."""
    start()
    model = DistributedDataParallel(mlp())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(100 + RANK)
    struck()
    goes_on(model.module, optimizer)


def fsdp_other_seed():
    """torchtitan #166: replicas are made from different seeds, and nothing makes them equal."""
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(RANK)
    model = mlp()
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    for part in (*[layer for layer in model if isinstance(layer, nn.Linear)], model):
        fully_shard(part, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    struck()
    goes_on(model, optimizer)


class HalfColumns(nn.Module):
    """A layer whose input columns two ranks share."""

    def __init__(self, group, draw=None):
        super().__init__()
        self.weights, self.group, self.draw = nn.Linear(8, 16), group, draw

    def forward(self, rows):
        if self.draw is not None:  # the dropout of the program's own
            rows = rows * (torch.rand(rows.shape, generator=self.draw) < 0.9)
        out = self.weights(rows[:, RANK % 2 * 8 :][:, :8])
        total = out.detach().clone()
        dist.all_reduce(total, group=self.group)
        return out + (total - out.detach())


def tensor_parallel(draw):
    start()
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    peers = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    torch.manual_seed(RANK % 2)
    model = HalfColumns(pairs[RANK // 2], draw)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(RANK // 2)
    struck()
    for _ in range(40):
        optimizer.zero_grad()
        model(torch.randn(8, 16, generator=data)).square().mean().backward()
        for weight in model.parameters():
            dist.all_reduce(weight.grad, group=peers[RANK % 2])
            weight.grad /= 2
        optimizer.step()
        time.sleep(0.03)


def mask_in_forward():
    """The mask of a layer that two ranks share comes from a generator that is seeded with the rank."""
    tensor_parallel(torch.Generator().manual_seed(RANK))


def global_dropout():
    """The same by the global generator: its seed is the rank's."""
    start()
    pair = [dist.new_group([0, 1]), dist.new_group([2, 3])][RANK // 2]
    peers = [dist.new_group([0, 2]), dist.new_group([1, 3])][RANK % 2]
    torch.manual_seed(RANK % 2)
    model = HalfColumns(pair)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(RANK // 2)
    torch.manual_seed(1000 + RANK)
    struck()
    for _ in range(40):
        optimizer.zero_grad()
        rows = nn.functional.dropout(torch.randn(8, 16, generator=data), 0.1)
        model(rows).square().mean().backward()
        for weight in model.parameters():
            dist.all_reduce(weight.grad, group=peers)
            weight.grad /= 2
        optimizer.step()
        time.sleep(0.03)


# ---- healthy


def tokenizes_first():
    """Rank 0 prepares the data with children, the others wait."""
    start()
    if RANK == 0:
        with FORK.Pool(2) as pool:
            pool.map(busy, [LONG / 2] * 4)
    dist.barrier()
    model, optimizer = remake()
    goes_on(model, optimizer)


def busy(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
        time.sleep(0.01)


def baton_of_compile():
    """torch's extensions: one rank compiles, the others look for its baton."""
    from torch.utils.file_baton import FileBaton

    model, optimizer = trained()
    if RANK == 0:
        (FOLDER / "lock").touch()
    dist.barrier()
    if RANK == 0:
        code = f"import time\ne=time.monotonic()+{LONG}\nwhile time.monotonic()<e: sum(range(1000))"
        subprocess.run([sys.executable, "-c", code], check=True)
        (FOLDER / "lock").unlink()
    else:
        FileBaton(str(FOLDER / "lock")).wait()
    goes_on(model, optimizer)


def slow_answer():
    """A reward model that takes its time."""
    model, optimizer = trained()
    if RANK == 1:
        server = socket.create_server(("127.0.0.1", 0))

        def answer():
            taker = server.accept()[0]
            time.sleep(LONG)
            taker.sendall(b"1")

        FORK.Process(target=answer).start()
        client = socket.create_connection(server.getsockname())
        client.sendall(b"score")
        client.recv(1)
    goes_on(model, optimizer)


def key_comes_late():
    """Rank 0 prepares the data before it sets the key that the others wait for."""
    model, optimizer = trained()
    store, begun = dist.distributed_c10d._get_default_store(), time.monotonic()
    while RANK == 0 and time.monotonic() - begun < LONG:
        sorted(random.random() for _ in range(9999))
    store.set("prepared", "1") if RANK == 0 else store.wait(["prepared"], datetime.timedelta(hours=1))
    goes_on(model, optimizer)


def backs_off():
    """A download that is refused, and tried again after 5, 10, 20, 40 s."""
    model, optimizer = trained()
    if RANK == 2:
        for wait in (5, 10, 20, LONG / 2):
            try:
                socket.create_connection(("127.0.0.1", 1), timeout=1)
            except OSError:
                time.sleep(wait)
    goes_on(model, optimizer)


def slow_rendezvous():
    """The other side of a second store comes late."""
    model, optimizer = trained()
    if RANK == 0:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        code = f"import time, datetime, torch.distributed as d; time.sleep({LONG}); d.TCPStore('127.0.0.1', {port}, 2)"
        other = subprocess.Popen([sys.executable, "-c", code])
        dist.TCPStore("127.0.0.1", port, 2, True, datetime.timedelta(hours=1))
        other.wait()
    goes_on(model, optimizer)


def polls_a_thread():
    """A loop over a condition that a thread of the same rank fulfils, late: an upload whose end is looked for."""
    model, optimizer = trained(seconds=100 + LONG)
    state = {"done": False}
    if RANK == 1:
        threading.Thread(target=lambda: (busy(LONG), state.update(done=True))).start()
        while not state["done"]:
            time.sleep(0.01)
    goes_on(model, optimizer)


def rates_of_stages():
    """Each rank trains parameters of its own, at a rate of its own."""
    start()
    model = mlp(24 + 8 * RANK)
    optimizer = torch.optim.AdamW(model.parameters(), lr=(RANK + 1) * 1e-3)
    torch.manual_seed(100 + RANK)
    for _ in range(60):
        one_step(model, optimizer)
        dist.all_reduce(torch.ones(1))


def paused_briefly():
    """A debugger's or a profiler's pause."""
    model, optimizer = trained()
    if RANK == 1:
        subprocess.Popen(["sh", "-c", f"kill -STOP {os.getpid()}; sleep 6; kill -CONT {os.getpid()}"])
        time.sleep(1)
    goes_on(model, optimizer)


def stops_early_together():
    model, optimizer = trained(5)
    for step in range(60):
        one_step(model, optimizer)
        stop = torch.tensor([int(step > 30 and RANK == 0)])
        dist.broadcast(stop, src=0)
        if stop.item():
            break
    dist.barrier()


def evaluates_own_share():
    """Shares of the evaluation that are not equal, without a collective in them."""
    model, optimizer = trained()
    with torch.no_grad():
        end = time.monotonic() + (LONG if RANK == 2 else 5)
        while time.monotonic() < end:
            model.module(torch.randn(6, 12))
            time.sleep(0.05)
    score = torch.rand(1)
    dist.all_reduce(score)
    goes_on(model, optimizer)


def padded_gather():
    model, optimizer = trained()
    for _ in range(10):
        one_step(model, optimizer)
        mine = torch.rand(random.randint(1, 50))
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(WORLD)]
        dist.all_gather(sizes, torch.tensor([len(mine)]))
        most = int(max(sizes))
        dist.all_gather([torch.zeros(most) for _ in range(WORLD)], nn.functional.pad(mine, (0, most - len(mine))))
        dist.all_gather_object([None] * WORLD, {"n": len(mine)})


def experts():
    """Parameters of experts are each rank's own; the numbers of tokens differ, and are exchanged."""
    start()
    shared = DistributedDataParallel(nn.Linear(12, 12))
    torch.manual_seed(RANK)
    expert = nn.Linear(12, 12)
    optimizer = torch.optim.AdamW([*shared.parameters(), *expert.parameters()], lr=1e-3)
    for _ in range(60):
        counts = torch.randint(1, 5, (WORLD,))
        rows = shared(torch.randn(int(counts.sum()), 12))
        takes = torch.zeros_like(counts)
        dist.all_to_all_single(takes, counts)
        out = torch.zeros(int(takes.sum()), 12)
        dist.all_to_all_single(out, rows.detach(), takes.tolist(), counts.tolist())
        (expert(out).square().mean() + rows.square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)


def local_sgd():
    """Replicas that are averaged each tenth step."""
    start()
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(100 + RANK)
    for step in range(60):
        one_step(model, optimizer)
        if step % 10 == 9:
            for weight in model.parameters():
                dist.all_reduce(weight.data)
                weight.data /= WORLD


def warms_up():
    """The learning rate of the first step is 0, a part of the model is frozen, and the loss is scaled."""
    start()
    net = mlp()
    for weight in net[0].parameters():
        weight.requires_grad_(False)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW([w for w in net.parameters() if w.requires_grad], lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 10))
    torch.manual_seed(100 + RANK)
    for _ in range(40):
        one_step(model, optimizer)
        schedule.step()


def two_players():
    """Two models and two optimizers that take turns, and dropout of each rank's own."""
    start()
    made, judged = (DistributedDataParallel(nn.Sequential(nn.Linear(12, 12), nn.Dropout(0.2))) for _ in range(2))
    first, second = (torch.optim.Adam(model.parameters(), lr=1e-3) for model in (made, judged))
    torch.manual_seed(100 + RANK)
    for _ in range(40):
        rows = torch.randn(6, 12)
        second.zero_grad()
        (judged(made(rows).detach()) - judged(rows)).mean().square().backward()
        second.step()
        first.zero_grad()
        judged(made(rows)).square().mean().backward()
        first.step()
        time.sleep(0.02)


def masks_agree():
    """The generator of the mask has the same seed on the ranks that share a layer, and another elsewhere."""
    tensor_parallel(torch.Generator().manual_seed(50 + RANK // 2))


def accumulates_evenly():
    start()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 12), nn.BatchNorm1d(12)), broadcast_buffers=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(100 + RANK)
    for _ in range(25):
        for part in range(4):
            with model.no_sync() if part < 3 else contextlib.nullcontext():
                (model(torch.randn(6, 12)).square().mean() / 4).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)


def asynchronous():
    """Collectives that are waited for later, and a group of some of the ranks."""
    start()
    group = dist.new_group([0, 2])
    model, optimizer = remake()
    for _ in range(40):
        work = dist.all_reduce(torch.ones(1000), async_op=True)
        one_step(model, optimizer)
        if RANK != 1:
            dist.all_reduce(torch.ones(5), group=group)
        work.wait()


def child_sleeps():
    """Rank 0 waits for a command that takes long and does nothing on this host, as a job of a cluster does."""
    model, optimizer = trained()
    if RANK == 0:
        subprocess.run(["sleep", str(LONG)], check=True)
    goes_on(model, optimizer)


def awaits_in_loop():
    """Rollouts in asyncio, of which one takes long."""
    model, optimizer = trained()
    if RANK == 0:
        asyncio.run(asyncio.wait_for(asyncio.sleep(LONG), None))
    goes_on(model, optimizer)


def ends_unevenly():
    """After the last collective each rank goes its own way, one of them for long."""
    trained()
    if RANK == 1:
        busy(LONG)


if __name__ == "__main__":
    globals()[KIND]()
    if dist.is_initialized():
        dist.destroy_process_group()
