"""Further ways in which one process of a job comes to wait for ever, and the same work as a healthy one does it."""

import asyncio
import concurrent.futures
import fcntl
import logging
import multiprocessing
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time


def awaited_tasks():
    """Two tasks wait for each other's event."""

    async def both():
        first, second = asyncio.Event(), asyncio.Event()

        async def one(own, other):
            await other.wait()
            own.set()

        await asyncio.gather(one(first, second), one(second, first))

    asyncio.run(both())


class LockedSamples:
    """Samples under a lock that a thread of the parent had when the worker was forked."""

    lock = threading.Lock()

    def __len__(self):
        return 8

    def __getitem__(self, number):
        with self.lock:
            return number


def loader_in_lock():
    """A worker of the loader waits for that lock."""
    import torch

    LockedSamples.lock.acquire()
    next(iter(torch.utils.data.DataLoader(LockedSamples(), num_workers=1, multiprocessing_context="fork")))


def full_pipe():
    """The child writes into a pipe that is read by no one, and this process waits for its end."""
    subprocess.Popen([sys.executable, "-S", "-c", "print('x' * (1 << 20))"], stdout=subprocess.PIPE).wait()


def square(number):
    """The work of a pool."""
    return number * number


def killed(_):
    """The work of a worker that is killed within it."""
    os.kill(os.getpid(), signal.SIGKILL)


def lost_worker():
    """A worker of the pool was killed: its result never comes."""
    with multiprocessing.get_context("fork").Pool(2) as workers:
        workers.map(killed, [1])


def empty_queue():
    """Waits for an object of a producer that has ended."""
    results = multiprocessing.get_context("fork").Queue()
    results.get()


def silent_store():
    """A key-value server that was stopped."""
    server = socket.create_server(("127.0.0.1", 0))
    if not os.fork():
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    address = server.getsockname()
    server.close()
    client = socket.create_connection(address)
    client.sendall(b"BLPOP results 0\r\n")
    client.makefile("rb").readline()


def held_file():
    """Another process has the lock of a file."""
    path = os.path.join(tempfile.gettempdir(), "weights.lock")
    ready, writer = os.pipe()
    if not os.fork():
        with open(path, "w") as holder:
            fcntl.lockf(holder, fcntl.LOCK_EX)
            os.write(writer, b"1")
            time.sleep(10000)
    os.read(ready, 1)
    with open(path, "w") as taker:
        fcntl.lockf(taker, fcntl.LOCK_EX)


def stopped_child():
    """The child that is waited for was stopped."""
    child = subprocess.Popen(["sleep", "10000"])
    child.send_signal(signal.SIGSTOP)
    child.wait()


def zombie():
    """Waits until an ended child is gone, and never collects it."""
    child = subprocess.Popen(["true"])
    while os.path.exists(f"/proc/{child.pid}"):
        time.sleep(0.5)


def nested_task():
    """A task waits for another of the same pool, which has one thread."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: pool.submit(int).result()).result()


def semaphore():
    """A semaphore between processes that no one releases."""
    multiprocessing.get_context("fork").Semaphore(0).acquire()


def awaited_signal():
    """A signal that no one sends."""
    signal.sigwait({signal.SIGUSR2})


def logger_lock():
    """A thread has the lock of a handler of the log."""
    handler = logging.StreamHandler()
    threading.Thread(target=lambda: (handler.acquire(), time.sleep(10000)), daemon=True).start()
    time.sleep(0.2)
    handler.handle(logging.makeLogRecord({"msg": "step"}))


def thread_queue():
    """The writer of checkpoints has ended: its acknowledgement never comes."""
    queue.Queue().get()


def write_to_reader():
    """A pipe whose reader does not read."""
    _, end = os.pipe()
    os.write(end, bytes(1 << 20))


FAULTS = {
    "tasks": awaited_tasks, "loader lock": loader_in_lock, "full pipe": full_pipe, "lost worker": lost_worker,
    "empty queue": empty_queue, "silent store": silent_store, "held file": held_file, "stopped child": stopped_child,
    "zombie": zombie, "nested task": nested_task, "semaphore": semaphore, "signal": awaited_signal,
    "logger lock": logger_lock, "thread queue": thread_queue, "no reader": write_to_reader,
}  # fmt: skip


def sleeping_tasks():
    """Two tasks that end."""

    async def both():
        await asyncio.gather(asyncio.sleep(0.2), asyncio.sleep(0.3))

    asyncio.run(both())


def loader():
    """A loader with a worker of its own."""
    import torch

    next(iter(torch.utils.data.DataLoader(range(8), num_workers=1, multiprocessing_context="fork")))


def pool_of_processes():
    """A pool that answers."""
    with multiprocessing.get_context("fork").Pool(2) as workers:
        workers.map(square, range(4))


def passed_object():
    """An object of a thread of this process."""
    results = queue.Queue()
    threading.Timer(0.3, results.put, [1]).start()
    results.get()


def computing_child(seconds=9):
    """An evaluation by a command."""
    program = f"import time\nend = time.time() + {seconds}\nwhile time.time() < end: pass"
    subprocess.run([sys.executable, "-S", "-c", program], check=True)


def answering_store():
    """A server that answers after a while."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer():
        with server.accept()[0] as connection:
            time.sleep(0.4)
            connection.sendall(b"+OK\r\n")

    threading.Thread(target=answer, daemon=True).start()
    with socket.create_connection(server.getsockname()) as client:
        client.makefile("rb").readline()


def locked_shortly():
    """The lock of a file that is free soon."""
    with tempfile.NamedTemporaryFile() as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        time.sleep(0.2)


def task_in_pool():
    """A task of another thread."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        pool.submit(time.sleep, 0.2).result()


def saves():
    """A checkpoint into memory."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(bytes(1 << 26))


def joined_thread():
    """A thread that ends."""
    thread = threading.Thread(target=time.sleep, args=[0.1])
    thread.start()
    thread.join()


WORK = {
    "sleeping tasks": sleeping_tasks, "loader": loader, "pool": pool_of_processes, "passed object": passed_object,
    "computing child": computing_child, "answering store": answering_store, "locked shortly": locked_shortly,
    "task in pool": task_in_pool, "signal in time": lambda: signal.sigtimedwait({signal.SIGUSR2}, 0.3),
    "sorts": lambda: sorted(os.urandom(1 << 22)), "saves": saves,
    "echo": lambda: subprocess.run(["echo"], capture_output=True, check=True), "slow": lambda: time.sleep(1.5),
    "semaphore": lambda: multiprocessing.get_context("fork").Semaphore(1).acquire(),
    "joined thread": joined_thread,
}  # fmt: skip
"""What one rank does in each step beside its work, and goes on."""
