"""Since which version a library reads a variable, and until which one it did. Pure.

Sources: NCCL, its 62 releases from 2.3.5 to 2.30.7 (``NCCL_PARAM``, ``ncclGetEnv`` and ``getenv`` in src/ of each tag,
https://github.com/NVIDIA/nccl): the first release that reads the name. PyTorch, pull request 114077 (torch 2.2 gives
its variables the prefix TORCH_NCCL_, and still reads the old names). torch_npu and HCCL: see
`doctor.job.npu_variable_versions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

import msgspec

from doctor.engine.version_matrix import version_numbers
from doctor.job.npu_variable_versions import HCCL_SINCE, unread_by_torch_npu

_NCCL_SINCE = """
2.10.3: IB_QPS_PER_CONNECTION NET
2.11.4: GRAPH_HELPER_DISABLE GRAPH_REGISTER NET_PLUGIN
2.12.7: CHUNK_SIZE GDRCOPY_SYNC_ENABLE IB_PCI_RELAXED_ORDERING IGNORE_DISABLED_P2P NCHANNELS_PER_NET_PEER
  NET_DISABLE_INTRA NET_SHARED_COMMS P2P_PXN_LEVEL PXN_DISABLE
2.12.10: L1_SHARED_MEMORY_CARVEOUT
2.12.12: P2P_DIRECT_DISABLE
2.13.4: CREATE_THREAD_CONTEXT DMABUF_ENABLE GRAPH_MIXING_SUPPORT P2P_USE_CUDA_MEMCPY SHM_LOCALITY SHM_MEMCPY_MODE
  SHM_USE_CUDA_MEMCPY
2.14.3: ALLOC_P2P_NET_LL_BUFFERS COMM_BLOCKING P2P_LL_THRESHOLD P2P_NET_CHUNKSIZE PROXY_DUMP_SIGNAL
2.15.1: CGA_CLUSTER_SIZE NET_FORCE_FLUSH
2.16.2: IB_ADAPTIVE_ROUTING MEM_SYNC_DOMAIN P2P_NVL_CHUNKSIZE P2P_PCI_CHUNKSIZE PROXY_APPEND_BATCH_SIZE
2.16.5: PROGRESS_APPENDOP_FREQ
2.17.1: MAX_CTAS MIN_CTAS NVLS_ENABLE NVLS_NCHANNELS
2.18.1: COMM_SPLIT_SHARE_RESOURCES CUMEM_ENABLE IB_MERGE_VFS IB_SPLIT_DATA_ON_QPS NET_OVERHEAD
2.19.1: LOCAL_REGISTER TUNER_PLUGIN
2.19.4: CONNECT_ROUND_MAX_PEERS REPORT_CONNECT_PROGRESS WARN_ENABLE_DEBUG_INFO
2.20.3: IB_MERGE_NICS NVLSTREE_MAX_CHUNKSIZE
2.21.5: IB_ADDR_FAMILY IB_ADDR_RANGE IB_ROCE_VERSION_NUM MNNVL_ENABLE NVLS_CHUNKSIZE
2.22.3: IB_FIFO_TC IB_ROUTABLE_FLID_GID_INDEX RUNTIME_CONNECT UNPACK_DOUBLE_NCHANNELS WORK_ARGS_BYTES
  WORK_FIFO_BYTES
2.23.4: CONF_FILE CUMEM_HOST_ENABLE IB_ECE_ENABLE IB_RETURN_ASYNC_EVENTS MNNVL_CLIQUE_ID OOB_NET_ENABLE
  OOB_NET_IFNAME PAT_ENABLE PROFILER_PLUGIN UID_STAGGER_RATE UID_STAGGER_THRESHOLD
2.24.3: IB_MQP_RETRY_ALL IB_MQP_RETRY_CNT IB_MQP_RETRY_SLEEP_MSEC IB_WARN_RAIL_LOCAL LEGACY_CUDA_REGISTER
  NET_FORCE_MERGE NET_MERGE_LEVEL NET_OPTIONAL_RECV_COMPLETION RAS_ADDR RAS_ENABLE RAS_TIMEOUT_FACTOR
  SOCKET_RETRY_CNT SOCKET_RETRY_SLEEP_MSEC
