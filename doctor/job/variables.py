"""The environment variables that describe a job: the one list for settings, saved runs, checks and launchers. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from doctor.engine.sanitize import printable
from doctor.job.job_size import OF_STEP
from doctor.job.job_size import VARIABLES as SIZE_VARIABLES
from doctor.remote.runtime.job_variables import job_variables

TORCH_PORT = 29500
"""PyTorch's MASTER_PORT where nothing sets it."""
RENDEZVOUS_PORT = 29400
"""The port of torchrun's `--rdzv-endpoint` where it names none."""
MINDSPORE_PORT = 8118
"""MindSpore's MS_SCHED_PORT where nothing sets it."""

WORLD_SIZE_VARIABLES = ("WORLD_SIZE", "RANK_SIZE", "MS_WORKER_NUM")
"""How many ranks the job has, the first that is set."""

MASTER_PORT = "MASTER_PORT"
"""Where torch's ranks meet, at MASTER_ADDR."""

JOB_WIDE = ("MASTER_ADDR", MASTER_PORT, "WORLD_SIZE", "RANK_SIZE", "MS_SCHED_HOST", "MS_SCHED_PORT", "MS_WORKER_NUM")
"""Where all ranks meet, and how many they are: one value for the whole job."""

TABLE_VARIABLES = ("RANK_TABLE_FILE", "MINDSPORE_HCCL_CONFIG_PATH")
"""What names the job's rank table, the first that is set."""

AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
"""``True``: torchrun's agent listens at MASTER_PORT."""

GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
NCCL_INTERFACE = "NCCL_SOCKET_IFNAME"
HCCL_INTERFACE = "HCCL_SOCKET_IFNAME"
HCCL_ADDRESS = "HCCL_IF_IP"
TENSORPIPE_INTERFACE = "TP_SOCKET_IFNAME"
MINDSPORE_ADDRESS = "MS_WORKER_IP"
ADDRESSES = (HCCL_ADDRESS, MINDSPORE_ADDRESS)
OPENMPI_INTERFACES = ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include")
OPENMPI_EXCLUDED = "OMPI_MCA_btl_tcp_if_exclude"
OPENMPI_TRANSPORTS = ("OMPI_MCA_btl", "OMPI_MCA_pml")

INTERFACE_VARIABLES = (
    GLOO_INTERFACE,
    NCCL_INTERFACE,
    "NCCL_SOCKET_FAMILY",
    HCCL_INTERFACE,
    HCCL_ADDRESS,
    "HCCL_SOCKET_FAMILY",
    TENSORPIPE_INTERFACE,
    MINDSPORE_ADDRESS,
    "UCX_NET_DEVICES",
    *OPENMPI_INTERFACES,
    OPENMPI_EXCLUDED,
    *OPENMPI_TRANSPORTS,
)
"""Which network interface each communication library takes; each host may have its own value."""

RANK_NUMBERS = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK")
"""Which rank, or which host, a process is: another value on each host."""

VISIBLE_DEVICES = ("ASCEND_RT_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""The devices of a host that its processes may use; their rules: `VISIBLE` of `doctor.smoke.programs.agent.procfs`."""

TORCH_DEBUG = "TORCH_DISTRIBUTED_DEBUG"
_EQUAL = """
NCCL_ALGO NCCL_PROTO NCCL_NTHREADS NCCL_BUFFSIZE NCCL_LL_BUFFSIZE NCCL_LL128_BUFFSIZE NCCL_P2P_NET_CHUNKSIZE NCCL_NET
NCCL_NET_PLUGIN NCCL_IB_DISABLE NCCL_SOCKET_FAMILY NCCL_COLLNET_ENABLE NCCL_NVLS_ENABLE NCCL_COMM_ID HCCL_ALGO
HCCL_ALG_MULTIPLE_DIMENSION_SPLIT_RATIO HCCL_BUFFSIZE HCCL_DETERMINISTIC HCCL_INTER_HCCS_DISABLE
HCCL_INTRA_PCIE_ENABLE HCCL_INTRA_ROCE_ENABLE HCCL_NPU_SOCKET_PORT_RANGE HCCL_OP_EXPANSION_MODE HCCL_OP_RETRY_ENABLE
HCCL_RDMA_SL HCCL_RDMA_TC HCCL_SOCKET_FAMILY HCCL_WHITELIST_DISABLE GLOO_DEVICE_TRANSPORT
GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER TORCH_GLOO_LAZY_INIT TORCH_DIST_INIT_BARRIER MS_ENABLE_LCCL MS_ENABLE_RECOVERY
"""
EQUAL_EVERYWHERE = (*_EQUAL.split(), TORCH_DEBUG)
"""Settings by which ranks agree on algorithm, transport and message sizes: where they differ, ranks wait for ever."""

BY_HOST = (*JOB_WIDE, *INTERFACE_VARIABLES, *VISIBLE_DEVICES, *EQUAL_EVERYWHERE)
"""What each host's own environment may have with another value."""

_AS_UNSET = {
    TORCH_DEBUG: ("off", "info"),
    "GLOO_DEVICE_TRANSPORT": ("tcp",),
    "TORCH_GLOO_LAZY_INIT": ("0", "false"),
    "TORCH_DIST_INIT_BARRIER": ("0",),
}
"""Values with which torch does what it does without the variable, or only prints more."""

_OF_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "_CONDOR_SLOT")
_NAMES = frozenset((*BY_HOST, *TABLE_VARIABLES, AGENT_STORE, *SIZE_VARIABLES, *_OF_JOBS, "SLURM_DISTRIBUTION", OF_STEP))
_FAMILIES = re.compile(
    r"(HCCL|NCCL|GLOO|TP|TORCH_(HCCL|NCCL|GLOO|FR|DIST|DISTRIBUTED)|MS|MASTER|ASCEND|OMP)_[A-Z0-9_]+"
)
_AT_START = re.compile(
    r"(TORCH|PYTORCH|OMP|GOMP|KMP|MKL|OPENBLAS)_[A-Z0-9_]+|PYTHON[A-Z0-9]+|GLOO_DEVICE_TRANSPORT|NCCL_CONF_FILE|LD_(LIBRARY_PATH|PRELOAD)"
)
_SECRET = re.compile(r"PASS|SECRET|TOKEN|CREDENTIAL|(^|_)(API)?KEY(_|$)")


