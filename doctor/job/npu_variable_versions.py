"""Since which release torch_npu and HCCL read a variable. Pure.

Sources: torch_npu, its 74 releases from 5.0.rc2 to 26.2.0 for PyTorch 2 (names in torch_npu/ of each tag, and the
version of the package that the tag builds; https://github.com/Ascend/pytorch), with docs/zh/api/environment_variable.
HCCL, whose sources are public from CANN 8.5.0 on (src/ of the branches 8.5.0, 9.0.0, 9.1.0 and 9.2.0-beta.1 of
https://gitcode.com/cann/hccl and https://gitcode.com/cann/hcomm): what 8.5.0 reads is not judged for older releases.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

_PACKAGES = """
5.0.rc2: 2.0.1.rc1
5.0.rc3: 2.0.1 2.1.0.rc1
5.0.0: 2.0.1.post1 2.1.0
5.0.1: 2.0.1.post2 2.1.0.post1
5.0.1.1: 2.0.1.post3 2.1.0.post2
5.0.1.2: 2.0.1.post4 2.1.0.post4
6.0.rc1: 2.1.0.post3 2.2.0
6.0.rc1.1: 2.1.0.post5
6.0.rc2: 2.1.0.post6 2.2.0.post2 2.3.1
6.0.rc2.1: 2.1.0.post7 2.2.0.post3 2.3.1.post1
6.0.rc3: 2.1.0.post8 2.3.1.post2 2.4.0
6.0.0: 2.1.0.post10 2.3.1.post4 2.4.0.post2
6.0.0.1: 2.1.0.post11 2.3.1.post5 2.4.0.post3
7.0.0: 2.1.0.post12 2.3.1.post6 2.4.0.post4 2.5.1
7.0.0.1: 2.1.0.post15 2.4.0.post5
7.1.0: 2.1.0.post13 2.5.1.post1 2.6.0
7.1.0.1: 2.1.0.post14 2.5.1.post2 2.6.0.post1
7.1.0.2: 2.1.0.post16 2.5.1.post3 2.6.0.post2
7.2.0: 2.1.0.post17 2.6.0.post3 2.7.1 2.8.0
7.2.0.1: 2.6.0.post4 2.7.1.post1 2.8.0.post1
7.3.0: 2.6.0.post5 2.7.1.post2 2.8.0.post2 2.9.0
7.3.1: 2.6.0.post6 2.7.1.post3 2.8.0.post3 2.9.0.post1
26.0.0: 2.7.1.post4 2.8.0.post4 2.9.0.post2 2.10.0
26.0.1: 2.7.1.post6 2.8.0.post5 2.9.0.post4 2.10.0.post2
26.1.0: 2.7.1.post8 2.9.0.post6 2.10.0.post4 2.11.0 2.12.0
26.2.0: 2.13.0
"""
"""The packages of each release of torch_npu, oldest first. Beta releases are not among them."""
_SINCE = """
5.0.rc3: ASCEND_LAUNCH_BLOCKING MULTI_STREAM_MEMORY_REUSE
5.0.0: HCCL_ASYNC_ERROR_HANDLING HCCL_DESYNC_DEBUG
5.0.1.1: NPU_ASD_ENABLE NPU_ASD_SIGMA_THRESH NPU_ASD_UPPER_THRESH
6.0.rc2: CPU_AFFINITY_CONF HCCL_EVENT_TIMEOUT P2P_HCCL_BUFFSIZE PYTORCH_NO_NPU_MEMORY_CACHING
6.0.rc3: OOM_SNAPSHOT_ENABLE OOM_SNAPSHOT_PATH PROF_CONFIG_PATH TORCH_NPU_DISABLED_WARNING
6.0.0: ACL_DEVICE_SYNC_TIMEOUT INF_NAN_MODE_FORCE_DISABLE
6.0.0.1: STREAMS_PER_DEVICE
7.0.0: ACL_OP_INIT_MODE TORCH_HCCL_COORD_CHECK_MILSEC TORCH_HCCL_DEBUG_INFO_PIPE_FILE TORCH_HCCL_DEBUG_INFO_TEMP_FILE
  TORCH_HCCL_DUMP_ON_TIMEOUT TORCH_HCCL_ENABLE_MONITORING TORCH_HCCL_HEARTBEAT_TIMEOUT_SEC
  TORCH_HCCL_STATUS_SAVE_ENABLE TORCH_HCCL_STATUS_SAVE_INTERVAL TORCH_HCCL_STATUS_SAVE_PATH
  TORCH_HCCL_TRACE_BUFFER_SIZE TORCH_HCCL_TRACE_CPP_STACK TORCH_HCCL_WAIT_TIMEOUT_DUMP_MILSEC TORCH_HCCL_ZERO_COPY
  TORCH_NPU_LOGS
