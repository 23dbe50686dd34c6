"""Small trainings that hang in ways of public issues, and others that only take long: `ways_to_hang.py KIND FOLDER`.

torchrun starts it, or with SPAWN=3 it starts three ranks by mp.spawn. The moment at which it goes wrong is the time of
the file ``FOLDER/struck``.
"""

import datetime
import fcntl
import multiprocessing
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

KIND, FOLDER = sys.argv[1], Path(sys.argv[2])
LONG = float(os.environ.get("LONG", "85"))
STEPS, AT = 60, 25
FOREVER = 100000
rank = world = 0


def struck():
    """From here on it hangs."""
    (FOLDER / "struck").touch()


def begin(timeout=1800):
    """The process group."""
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=timeout))
    torch.set_num_threads(1)


def net():
    """A small model and its optimizer; each rank draws rows of its own."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    torch.manual_seed(1 + rank)
    ddp = DistributedDataParallel(model)
    return ddp, torch.optim.SGD(ddp.parameters(), lr=0.01)


def train_step(model, optimizer, rows=8):
    """One usual step."""
    loss = model(torch.randn(rows, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.02)
    return loss.item()


def usual(then=None, steps=STEPS, timeout=1800):
    """Steps of DDP; ``then`` is called with the model in the midst of them."""
    begin(timeout)
    model, optimizer = net()
    for step in range(steps):
        if step == AT and then:
            then(model)
        train_step(model, optimizer)


# --- collectives that do not fit ---


def validates_with_ddp():
    def evaluate(model):
        if rank == 0:
            struck()
            for _ in range(5):
                model(torch.randn(8, 16))
        dist.barrier()

    usual(evaluate)


def uneven_batches():
    begin()
    model, optimizer = net()
    for _ in range(AT if rank == 2 else STEPS):
        train_step(model, optimizer)
    struck()
    count = torch.tensor([rank])
    dist.all_reduce(count)


def uneven_then_exit():
    begin()
    model, optimizer = net()
    for _ in range(AT if rank == 1 else STEPS):
        train_step(model, optimizer)
    struck()


def stops_early():
    begin()
    model, optimizer = net()
    for step in range(STEPS):
        loss = train_step(model, optimizer) + (step > AT and rank == 2)
        if loss > 1.0 and step > AT:
            break
    struck()
    dist.barrier()


def group_by_some():
    def make(_model):
        if rank < 2:
            struck()
            dist.new_group()

    usual(make)


def groups_in_other_order():
    begin()
    pairs = [[0, 1], [1, 2]]
    struck()
    groups = [dist.new_group(pair) for pair in (reversed(pairs) if rank == 1 else pairs)]
    dist.barrier()
    for group in groups:
        dist.all_reduce(torch.ones(4), group=group) if rank in dist.get_process_group_ranks(group) else None


def barrier_in_branch():
    def save(model):
        if rank == 0:
            torch.save(model.state_dict(), FOLDER / "model.pt")
            struck()
            dist.barrier()

    usual(save)


def swallowed_error():
    begin()
    model, optimizer = net()
    for step in range(STEPS):
        try:
            if step == AT and rank == 1:
                struck()
                raise ValueError("broken sample")
            train_step(model, optimizer)
        except ValueError:
            continue
    dist.all_reduce(torch.zeros(1, dtype=torch.int64))


def grads_of_some():
    begin()
    model = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 8)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        skips = step == AT and rank == 1
        optimizer.zero_grad()
        hidden = model[0](torch.randn(4, 16))
        (hidden if skips else model[1](hidden)).square().mean().backward()
        if skips:
            struck()
        for weight in model.parameters():
            if weight.grad is not None:
                dist.all_reduce(weight.grad)
        optimizer.step()


def accumulates_more():
    begin()
    model, optimizer = net()
    every = 3 if rank == 2 else 2
    for step in range(STEPS):
        sync = step % every == every - 1
        if sync:
            train_step(model, optimizer)
        else:
            with model.no_sync():
                model(torch.randn(8, 16)).square().mean().backward()
    struck()
    dist.barrier()


def other_order():
    def both(_model):
        calls = [lambda: dist.all_reduce(torch.ones(8)), lambda: dist.broadcast(torch.ones(3), src=0)]
        struck()
        for call in reversed(calls) if rank == 1 else calls:
            call()

    usual(both)


def last_batch_smaller():
    def gather(_model):
        rows = torch.ones(5 if rank == 2 else 8, 4)
        struck()
        dist.all_gather([torch.zeros_like(rows) for _ in range(world)], rows)

    usual(gather)


def other_dtype():
    def reduce(_model):
        struck()
        dist.all_reduce(torch.ones(8, dtype=torch.float64 if rank == 1 else torch.float32))

    usual(reduce)


def gathers_without_0():
    def gather(_model):
        if rank:
            struck()
            dist.gather_object({"rank": rank}, None, dst=0)

    usual(gather)


def random_branch():
    begin()
    model, optimizer = net()
    draw = random.Random(7 if rank == 2 else 3)
    for _ in range(STEPS):
        train_step(model, optimizer)
        if draw.random() < 0.3:
            struck()
            dist.all_reduce(torch.ones(2))


def tokens_differ():
    begin()
    for step in range(STEPS):
        torch.manual_seed(step + (100 if rank == 1 and step >= AT else 0))
        mask = torch.rand(64) < 0.5
        rows = torch.ones(64)[mask]
        if step >= AT:
            struck()
        dist.all_gather([torch.zeros_like(rows) for _ in range(world)], rows)
        time.sleep(0.02)


def wrong_group():
    begin()
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    model, optimizer = net()
    for step in range(STEPS):
        train_step(model, optimizer)
        group = pairs[rank // 2]
        if step == AT and rank == 3:
            struck()
            group = None
        dist.all_reduce(torch.ones(4), group=group)


def checkpoint_thread():
    """A thread gathers for a checkpoint in the group that trains."""

    def save(_model):
        if rank == 0:
            threading.Thread(target=dist.barrier, daemon=True).start()
            time.sleep(0.5)
            struck()
        else:
            threading.Timer(1.5, dist.barrier).start()

    usual(save)


def other_source():
    def share(_model):
        struck()
        box = [{"lr": 0.1} if rank < 2 else None]
        dist.broadcast_object_list(box, src=1 if rank == 1 else 0)

    usual(share)


def retries_smaller():
    begin()
    model, optimizer = net()
    for step in range(STEPS):
        if step == AT and rank == 1:
            struck()
            model(torch.randn(4, 16)).square().mean().backward()
        train_step(model, optimizer)
    dist.barrier()


def cache_race():
    begin()
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        (FOLDER / "index.cache").touch()
        struck()
        dist.barrier()
    else:
        while not (FOLDER / "index.cache").exists():
            time.sleep(0.01)
    model, optimizer = net()
    for _ in range(STEPS):
        train_step(model, optimizer)


def fsdp_validation():
    from torch.distributed.fsdp import fully_shard

    begin()
    model = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 4))
    mesh = dist.init_device_mesh("cpu", (world,))
    for part in (*model, model):
        fully_shard(part, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(AT):
        train_step(model, optimizer)
    struck()
    with torch.no_grad():
        for _ in range(3 if rank == 1 else 6):
            model(torch.randn(8, 16))
    dist.barrier()


def early_sampler_end():
    usual(steps=AT)
    batches = DataLoader(range(25 + (rank == 0)), batch_size=5)
    found = torch.zeros(1)
    struck()
    for _ in batches:
        dist.all_gather([torch.zeros(1) for _ in range(world)], found)
    dist.barrier()


# --- messages ---


def no_send():
    def exchange(_model):
        if rank == 1:
            struck()
            dist.recv(torch.zeros(4), src=0)

    usual(exchange)


def both_receive():
    def exchange(_model):
        if rank < 2:
            struck()
            dist.recv(torch.zeros(4), src=1 - rank)
            dist.send(torch.ones(4), dst=1 - rank)

    usual(exchange)


def other_tag():
    def exchange(_model):
        struck()
        if rank == 0:
            dist.send(torch.ones(4), dst=1, tag=5)
        if rank == 1:
            dist.recv(torch.zeros(4), src=0, tag=6)

    usual(exchange)


# --- a rank that is held up ---


def locks_crossed():
    def write(_model):
        if rank != 1:
            return
        first, second = threading.Lock(), threading.Lock()

        def flush():
            with second:
                time.sleep(0.3)
                with first:
                    pass

        threading.Thread(target=flush, daemon=True).start()
        with first:
            time.sleep(0.1)
            struck()
            with second:
                pass

    usual(write)


def locked_by_rank_0():
    """After some steps: a file."""
    usual(steps=AT)
    file = (FOLDER / "cache.lock").open("w")
    if rank == 0:
        fcntl.flock(file, fcntl.LOCK_EX)
    dist.barrier()
    return file


def file_locked_by_waiter():
    file = locked_by_rank_0()
    if rank == 2:
        struck()
        fcntl.flock(file, fcntl.LOCK_EX)
    dist.all_reduce(torch.ones(2))


def file_polled():
    """As the libraries of file locks do it."""
    file = locked_by_rank_0()
    while rank == 2:
        struck() if not (FOLDER / "struck").exists() else None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(0.05)
    dist.all_reduce(torch.ones(2))


def pipe_unread():
    def convert(_model):
        if rank == 1:
            struck()
            child = subprocess.Popen([sys.executable, "-c", "print('x' * 200000)"], stdout=subprocess.PIPE)
            child.wait()

    usual(convert)


def dead_producer():
    def take(_model):
        if rank == 2:
            batches = queue.Queue(2)

            def produce():
                raise OSError("shard-0031.tar is truncated")

            threading.Thread(target=produce, daemon=True).start()
            struck()
            batches.get()

    usual(take)


class Samples(Dataset):
    """Of which one never comes."""

    def __len__(self):
        return 400

    def __getitem__(self, index):
        if rank == 1 and index == 200:
            struck()
            threading.Event().wait()
        return torch.randn(16)


def loader_worker():
    begin()
    model, optimizer = net()
    for _ in DataLoader(Samples(), batch_size=8, num_workers=1):
        train_step(model, optimizer)


def fifo_opened():
    def read(_model):
        if rank == 0:
            os.mkfifo(FOLDER / "shard-7")
            struck()
            (FOLDER / "shard-7").read_bytes()

    usual(read)


def exits_quietly():
    def leave(_model):
        if rank == 2:
            struck()
            os._exit(0)

    usual(leave)


def spins():
    def wait(_model):
        while rank == 2:
            struck() if not (FOLDER / "struck").exists() else None

    usual(wait, timeout=100)


def stopped():
    def stop(_model):
        if rank == 1:
            struck()
            os.kill(os.getpid(), signal.SIGSTOP)

    usual(stop)


def error_and_thread():
    """The rank has failed; a thread that is no daemon keeps its process."""

    def fail(_model):
        if rank == 1:
            threading.Thread(target=threading.Event().wait).start()
            struck()
            raise RuntimeError("shape mismatch in sample 1701")

    usual(fail)


def atexit_waits():
    import atexit

    def leave(_model):
        if rank == 2:
            atexit.register(lambda: silent_server(FOREVER))
            struck()
            sys.exit(1)

    usual(leave)


def inference_lock():
    begin()
    for step in range(STEPS):
        rows = torch.ones(8)
        if step == AT and rank == 1:
            lock = threading.Lock()
            lock.acquire()
            struck()
            lock.acquire()
        dist.all_gather([torch.zeros(8) for _ in range(world)], rows)
        time.sleep(0.05)


def silent_server(seconds):
    """Asks a server of another process that takes the question and answers late."""
    server = socket.create_server(("127.0.0.1", 0))
    child = multiprocessing.get_context("fork").Process(target=lambda: (server.accept(), time.sleep(seconds)))
    child.start()
    client = socket.create_connection(server.getsockname())
    server.close()
    client.sendall(b"POST /reward HTTP/1.1\r\n\r\n")
    client.recv(1)


def reward_server():
    def ask(_model):
        if rank == 0:
            struck()
            silent_server(FOREVER)

    usual(ask)


def all_locked_out():
    """A process that an earlier run has left holds the file that all ranks want."""
    begin()
    model, optimizer = net()
    for _ in range(AT):
        train_step(model, optimizer)
    path = FOLDER / "data.lock"
    if rank == 0:
        holder = (
            "import fcntl,sys,time; f=open(sys.argv[1],'w'); fcntl.flock(f,2); print('x',flush=True); time.sleep(1e5)"
        )
        child = subprocess.Popen([sys.executable, "-c", holder, str(path)], stdout=subprocess.PIPE,
                                 start_new_session=True)  # fmt: skip
        child.stdout.read(1)
    dist.barrier()
    struck()
    fcntl.flock(path.open("a"), fcntl.LOCK_EX)
    train_step(model, optimizer)


def never_joins():
    if rank == 2:
        lock = threading.Lock()
        lock.acquire()
        struck()
        lock.acquire()
    usual()


def mask_differs():
    """Two ranks share a model: each draws its own mask."""
    begin()
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    peers = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    torch.manual_seed(0)
    draw = torch.Generator().manual_seed(rank)

    class Half(nn.Module):
        """Half of the columns of a layer."""

        def __init__(self):
            super().__init__()
            self.weights = nn.Linear(8, 16)

        def forward(self, rows):
            out = self.weights(rows[:, rank % 2 * 8 :][:, :8])
            total = out.detach().clone()
            dist.all_reduce(total, group=pairs[rank // 2])
            return out + (total - out.detach())

    half = Half()
    optimizer = torch.optim.SGD(half.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(rank // 2)
    struck()
    for _ in range(STEPS):
        rows = torch.randn(8, 16, generator=data)
        optimizer.zero_grad()
        mask = (torch.rand(8, 16, generator=draw) < 0.9).float()
        half(rows * mask).square().mean().backward()
        for weight in half.parameters():
            dist.all_reduce(weight.grad, group=peers[rank % 2])
            weight.grad /= 2
        optimizer.step()
        time.sleep(0.02)


# --- long, and healthy ---


def long_evaluation():
    def score(_model):
        end = time.monotonic() + LONG
        while rank == 0 and time.monotonic() < end:
            torch.randn(200, 200) @ torch.randn(200, 200)
        dist.barrier()

    usual(score, timeout=3600)


def slow_upload():
    def upload(_model):
        if rank == 0:
            server = socket.create_server(("127.0.0.1", 0))

            def receive():
                taker = server.accept()[0]
                end = time.monotonic() + LONG
                while time.monotonic() < end:
                    taker.recv(1 << 16)
                    time.sleep(2)
                taker.sendall(b"200")
                taker.close()

            child = multiprocessing.get_context("fork").Process(target=receive)
            child.start()
            client = socket.create_connection(server.getsockname())
            server.close()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
            try:
                client.sendall(bytes(3 << 20))
                client.recv(3)
            except OSError:
                pass
        dist.barrier()

    usual(upload, timeout=3600)


def compiles():
    def compile_kernel(_model):
        if rank == 1:
            loop = f"import time; e = time.monotonic() + {LONG}\nwhile time.monotonic() < e: sum(range(1000))"
            subprocess.run([sys.executable, "-c", loop], check=True)

    usual(compile_kernel, timeout=3600)


def throttled_checkpoint():
    def save(_model):
        if rank == 0:
            end = time.monotonic() + LONG
            with (FOLDER / "big").open("wb") as file:
                while time.monotonic() < end:
                    file.write(bytes(1 << 20))
                    file.flush()
                    time.sleep(0.7)
                    file.seek(0)
        dist.barrier()

    usual(save, timeout=3600)


def joins():
    from torch.distributed.algorithms.join import Join

    begin(3600)
    model = DistributedDataParallel(nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Join([model]):
        for _ in range(20 if rank == 1 else 80):
            train_step(model, optimizer)
            time.sleep(0.5)
    dist.barrier()


def uneven_work():
    begin(3600)
    model, optimizer = net()
    for step in range(8):
        train_step(model, optimizer)
        time.sleep(random.Random(step * 7 + rank).uniform(1, 18))


def rollouts():
    def collect(_model):
        if rank == 0:
            fork = multiprocessing.get_context("fork")
            results = fork.Queue()

            def act():
                end = time.monotonic() + LONG
                while time.monotonic() < end:
                    sum(range(1000))
                    time.sleep(0.01)
                results.put([1] * 1000)

            actors = [fork.Process(target=act) for _ in range(2)]
            [actor.start() for actor in actors]
            [results.get() for _ in actors]

    usual(collect, timeout=3600)


def sleeps_long():
    def pause(_model):
        if rank == 1:
            time.sleep(LONG)

    usual(pause, timeout=3600)


def polls_file():
    def wait(_model):
        if rank == 0:
            threading.Timer(LONG, (FOLDER / "ready").touch).start()
            while not (FOLDER / "ready").exists():
                time.sleep(2)

    usual(wait, timeout=3600)


def slow_first_step():
    begin(3600)
    model, optimizer = net()
    if rank == 2:
        time.sleep(LONG)
    for _ in range(STEPS):
        train_step(model, optimizer)


def joins_late():
    if rank == 1:
        time.sleep(LONG)
    usual(timeout=3600)


def works_after_others():
    usual(timeout=3600)
    if rank == 2:
        time.sleep(LONG)


def pool_evaluation():
    def score(_model):
        if rank == 0:
            with multiprocessing.get_context("fork").Pool(2) as pool:
                pool.map(_work, range(4))
        dist.barrier()

    usual(score, timeout=3600)


def _work(_number):
    end = time.monotonic() + LONG / 2
    while time.monotonic() < end:
        sum(range(1000))
        time.sleep(0.02)


def checkpoint_in_background():
    begin(3600)
    group = dist.new_group()
    model, optimizer = net()
    for step in range(200):
        train_step(model, optimizer)
        if step % 50 == 10:
            saver = threading.Thread(target=lambda: (time.sleep(2), dist.barrier(group=group)))
            saver.start()
        if step % 50 == 49:
            saver.join()


def slow_stage():
    begin(3600)
    for _ in range(6):
        rows = torch.zeros(4)
        if rank:
            dist.recv(rows, src=rank - 1)
        time.sleep(12 if rank == 1 else 0.1)
        if rank < world - 1:
            dist.send(rows, dst=rank + 1)
    dist.barrier()


def lock_of_download():
    def wait(_model):
        if rank == 2:
            lock = threading.Lock()
            lock.acquire()

            def fetch():
                time.sleep(LONG)
                lock.release()

            threading.Thread(target=fetch).start()
            with lock:
                pass

    usual(wait, timeout=3600)


def waits_for_requests():
    """As a server of a model: rank 0 has nothing to do until a request comes."""
    begin(3600)
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    if rank == 0:
        client = f"import socket,time; time.sleep({LONG}); socket.create_connection(('127.0.0.1',{port})).recv(1)"
        child = subprocess.Popen(
            ["sh", "-c", f'sleep 0; exec "{sys.executable}" -c "{client}"'], start_new_session=True
        )
    for number in range(20):
        box = [None]
        if rank == 0:
            taker = server.accept()[0] if number == 10 else None
            box = [{"prompt": number}]
            taker.close() if taker else None
        dist.broadcast_object_list(box, src=0)
        dist.all_reduce(torch.ones(8))
    if rank == 0:
        child.wait()


def compute_at_low_priority():
    def score(_model):
        if rank == 1:
            os.nice(19)
            end = time.monotonic() + LONG
            while time.monotonic() < end:
                sum(range(100000))

    usual(score, timeout=3600)


def handled_errors():
    begin(3600)
    model, optimizer = net()
    for step in range(STEPS):
        try:
            if step % 10 == 3:
                raise ValueError("bad sample")
        except ValueError:
            print("skipped", step)
        train_step(model, optimizer)


def run(number=None, port=None):
    """One rank."""
    global rank, world
    if number is not None:
        os.environ.update(RANK=str(number), WORLD_SIZE=os.environ["SPAWN"], MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    globals()[KIND]()
    if dist.is_initialized() and KIND not in {"uneven_then_exit", "works_after_others"}:
        dist.destroy_process_group()


if __name__ == "__main__":
    if "SPAWN" in os.environ and "RANK" not in os.environ:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            free = str(probe.getsockname()[1])
        torch.multiprocessing.spawn(run, args=(free,), nprocs=int(os.environ["SPAWN"]))
    else:
        run()
