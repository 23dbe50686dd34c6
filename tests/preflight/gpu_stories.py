"""A real training on a GPU beside `doctor preflight`, in environments of which some end it. Where a GPU is at hand.

    python -m tests.preflight.gpu_stories [--python PYTHON] [--jobs 8] [NAME ...]

Each story has a mount namespace of its own (so root is needed), and nothing of the GPU's settings is changed. A line
begins with ``==`` where the exit code of doctor is 0 exactly when the job ends well. On an H200 with torch 2.11, NCCL
2.28 and driver 580: 62 of 62, after four false errors were mended; of 73 further ones four more.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

PROGRAM = Path(__file__).parent / "programs" / "gpu_training.py"
VISIBLE, IFNAME, ALLOCATOR = "CUDA_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME", "PYTORCH_CUDA_ALLOC_CONF"


class Story(NamedTuple):
    """An environment: variables, and what is done in the namespace before."""

    variables: dict[str, str] = {}
    before: str = ":"
    ranks: int = 1


def hidden(name: str) -> str:
    """The file is another one in the namespace."""
    return f"mount --bind /dev/null {name}"


def emptied(library: str) -> str:
    """An empty file of the library's name comes first."""
    return f"d=$(mktemp -d); : >$d/{library}; export LD_LIBRARY_PATH=$d"


STORIES = {
    "healthy": Story(),
    **{f"visible {value}": Story({VISIBLE: value}) for value in ("", "3", "GPU-deadbeef", "0,1", "1,0", "0,0", "-1")},
    **{
        f"{name} {value}": Story({name: value})
        for name, value in (
            (IFNAME, "eth99"), ("NCCL_ALGO", "bogus"), ("NCCL_PROTO", "LL256"), ("NCCL_NET", "bogus"),
            ("NCCL_NET", "IB"), ("NCCL_NET_PLUGIN", "bogus"), ("NCCL_DEBUG_FILE", "/nowhere/x"),
            ("NCCL_TOPO_FILE", "/nowhere.xml"), ("NCCL_BUFFSIZE", "-1"), ("NCCL_SOCKET_FAMILY", "AF_INET6"),
            ("NCCL_COMM_ID", "203.0.113.7:5000"), ("NCCL_TUNER_PLUGIN", "bogus"), ("NCCL_NVLS_ENABLE", "2"),
            ("NCCL_IB_HCA", "mlx5_9"), ("NCCL_IB_GID_INDEX", "99"), ("NCCL_NTHREADS", "7"),
            ("NCCL_CONF_FILE", "/nowhere"), (ALLOCATOR, "bogus:1"), (ALLOCATOR, "max_split_size_mb:1"),
            (ALLOCATOR, "expandable_segments:yes"), ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "abc"),
            ("TORCH_NCCL_TRACE_BUFFER_SIZE", "abc"), ("CUDA_DEVICE_MAX_CONNECTIONS", "0"),
            ("CUDA_MODULE_LOADING", "bogus"), ("CUDA_FORCE_PTX_JIT", "1"), ("CUBLAS_WORKSPACE_CONFIG", ":bad"),
            ("CUDA_DEVICE_ORDER", "bogus"), ("CUDA_MPS_PIPE_DIRECTORY", "/nowhere"), ("LD_PRELOAD", "/nowhere.so"),
            ("HIP_VISIBLE_DEVICES", "-1"), ("NVIDIA_VISIBLE_DEVICES", "void"), ("OMP_NUM_THREADS", "abc"),
            ("CUDA_LAUNCH_BLOCKING", "1"), ("MASTER_ADDR", "203.0.113.9"), ("TMPDIR", "/nowhere"),
        )
    },
    **{
        f"{name} {value!r}": Story({name: value})
        for name, values in (
            (VISIBLE, ("0,", " 0", "00", "0x0", "nvidia0", "GPU-", "all", "cuda:0", "0 1", "0;1")),
            (IFNAME, ("=lo", "^lo", "lo,eth0", "l")),
            ("NCCL_CUMEM_ENABLE", ("abc", "0")), ("NCCL_DEBUG", ("bogus", "TRACE")), ("NCCL_MAX_NCHANNELS", ("0",)),
            ("NCCL_MIN_NCHANNELS", ("99",)), ("NCCL_NSOCKS_PERTHREAD", ("64",)), ("NCCL_SOCKET_NTHREADS", ("-1",)),
            ("NCCL_P2P_LEVEL", ("bogus",)), ("NCCL_CROSS_NIC", ("5",)), ("NCCL_CTA_POLICY", ("bogus",)),
            ("NCCL_WORK_FIFO_BYTES", ("7",)), ("NCCL_CGA_CLUSTER_SIZE", ("99",)), ("NCCL_MAX_CTAS", ("abc",)),
            ("NCCL_RAS_ADDR", ("bogus", "203.0.113.1:28028")), ("NCCL_PROFILER_PLUGIN", ("bogus",)),
            ("NCCL_TOPO_DUMP_FILE", ("/nowhere/x",)), ("NCCL_P2P_NET_CHUNKSIZE", ("1",)),
            ("TORCH_NCCL_BLOCKING_WAIT", ("1",)), ("TORCH_NCCL_USE_COMM_NONBLOCKING", ("1",)),
            ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", ("1", "abc")), ("TORCH_NCCL_ENABLE_MONITORING", ("abc",)),
            ("TORCH_DISTRIBUTED_DEBUG", ("BOGUS", "DETAIL")), ("PYTORCH_ALLOC_CONF", ("bogus:1",)),
            (ALLOCATOR, ("garbage_collection_threshold:2", "backend:bogus", "roundup_power2_divisions:3")),
            (ALLOCATOR, ("max_split_size_mb:-5", "expandable_segments:True", "max_split_size_mb=128")),
            ("PYTORCH_NO_CUDA_MEMORY_CACHING", ("1",)), ("CUDA_CACHE_PATH", ("/nowhere",)), ("TORCH_LOGS", ("bogus",)),
            ("TORCH_CPP_LOG_LEVEL", ("BOGUS",)), ("PYTHONHOME", ("/nowhere",)), ("HOME", ("/nowhere",)),
        )
        for value in values
    },
    **{
        f"emptied {name}": Story(before=emptied(name))
        for name in ("libnccl.so.2", "libcudart.so.13", "libcublas.so.13", "libcudnn.so.9", "libstdc++.so.6")
    },
    "/dev/shm read-only": Story(before="mount -t tmpfs -o ro none /dev/shm"),
    "driver's folder hidden": Story(before="mount -t tmpfs none /proc/driver/nvidia"),
    "address space of 60 GB": Story(before="ulimit -v 60000000"),
    **{f"hidden {name}": Story(before=hidden(name)) for name in ("/dev/nvidia0", "/dev/nvidia-uvm", "/dev/nvidiactl")},
    **{f"emptied {name}": Story(before=emptied(name)) for name in ("libcuda.so.1", "libnvidia-ml.so.1")},
    "driver's version hidden": Story(before=hidden("/proc/driver/nvidia/version")),
    "small /dev/shm": Story(before="mount -t tmpfs -o size=64k none /dev/shm"),
    "address space": Story(before="ulimit -v 20000000"),
    "open files": Story(before="ulimit -n 64"),
    "locked memory": Story(before="ulimit -l 0"),
    "nccl.conf": Story(
        before=f"d=$(mktemp -d); cp -a /etc/. $d; echo {IFNAME}=eth99 >$d/nccl.conf; mount --bind $d /etc"
    ),
    "two ranks": Story(ranks=2),
}  # fmt: skip


