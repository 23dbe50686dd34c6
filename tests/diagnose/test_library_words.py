"""Words of libraries, from their sources: each is a failure, and a process that waited accuses nobody for it."""

# ruff: noqa: E501
from __future__ import annotations

import pytest

from tests.diagnose.test_rules import logs

WAITS = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:1234",
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:799] connect [127.0.0.1]:1234: Connection refused",
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:799] connect [10.0.0.7]:40123: No route to host",
    "RuntimeError: Application timeout caused pair closure",
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:575] Read timeout [10.0.0.2]:1234",
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:575] writev [10.0.0.2]:1234: Broken pipe",
    "RuntimeError: Wait timeout for key(s): rank_1",
    "RuntimeError: Broken pipe",
    "RuntimeError: Socket Timeout",
    "RuntimeError: Connection timed out",
    "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
    "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cpu//0/rank_1",
    "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
    "torch.distributed.elastic.rendezvous.api.RendezvousGracefulExitError",
    "[1700000000.123456] [node1:1234:0]       tcp_ep.c:1104 UCX  ERROR  tcp_ep 0x1: connect to 10.0.0.2:4000 failed: Connection refused",
    "[1700000000.123456] [node1:1234:0]          ucp_ep.c:1 UCX  ERROR   Connection reset by remote peer",
)
"""What gloo, c10d, torch elastic and UCX print where a peer is lost or late."""
FAULTS = (
    "RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:83] ifa != nullptr. Unable to find interface for: [0.0.0.1]",
    "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: eth7",
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    "ValueError: Default process group has not been initialized, please make sure to call init_process_group.",
    "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable MASTER_ADDR expected, but not set",
    "RuntimeError: Ranks 1 failed to pass monitoredBarrier in 30000 ms",
    "RuntimeError: Rank 2 failed to pass monitoredBarrier in 30000 ms",
    "torch.distributed.elastic.agent.server.api:Received Signals.SIGTERM death signal, shutting down workers",
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 12 got signal: 15",
    "[1700000000.1] [n1:55:0] rc_mlx5_iface.c:100 UCX ERROR RC QP 0x1 local work queue error",
    "[node1:1234:0:1234] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)",
    "[1700000000.1] [n1:5:0] ib_device.c:1 UCX ERROR mlx5_0: ibv_open_device() failed: Cannot allocate memory",
    "[1700000000.1] [n1:5:0] mm_posix.c:1 UCX ERROR Not enough memory to write total of 4292720 bytes. Please check that /dev/shm or the directory you specified has more available memory.",
    "[n1:04312] *** An error occurred in MPI_Allreduce",
    "[n1:04312] *** MPI_ERR_TRUNCATE: message truncated",
    "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD",
    "mpirun detected that one or more processes exited with non-zero status, thus causing the job to be terminated. The first process to do so was:",
    "Open MPI tried to bind a new process, but something went wrong.",
    "There are not enough slots available in the system to satisfy the 16 slots",
    "jax.errors.JaxRuntimeError: INTERNAL: NCCL operation ncclGroupEnd() failed: unhandled system error",
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
    "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Failed to execute XLA Runtime executable: run time error: custom call 'xla.gpu.all_reduce' failed",
    "terminate called after throwing an instance of 'c10::Error'",
    "Fatal Python error: Segmentation fault",
    "Fatal Python error: Aborted",
    "free(): invalid pointer",
    "double free or corruption (!prev)",
    "malloc(): corrupted top size",
    "python: malloc.c:2617: sysmalloc: Assertion failed.",
    "*** stack smashing detected ***: terminated",
    "Illegal instruction (core dumped)",
    "Killed",
    "./run.sh: line 12:  4711 Killed                  python train.py",
    "OSError: [Errno 5] Input/output error",
    "OSError: [Errno 116] Stale file handle",
    "OSError: [Errno 122] Disk quota exceeded",
    "OSError: [Errno 24] Too many open files",
    "RuntimeError: unable to open shared memory object </torch_1> in read-write mode: Too many open files (24)",
    "RuntimeError: unable to mmap 64 bytes from file </torch_2>: Cannot allocate memory (12)",
    "BlockingIOError: [Errno 11] Resource temporarily unavailable",
    "RuntimeError: can't start new thread",
    "pthread_create failed: Resource temporarily unavailable",
    "OpenBLAS blas_thread_init: pthread_create failed for thread 63 of 64: Resource temporarily unavailable",
    "RuntimeError: No CUDA GPUs are available",
    "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment",
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
    "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "RuntimeError: CUDA error: unspecified launch failure",
    "RuntimeError: CUDA error: an illegal instruction was encountered",
    "RuntimeError: CUDA error: misaligned address",
    'RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":1123',
    "HIP error: invalid device function",
    "RuntimeError: HIP out of memory. Tried to allocate 2.00 GiB",
    "Memory access fault by GPU node-2 (Agent handle: 0x1) on address 0x7f. Reason: Page not present or supervisor privilege.",
    ":0:rocdevice.cpp :2614: Callback: Queue 0x7f Aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES",
)


@pytest.mark.parametrize("text", [*WAITS, *FAULTS])
def test_it_is_a_failure(text: str) -> None:
    assert logs(train=text).failed


@pytest.mark.parametrize("text", WAITS)
def test_a_process_that_lost_a_peer_is_not_at_fault(text: str) -> None:
    diagnosis = logs(train=f"step 4/9 loss 1.0\n{text}")
    assert not any(cause.culprits or cause.confidence != "possible" for cause in diagnosis.causes)
    assert diagnosis.causes or diagnosis.undecidable


@pytest.mark.parametrize(
    "text", ["Killed by the early stopping callback at step 3", "free() memory after step 4", "malloc() 3 MB"]
)
def test_like_words_of_a_program_are_no_failure(text: str) -> None:
    assert not logs(train=f"{text}\nstep 5/9 loss 1.0").failed
