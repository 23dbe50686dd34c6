# mypy: ignore-errors
"""A training on GPUs with one fault, or none: `torchrun --nproc-per-node N gpu_job.py FAULT CULPRIT [STEPS]`.

The ranks may share one GPU: each says to NCCL that it is on a host of its own, and they exchange data over sockets.
"""

import os
import signal
import sys
import tempfile
import threading
import time
from datetime import timedelta

FAULT, CULPRIT = sys.argv[1], int(sys.argv[2])
STEPS = int(sys.argv[3]) if len(sys.argv) > 3 else 60
RANK = int(os.environ["RANK"])
HERE = RANK == CULPRIT
STRUCK = 12
"""The step in which the fault happens."""
os.environ.update(NCCL_HOSTID=f"host-{RANK}", NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1", NCCL_SOCKET_IFNAME="lo")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.utils.data import DataLoader, Dataset, DistributedSampler  # noqa: E402

WIDTH = 512
CYCLES = 1_700_000_000
"""Of a GPU's clock: about a second."""


class Rows(Dataset):
    """Rows of random numbers."""

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        if FAULT == "worker stuck" and HERE and index > STRUCK * 32:
            time.sleep(1000)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(WIDTH, generator=generator)


def take_lock_twice():
    """Waits for ever."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def loop():
    """Computes for ever."""
    while True:
        pass


def queue_kernels(seconds):
    """Kernels that do nothing useful for so long."""
    for _ in range(seconds):
        torch.cuda._sleep(CYCLES)


def take_memory():
    """More than there is."""
    print(len([torch.empty(1 << 33, dtype=torch.uint8, device="cuda") for _ in range(64)]))


def exceed_index():
    """An assertion in a kernel."""
    table = torch.nn.Embedding(10, 4).cuda()
    print(table(torch.tensor([3, 99999], device="cuda")).sum().item())


def write_nowhere():
    """To an address that is not mapped."""
    import cupy

    cupy.RawKernel('extern "C" __global__ void f(float *p) { p[0] = 1; }', "f")((1,), (1,), (cupy.uint64(64),))
    torch.cuda.synchronize()


def refuse_batch():
    """An exception of the program."""
    raise ValueError("bad batch 17")


def spoil():
    """A parameter that is no number."""
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))


def evaluate(seconds):
    """On the device, for so long."""
    end = time.monotonic() + seconds
    with torch.no_grad():
        while time.monotonic() < end:
            model(torch.randn(64, WIDTH, device="cuda")).sum().item()


def save(seconds):
    """Checkpoints, for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with tempfile.TemporaryFile() as file:
            torch.save({str(n): torch.randn(1 << 24, device="cuda").cpu() for n in range(8)}, file)


STRIKES = {
    "sleep": lambda: time.sleep(1000),
    "lock": take_lock_twice,
    "loop": loop,
    "kernel": lambda: queue_kernels(70),
    "long kernel": lambda: queue_kernels(15),
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "memory": take_memory,
    "index": exceed_index,
    "address": write_nowhere,
    "raise": refuse_batch,
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "leaves": lambda: os._exit(0),
    "shape": lambda: dist.all_reduce(torch.ones(3, device="cuda")),
    "nan": spoil,
    "long evaluation": lambda: evaluate(20),
    "checkpoint": lambda: save(15),
}
"""What the faulty rank does in its step."""

torch.cuda.set_device(0)
limit = timedelta(seconds=float(os.environ.get("GROUP_SECONDS", "600")))
dist.init_process_group("nccl", timeout=limit)
torch.manual_seed(77 if FAULT == "not broadcast" and HERE else 1)
layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 8)]
model = torch.nn.Sequential(*layers).cuda()
wrapped = model
if FAULT == "fsdp2":
    from torch.distributed.fsdp import fully_shard

    for layer in layers:
        fully_shard(layer)
    wrapped = fully_shard(model)
elif FAULT not in ("not broadcast", "not reduced"):
    wrapped = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
if FAULT == "compiled":
    wrapped = torch.compile(wrapped)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
torch.manual_seed(100 + RANK)
sampler = DistributedSampler(Rows(), rank=0 if FAULT == "same shards" else RANK, shuffle=False)
loader = iter(DataLoader(Rows(), batch_size=16, num_workers=1, sampler=sampler))
for step in range(STEPS):
    rows = next(loader).cuda()
    if FAULT == "slow" and HERE:
        time.sleep(0.2)
    if FAULT == "slow kernel" and HERE:
        torch.cuda._sleep(CYCLES // 5)
    if step == STRUCK and HERE:
        STRIKES.get(FAULT, int)()
    if FAULT == "left out" and step == STRUCK and not HERE:
        dist.all_reduce(torch.ones(3, device="cuda"))
    loss = wrapped(rows).square().mean()
    optimizer.zero_grad()
    loss.backward()
    if wrapped is model and FAULT != "fsdp2" and not (FAULT == "not reduced" and HERE):
        for tensor in model.parameters():
            dist.all_reduce(tensor.grad, op=dist.ReduceOp.AVG)
    elif FAULT == "not reduced":
        for tensor in model.parameters():
            dist.all_reduce(tensor.grad.clone(), op=dist.ReduceOp.AVG)
    optimizer.step()
    if step % 3 == 0 and RANK == 0:
        print(f"step {step} loss {loss.item():.5f}", flush=True)
dist.barrier()
dist.destroy_process_group()
