"""The values that variables of NCCL, torch and OpenMP may have, where their reader passes over a bad one. Pure.

Sources: NCCL, "Environment Variables" (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html) and src/ of
2.29 (https://github.com/NVIDIA/nccl): ``ncclLoadParam`` reads numbers with strtoll and base 0, so that of ``true`` 0 is
left and of ``8M`` 8; ``ncclDebugInit``, ``ncclGetLevel``, ``ncclEnvSocketFamily``, ``ncclNetInit``;
NCCL_ALGO and NCCL_PROTO are in `doctor.job.nccl_lists`.
PyTorch, torch/csrc/distributed/c10d/Utils.hpp (``getCvarBool``, ``getCvarInt``, which raise) and
c10/core/AllocatorConfig.cpp. OpenMP 5.2, chapter 21; libgomp prints "Invalid value for environment variable" and goes
on (GCC 14, measured). CUDA, "CUDA Environment Variables".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_NUMBER = r"\s*[+-]?(0[xX][0-9a-fA-F]+|[0-9]+)\s*"
_LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS")
_SUBSYSTEMS = (
    "INIT|COLL|P2P|SHM|NET|GRAPH|TUNING|ENV|ALLOC|CALL|PROXY|NVLS|BOOTSTRAP|REG|PROFILE|RAS|GIN|ALLOC_HOST|DESTROY|ALL"
)
_ENDPOINT = r"(\[[^\]]+\]|[^:\[\]]+):[0-9]{1,5}"

LARGEST, MOST_DIGITS = (1 << 63) - 1, 24
"""Of C's long long; more digits than it has in any base. Python refuses to read numbers of thousands of digits."""

Rule = Callable[[str], str]
"""What is expected instead of a value, or the empty string."""


def _one_of(*choices: str) -> Rule:
    folded = {choice.lower() for choice in choices}
    return lambda value: "" if value.strip().lower() in folded else "one of " + ", ".join(choices)


def _matching(pattern: str, expected: str) -> Rule:
    return lambda value: "" if len(value) < 4096 and re.fullmatch(pattern, value, re.ASCII | re.I) else expected


def _exactly(pattern: str, expected: str) -> Rule:
    """As `_matching`, where NCCL compares with strcmp: small letters are another word."""
    return lambda value: "" if len(value) < 4096 and re.fullmatch(pattern, value, re.ASCII | re.DOTALL) else expected


def _number(least: int, most: int) -> Rule:
    def rule(value: str) -> str:
        right = re.fullmatch(_NUMBER, value, re.ASCII) and least <= _strtoll(value) <= most
        return "" if right else f"a whole number from {least} to {most}"

    return rule


def _strtoll(value: str) -> int:
    """What C's strtoll makes of it with base 0: the number that it begins with, else 0; one that is too large is cut.

    >>> _strtoll("8M"), _strtoll("-010"), _strtoll("0x1f"), _strtoll("9" * 5000) == LARGEST
    (8, -8, 31, True)
    """
    match = re.match(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|[0-9]+)", value, re.ASCII)
    if not match:
        return 0
    text = match[2].lower()
    digits = re.match(r"0[0-7]*", text) if text.startswith("0") and not text.startswith("0x") else None
    base = 8 if digits else 16 if text.startswith("0x") else 10
    significant = (digits[0] if digits else text.removeprefix("0x")).lstrip("0")[:MOST_DIGITS]
    number = min(int(significant or "0", base), LARGEST)
    return -number if match[1] == "-" else number


def _any_number(value: str) -> str:
    right = re.fullmatch(_NUMBER, value, re.ASCII)
    return "" if right else f"a whole number: NCCL reads {_strtoll(value)} there"