_EMPTY_COUNTS = frozenset(("CUDA_VISIBLE_DEVICES", "TORCH_LOGS", *_AS_UNSET))
"""Variables that hide every GPU when they are empty, or end torch (2.13, measured)."""


def relevant(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that describe a job, by name, without secrets, each bounded. An empty value counts as unset.

    But for `_EMPTY_COUNTS`.

    >>> relevant({"WORLD_SIZE": "8", "HCCL_BUFFSIZE": "", "MS_TOKEN": "x", "CUDA_VISIBLE_DEVICES": ""})
    {'CUDA_VISIBLE_DEVICES': '', 'WORLD_SIZE': '8'}
    """
    names = sorted(name for name in environ if _describes_job(name) and (environ[name] or name in _EMPTY_COUNTS))
    return {name: printable(environ[name], 4096) for name in names}


def of_one_host(environ: Mapping[str, str]) -> dict[str, str]:
    """`relevant`, and the numbers of the rank or the host that this process is.

    >>> of_one_host({"RANK": "3", "WORLD_SIZE": "8", "HOME": "/root"})
    {'WORLD_SIZE': '8', 'RANK': '3'}
    """
    numbers = {name: printable(environ[name], 40) for name in RANK_NUMBERS if environ.get(name)}
    return {**relevant(environ), **numbers}


def communication(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables by which a job sets how its ranks communicate, each bounded. An empty value counts as unset.

    >>> communication({"GLOO_SOCKET_IFNAME": "eth1", "MASTER_ADDR": "node1", "NCCL_DEBUG": ""})
    {'GLOO_SOCKET_IFNAME': 'eth1'}
    """
    return {name: printable(value, 256) for name, value in job_variables(environ).items() if not _SECRET.search(name)}


def comparable(name: str, value: str) -> str:
    """What ranks must have alike of a variable's value; empty: as where it is not set.

    >>> comparable("TORCH_DISTRIBUTED_DEBUG", "INFO"), comparable("NCCL_ALGO", "Ring")
    ('', 'ring')
    """
    lower = value.lower()
    return "" if lower in _AS_UNSET.get(name, ()) else lower


def at_start(environ: Mapping[str, str], with_path: bool, with_libraries: bool = False) -> dict[str, str]:
    """The variables that Python, torch and its math libraries read while they start, each bounded.

    ``with_path``: also PYTHONPATH, which another host may have otherwise. ``with_libraries``: also LD_LIBRARY_PATH,
    which a login on the host decides, unless the launcher gives all hosts its own.

    >>> at_start({"TORCH_LOGS": "all", "PYTHONPATH": "/a", "OMP_STACKSIZE": "", "HOME": "/root"}, False)
    {'TORCH_LOGS': 'all'}
    """
    names = sorted(
        name for name in environ if _AT_START.fullmatch(name) and environ[name] and "\0" not in environ[name]
    )
    kept = [name for name in names if not _SECRET.search(name) and (with_path or name != "PYTHONPATH")]
    kept = [name for name in kept if with_libraries or not name.startswith("LD_")]
    return {name: environ[name] for name in kept[:64] if len(environ[name]) <= 4096}


def _describes_job(name: str) -> bool:
    if _SECRET.search(name):
        return False
    if name in _NAMES or _FAMILIES.fullmatch(name):
        return True
    from doctor.job.variable_names import documented_variables, intended_name

    return name in documented_variables(describing_job=True) or bool(intended_name(name))