class Run(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    seconds: float


def run(story: Story, command: list[str], limit: int) -> Run:
    """In a namespace of its own."""
    variables = [f"export {name}={shlex.quote(value)}" for name, value in story.variables.items()]
    text = "; ".join([story.before, *variables, f"exec {shlex.join(command)}"])
    began = time.monotonic()
    namespace = ["unshare", "-m", "--propagation", "private", "timeout", "-k", "5", str(limit), "bash", "-c", text]
    ended = subprocess.run(namespace, capture_output=True, text=True, errors="replace", check=False)
    return Run(ended.returncode, ended.stdout + ended.stderr, time.monotonic() - began)


def tell(name: str, python: str) -> str:
    """The job, then doctor; two lines."""
    story = STORIES[name]
    ranks = ["--standalone", "--nproc-per-node", str(story.ranks), str(PROGRAM)]
    job = run(story, [python, "-m", "torch.distributed.run", *ranks], 60)
    variables = [f"{variable}={value}" for variable, value in story.variables.items()]
    options = ["--tier", "smoke", "--python", python, "--ignore", "gpu-busy", "--", "env", *variables, "torchrun"]
    doctor = run(story, [sys.executable, "-m", "doctor", "preflight", *options, *ranks], 200)
    mark = "==" if (job.code == 0) == (doctor.code == 0) else "XX"
    times = f"job {job.code} after {job.seconds:.0f} s, doctor {doctor.code} after {doctor.seconds:.0f} s"
    return f"{mark} {name}: {times}\n   {doctor.out.strip()[:400]}"


def conduct(description: str | None, names: Iterable[str], tell: Callable[[str, str], str], jobs: int) -> None:
    """Prints what ``tell`` says of each name with the chosen interpreter, several at once."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--python", default=sys.executable, help="with torch for CUDA")
    parser.add_argument("--jobs", type=int, default=jobs)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of those that there are")
    options = parser.parse_args()
    os.environ["DOCTOR_HISTORY"] = "off"
    with ThreadPoolExecutor(options.jobs) as pool:
        for lines in pool.map(lambda name: tell(name, options.python), options.names or names):
            print(lines, flush=True)


if __name__ == "__main__":
    conduct(__doc__, STORIES, tell, jobs=8)