_NCCL_NUMBERS = """
BUFFSIZE CGA_CLUSTER_SIZE CHECKS_DISABLE COLLNET_ENABLE COLLNET_NODE_THRESHOLD COMM_BLOCKING CUMEM_ENABLE
CUMEM_HOST_ENABLE DMABUF_ENABLE GDRCOPY_ENABLE GRAPH_MIXING_SUPPORT GRAPH_REGISTER IB_ADAPTIVE_ROUTING
IB_AR_THRESHOLD IB_CUDA_SUPPORT IB_DATA_DIRECT IB_DISABLE IB_ECE_ENABLE IB_FIFO_TC IB_GID_INDEX IB_MERGE_NICS
IB_PKEY IB_QPS_PER_CONNECTION IB_RETURN_ASYNC_EVENTS IB_ROCE_VERSION_NUM IB_SPLIT_DATA_ON_QPS IB_USE_INLINE
IGNORE_CPU_AFFINITY LAUNCH_ORDER_IMPLICIT LAUNCH_RACE_FATAL LOCAL_REGISTER MAX_CTAS MAX_NCHANNELS MAX_P2P_NCHANNELS
MEM_SYNC_DOMAIN MIN_CTAS MIN_NCHANNELS MIN_P2P_NCHANNELS NCHANNELS_PER_NET_PEER NET_GDR_C2C NET_GDR_READ
NET_SHARED_BUFFERS NET_SHARED_COMMS NVB_DISABLE NVLS_CHUNKSIZE OOB_NET_ENABLE P2P_DIRECT_DISABLE P2P_DISABLE
P2P_LL_THRESHOLD P2P_NET_CHUNKSIZE P2P_PXN_LEVEL P2P_READ_ENABLE PXN_C2C PXN_DISABLE RAS_ENABLE RAS_TIMEOUT_FACTOR
RUNTIME_CONNECT SET_STACK_SIZE SHM_DISABLE SHM_LOCALITY SHM_USE_CUDA_MEMCPY SINGLE_PROC_MEM_REG_ENABLE
SOCKET_RETRY_CNT SOCKET_RETRY_SLEEP_MSEC UID_STAGGER_RATE UID_STAGGER_THRESHOLD WIN_ENABLE
"""
_TORCH_TRUTHS = """
AVOID_RECORD_STREAMS BLOCKING_WAIT CUDA_EVENT_CACHE DESYNC_DEBUG DUMP_ON_TIMEOUT ENABLE_MONITORING ENABLE_TIMING
HIGH_PRIORITY LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN NAN_CHECK PROPAGATE_ERROR RETHROW_CUDA_ERRORS
SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING USE_COMM_NONBLOCKING USE_TENSOR_REGISTER_ALLOCATOR_HOOK
"""
_TORCH_NUMBERS = """
ASYNC_ERROR_HANDLING COORD_CHECK_MILSEC HEARTBEAT_TIMEOUT_SEC TRACE_BUFFER_SIZE WAIT_TIMEOUT_DUMP_MILSEC
"""

_LEVEL = _exactly("|".join(_LEVELS[:-2]) + "|[0-9].*", ", ".join(_LEVELS[:-2]) + ", in capitals")
_FAMILY = _exactly("AF_INET6?", "AF_INET or AF_INET6, in capitals")
_NO_NETWORK = (
    r"(?i:tcp|tcp/?ip|udp|sockets|eth(ernet)?[0-9]*|roce(v2)?|infiniband|rdma|verbs|ib[0-9]+|mlx.*|true|false|on|off)"
)