2.25.1: MNNVL_UUID
2.26.2: DEBUG_TIMESTAMP_FORMAT DEBUG_TIMESTAMP_LEVELS LAUNCH_ORDER_IMPLICIT LAUNCH_RACE_FATAL NET_GDR_C2C
  NET_PLUGIN_REF_COUNT
2.27.3: COMM_SHRINK_SHARE_RESOURCES CTA_POLICY IB_DATA_DIRECT LL128_C2C NVLINK_UTIL_CENTRIC_SCHED_ENABLE PXN_C2C
  SOCKET_INLINE SOCKET_MIN_TASKSIZE SOCKET_RCVBUF SOCKET_SNDBUF SYM_CTAS SYM_KERNEL WIN_ENABLE WIN_STRIDE
2.27.5: MNNVL_SCATTER_NETS_ENABLE
2.28.3: NETDEVS_POLICY NVTX_DISABLE PROXY_CPUSET SET_CPU_STACK_SIZE SINGLE_PROC_MEM_REG_ENABLE
2.28.7: ENV_PLUGIN GIN_ENABLE GIN_ERROR_QUERY_SEC GIN_GDAKI_NIC_HANDLER GIN_GDAKI_QP_DEPTH GIN_PROXY_QUEUE_SIZE
  GIN_TYPE MNNVL_RAIL_PER_HOST P2P_SCHEDULE_GROUP_SIZE
2.29.2: ALLGATHERV_ENABLE ENABLE_VERSION_CHECK IPC_USE_ABSTRACT_SOCKET MULTI_SEGMENT_REGISTER NUM_RMA_CTX
  P2P_EPOCH_ENABLE P2P_PER_CHANNEL_NET_BW RMA_PROXY_DUMP_SIGNAL RMA_PROXY_QUEUE_SIZE SOCKET_POLL_TIMEOUT_MSEC
  SYM_CE_THRESHOLD SYM_NOWIN_ENABLE
2.29.7: CHECK_MODE DISABLE_MEM_MANAGER GDAKI_USE_RELIABLE_DB GIN_NCONNECTIONS GIN_PLUGIN GIN_PLUGIN_REF_COUNT
  IB_DEVICE_PCI_ORDER IB_PREPOST_RECEIVE_WORK_REQUESTS IB_RECEIVER_SIDE_MATCHING_SCHEME IB_RESILIENCY_PORT_FAILOVER
  IB_RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS IB_RESILIENCY_PORT_FAILOVER_PROBE_DELAY LSA_TEAM_SIZE
  SYM_GIN_KERNELS_ENABLE
2.30.3: ELASTIC_BUFFER_REGISTER GIN_GDAKI_MAX_DEST_RD_ATOMIC GIN_GDAKI_MAX_QP_RD_ATOMIC IBVERBS_LIB IB_OOO_RQ
  IB_RESILIENCY_PORT_RECOVERY IB_RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT
  IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_INTERVAL IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE
  IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_TIMEOUT
  IB_RESILIENCY_PORT_RECOVERY_ATTEMPTS_MAX IB_RESILIENCY_PORT_RECOVERY_START_DELAY IGNORE_COLLNET_MISMATCH
  IGNORE_NET_MISMATCH MNNVL_CROSS_CLIQUE MULTI_RANK_GPU_ENABLE P2P_MAX_PEERS SYM_TMA_ENABLE
2.30.4: SYM_REUSE_SYSMEM_HANDLES
2.30.7: DEV_API_JIT GIN_IB_TC GRAPH_STREAM_ORDERING IB_QUERY_PORT_SPEED IB_SUBNET_AWARE_ROUTING IB_SUBNET_PREFIX_LEN
  MLOPART_RDMA_ENABLE NET_GDR_MLOPART NET_MERGE_POLICY RMA_DISABLE RMA_PLUGIN RMA_PLUGIN_REF_COUNT
  SHADOW_MEMPOOL_MAX_SIZE SOCKET_MAGIC SYM_RS_GIN_CHUNK_SIZE TOPO_SPLIT_MLOPART