7.1.0: NPU_ASD_CONFIG TORCH_NPU_COMPACT_ERROR_OUTPUT TORCH_NPU_USE_PARALLEL_TCPSTORE
7.2.0: TORCH_HCCL_HIGH_PRIORITY
7.3.0: PER_STREAM_QUEUE TORCH_NPUGRAPH_GC
7.3.1: TORCHINDUCTOR_NPU_BACKEND
26.0.0: TORCH_NPU_DEVICE_CAPABILITY TORCH_NPU_LOGS_FILTER TORCH_NPU_USE_COMPATIBLE_IMPL TORCH_TRANSFER_TO_NPU
26.1.0: TORCH_HCCL_BLOCKING_WAIT TORCH_NPU_LEGACY_IMPL_LIST
26.2.0: TORCH_ACL_INIT_CONFIG_PATH TORCH_HCCL_ASYNC_ERROR_HANDLING TORCH_HCCL_DESYNC_DEBUG
"""
_TORCH_NPU_OLD_NAMES = {
    "TORCH_HCCL_ASYNC_ERROR_HANDLING": "HCCL_ASYNC_ERROR_HANDLING",
    "TORCH_HCCL_BLOCKING_WAIT": "HCCL_BLOCKING_WAIT",
    "TORCH_HCCL_DESYNC_DEBUG": "HCCL_DESYNC_DEBUG",
}
"""Of these, all releases read the old name, too; from ``_SINCE`` on the new one wins."""
HCCL_SINCE = {"HCCL_ALG_MULTIPLE_DIMENSION_SPLIT_RATIO": "9.1.0"}
"""The first CANN release whose HCCL reads the variable; what is not here, HCCL of 8.5.0 reads, if any does."""
_VALUES_OF_HCCL = {
    "HCCL_ALGO": ("8.5",),
    "HCCL_ALG_MULTIPLE_DIMENSION_SPLIT_RATIO": ("9.1",),
    "HCCL_DEBUG_CONFIG": ("8.5",),
    "HCCL_LOGIC_SUPERPOD_ID": ("8.5",),
    "HCCL_OP_EXPANSION_MODE": ("8.5", "9.1"),
    "HCCL_OP_RETRY_PARAMS": ("8.5",),
}
_VALUES_OF_TORCH_NPU = {"PYTORCH_NPU_ALLOC_CONF": ("7.2.0",)}
"""The releases whose sources or documents the rules of `doctor.job.npu_settings` were read from: words that one release
refuses, a newer or an older one may accept."""


def is_rule_of_release(variable: str, cann: str, torch_npu: str) -> bool:
    """Whether what `doctor.job` expects of a variable's value holds for these installed versions.

    True for a variable whose values are the same in all releases. ``cann``, ``torch_npu``: as they are installed, such
    as 8.5.0 and 2.6.0.post3; empty where not known.

    >>> [is_rule_of_release("HCCL_ALGO", version, "") for version in ("8.5.0", "9.0.0", "")]
    [True, False, False]
    """
    if variable in _VALUES_OF_TORCH_NPU:
        return _release_of(torch_npu) in _VALUES_OF_TORCH_NPU[variable]
    if variable in _VALUES_OF_HCCL:
        return cann.startswith(tuple(f"{release}." for release in _VALUES_OF_HCCL[variable]))
    return True


def unread_by_torch_npu(environ: Mapping[str, str], package: str) -> Iterator[tuple[str, str, str]]:
    """Variable, the first release that reads it, and the name that this one reads instead, or the empty string.

    ``package``: the installed version, such as 2.1.0.post12; nothing for one that is not in the table. A variable whose
    old name is set as well is not listed.

    >>> list(unread_by_torch_npu({"TORCH_HCCL_BLOCKING_WAIT": "1"}, "2.7.1.post4"))
    [('TORCH_HCCL_BLOCKING_WAIT', '26.1.0', 'HCCL_BLOCKING_WAIT')]
    """
    releases = list(_rows(_PACKAGES))
    release = _release_of(package)
    if not release:
        return
    for since, names in _rows(_SINCE).items():
        if releases.index(release) >= releases.index(since):
            continue
        for name in names:
            old = _TORCH_NPU_OLD_NAMES.get(name, "")
            if name in environ and not (old and old in environ):
                yield name, since, old


def _release_of(package: str) -> str:
    """The release of torch_npu that a package is of; the empty string for one that is not in the table."""
    match = re.match(r"[0-9]+(\.[0-9]+){2}(\.?(post|rc)[0-9]+)?", package, re.ASCII)
    text = re.sub(r"(?<=[0-9])(post|rc)", r".\1", match[0]) if match and "dev" not in package else ""
    return next((release for release, packages in _rows(_PACKAGES).items() if text in packages), "")


@cache
def _rows(table: str) -> dict[str, tuple[str, ...]]:
    """The words behind each ``release:``."""
    rows: dict[str, tuple[str, ...]] = {}
    release = ""
    for word in table.split():
        if word.endswith(":"):
            release = word[:-1]
            rows[release] = ()
        else:
            rows[release] = (*rows[release], word)
    return rows