PASSED_OVER: Mapping[str, Rule] = {
    "CUDA_DEVICE_MAX_CONNECTIONS": _number(1, 32),
    "NCCL_CROSS_NIC": _number(0, 2),
    "NCCL_CTA_POLICY": _matching(
        r"-?[0-9]{1,2}|(DEFAULT|EFFICIENCY|ZERO)(\|(DEFAULT|EFFICIENCY|ZERO))*", "DEFAULT, EFFICIENCY or ZERO"
    ),
    "NCCL_DEBUG": _one_of("VERSION", "WARN", "INFO", "TRACE", "ABORT", "NONE"),
    "NCCL_DEBUG_SUBSYS": _matching(
        rf"\^?({_SUBSYSTEMS})(,\^?({_SUBSYSTEMS}))*", "such as INIT,NET, of " + _SUBSYSTEMS.replace("|", ", ")
    ),
    "NCCL_IB_ADDR_FAMILY": _FAMILY,
    "NCCL_IB_PCI_RELAXED_ORDERING": _number(0, 2),
    "NCCL_IB_RETRY_CNT": _number(0, 7),
    "NCCL_IB_SL": _number(-1, 15),
    "NCCL_IB_TC": _number(-1, 255),
    "NCCL_IB_TIMEOUT": _number(0, 31),
    "NCCL_LAUNCH_MODE": _one_of("GROUP", "PARALLEL"),
    "NCCL_MNNVL_ENABLE": _number(0, 2),
    "NCCL_NETDEVS_POLICY": _matching(r"AUTO|ALL|MAX:[0-9]{1,3}", "AUTO, ALL or MAX:2"),
    "NCCL_NET_GDR_LEVEL": _LEVEL,
    "NCCL_NET_MERGE_LEVEL": _exactly(
        "(LOC|PORT|PIX|PXB|P2C|PXN|PHB|SYS).*", "LOC, PORT, PIX, PXB, P2C, PXN, PHB or SYS, in capitals"
    ),
    "NCCL_NET_MERGE_POLICY": _one_of("ALL", "RAIL"),
    "NCCL_NSOCKS_PERTHREAD": _number(-2, 16),
    "NCCL_NTHREADS": _one_of("-2", "64", "128", "256", "512", "1024"),
    "NCCL_NVLS_ENABLE": _number(0, 2),
    "NCCL_P2P_LEVEL": _LEVEL,
    "NCCL_RAS_ADDR": _matching(_ENDPOINT, "a host and a port, such as localhost:28028"),
    "NCCL_SOCKET_FAMILY": _FAMILY,
    "NCCL_SOCKET_NTHREADS": _number(-2, 16),
    "OMP_CANCELLATION": _one_of("true", "false"),
    "OMP_DYNAMIC": _one_of("true", "false"),
    "OMP_MAX_ACTIVE_LEVELS": _number(0, 1 << 31),
    "OMP_NUM_THREADS": _matching(
        r"\s*0*[1-9][0-9]{0,5}\s*(,\s*0*[1-9][0-9]{0,5}\s*)*", "whole numbers above 0, such as 8"
    ),
    "OMP_PLACES": _matching(
        r"\s*(sockets|cores|threads|ll_caches|numa_domains|\{.*\}.*|!.*|[0-9].*)\s*(\(.*\))?\s*",
        "sockets, cores, threads, ll_caches, numa_domains, or places such as {0:4}",
    ),
    "OMP_PROC_BIND": _matching(
        r"\s*(true|false|(primary|master|close|spread)\s*(,\s*(primary|master|close|spread)\s*)*)\s*",
        "true, false, primary, close or spread",
    ),
    "OMP_SCHEDULE": _matching(
        r"\s*((monotonic|nonmonotonic)\s*:\s*)?(static|dynamic|guided|auto)\s*(,\s*[0-9]{1,9}\s*)?",
        "static, dynamic, guided or auto, such as dynamic,4",
    ),
    "OMP_STACKSIZE": _matching(r"\s*[0-9]{1,15}\s*[BKMG]?\s*", "a number with B, K, M or G, such as 16M"),
    "OMP_THREAD_LIMIT": _number(1, 1 << 31),
    "OMP_WAIT_POLICY": _one_of("active", "passive"),
    "TORCH_SHOW_CPP_STACKTRACES": _one_of("0", "1"),
    **dict.fromkeys(
        [f"NCCL_{name}" for name in _NCCL_NUMBERS.split()],
        _any_number,
    ),
}
"""Rules for values that are replaced by a default, cut, or read as another value: the job goes on without the wish."""

TRUTH_WORDS = ("1", "0", "true", "false", "yes", "no", "y", "n", "t", "f")
_TRUTH = _one_of(*TRUTH_WORDS)
_PAIR = r"\s*[a-z0-9_]+\s*:\s*(\[[^\]]*\]|[^,\[\]=]+)"
_ALLOCATOR = _matching(
    rf"{_PAIR}(,{_PAIR})*,?", "names and values, such as expandable_segments:True,max_split_size_mb:128"
)
_BEGINS_WITH_NUMBER = _matching(r"\s*[+-]?[0-9].*", "a whole number")

ENDS_NCCL: Mapping[str, Rule] = {
    "NCCL_COMM_ID": _matching(_ENDPOINT, "a host and a port, such as 10.0.0.1:29400"),
    "NCCL_NET": lambda value: (
        "IB or Socket, or the name of a plugin" if re.fullmatch(rf"{_NO_NETWORK}|[0-9]+", value, re.ASCII) else ""
    ),
    "PYTORCH_ALLOC_CONF": _ALLOCATOR,
    "PYTORCH_CUDA_ALLOC_CONF": _ALLOCATOR,
    **dict.fromkeys(
        [f"TORCH_NCCL_{name}" for name in _TORCH_TRUTHS.split()],
        _TRUTH,
    ),
    **dict.fromkeys(
        [f"TORCH_NCCL_{name}" for name in _TORCH_NUMBERS.split()],
        _BEGINS_WITH_NUMBER,
    ),
}
"""Rules for values with which a process group of NCCL, or the allocator of CUDA, raises an error."""


def refused(env: Mapping[str, str], rules: Mapping[str, Rule]) -> list[tuple[str, str, str]]:
    """Variable, value and what was expected instead, by name.

    >>> refused({"NCCL_P2P_DISABLE": "true", "NCCL_CROSS_NIC": "2"}, PASSED_OVER)
    [('NCCL_P2P_DISABLE', 'true', 'a whole number: NCCL reads 0 there')]
    """
    names = sorted(env.keys() & rules.keys())
    return [(name, env[name], expected) for name in names if (expected := rules[name](env[name]))]