"""
_NCCL_UNTIL = {
    "NCCL_IB_CUDA_SUPPORT": ("2.4.2", "NCCL_NET_GDR_LEVEL"),
    "NCCL_IB_GDR_LEVEL": ("2.4.2", "NCCL_NET_GDR_LEVEL"),
    "NCCL_LL_THRESHOLD": ("2.5.6", "NCCL_PROTO"),
    "NCCL_RINGS": ("2.5.6", "NCCL_GRAPH_FILE"),
    "NCCL_THREAD_THRESHOLD": ("2.5.6", "NCCL_THREAD_THRESHOLDS"),
    "NCCL_TREE_THRESHOLD": ("2.5.6", "NCCL_ALGO"),
    "NCCL_WORK_FIFO_DEPTH": ("2.22.3", "NCCL_WORK_FIFO_BYTES"),
}
_TORCH_OLD_NAMES = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "NCCL_ASYNC_ERROR_HANDLING",
    "TORCH_NCCL_BLOCKING_WAIT": "NCCL_BLOCKING_WAIT",
    "TORCH_NCCL_DESYNC_DEBUG": "NCCL_DESYNC_DEBUG",
    "TORCH_NCCL_ENABLE_TIMING": "NCCL_ENABLE_TIMING",
}
_TORCH_RENAMED = (2, 2)


class VariableNotRead(msgspec.Struct, frozen=True, order=True):
    """A variable that the installed version of its library ignores."""

    variable: str
    library: str
    since: str = ""
    """The first version that reads it; empty where it was removed."""
    until: str = ""
    """The first version that does not read it any more."""
    replacement: str = ""
    """The variable that does the same, or that comes nearest; empty for none."""


def not_read(
    environ: Mapping[str, str], nccl: str, torch: str, torch_npu: str = "", cann: str = ""
) -> Iterator[VariableNotRead]:
    """The variables that these versions ignore. The versions: such as 2.21.5; empty where not known.

    >>> [row.variable for row in not_read({"NCCL_NVLS_ENABLE": "0", "NCCL_DEBUG": "INFO"}, "2.10.3", "")]
    ['NCCL_NVLS_ENABLE']
    """
    installed = release_numbers(nccl)
    for name in sorted(environ):
        since = _nccl_since().get(name, "")
        until, replacement = _NCCL_UNTIL.get(name, ("", ""))
        if installed and since and installed < release_numbers(since):
            yield VariableNotRead(name, "NCCL", since=since)
        elif installed and until and installed >= release_numbers(until):
            yield VariableNotRead(name, "NCCL", until=until, replacement=replacement)
    release = release_numbers(torch)
    if release and release < _TORCH_RENAMED:
        for name in sorted(_TORCH_OLD_NAMES.keys() & environ.keys()):
            if _TORCH_OLD_NAMES[name] not in environ:
                yield VariableNotRead(name, "PyTorch", since="2.2", replacement=_TORCH_OLD_NAMES[name])
    for name, since, old in unread_by_torch_npu(environ, torch_npu):
        yield VariableNotRead(name, "torch_npu", since=since, replacement=old)
    for name, since in HCCL_SINCE.items():
        release = tuple(map(int, re.findall(r"[0-9]{1,4}", cann, re.ASCII)[:2]))  # 8.0.RC3, 9.1.0-beta.1
        if name in environ and release and release < release_numbers(since)[:2]:
            yield VariableNotRead(name, "HCCL", since=since)


@cache
def _nccl_since() -> dict[str, str]:
    """By variable, the release that reads it first."""
    versions: dict[str, str] = {}
    release = ""
    for word in _NCCL_SINCE.split():
        if word.endswith(":"):
            release = word[:-1]
        else:
            versions[f"NCCL_{word}"] = release
    return versions


def release_numbers(version: str) -> tuple[int, ...]:
    """``2.21.5`` and ``2.1.0+cu118`` as numbers; empty for what is no version."""
    try:
        return version_numbers(version.partition("+")[0])
    except ValueError:
        return ()
