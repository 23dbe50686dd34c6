"""The values that environment variables of HCCL, torch and MindSpore may have."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise

import msgspec

from doctor.engine.sanitize import printable
from doctor.job import npu_settings
from doctor.job.library_settings import TRUTH_WORDS
from doctor.job.rank_table.model import parse_address

Family = str
"""A1, A2 or A3; the empty string where it is not known, and then what any of them accepts is right."""

Rule = Callable[[str, Family], str]
"""What was expected, or the empty string when the value is right."""


class EnvSetting(msgspec.Struct, frozen=True, order=True):
    """A variable with a value that its reader refuses."""

    variable: str
    value: str
    expected: str


def int_between(least: int, most: int) -> Rule:
    """A rule: a whole number from ``least`` to ``most``."""
    return lambda value, family: "" if least <= _parse_int(value) <= most else f"a whole number from {least} to {most}"


def by_family(a1: Rule, other: Rule) -> Rule:
    """One rule for A1, another for the rest; where the family is not known, either will do."""

    def rule(value: str, family: Family) -> str:
        if family == "A1":
            return a1(value, family)
        expected = other(value, family)
        return "" if expected and not family and not a1(value, family) else expected

    return rule


def one_of(*choices: str, fold: bool = False) -> Rule:
    """A rule: one of the choices; ``fold`` ignores upper and lower case."""

    def rule(value: str, family: Family) -> str:
        right = value.lower() in [word.lower() for word in choices] if fold else value in choices
        return "" if right else "one of " + ", ".join(choices)

    return rule


def matching(pattern: str, expected: str) -> Rule:
    """A rule: the whole value matches the pattern; ``expected`` describes it."""
    return lambda value, family: "" if re.fullmatch(pattern, value, re.ASCII) else expected


def must_be_unset(reason: str) -> Rule:
    """A rule: no value is right, for the reason given."""
    return lambda value, family: f"unset: {reason}"


def ports(value: str, family: Family = "") -> str:
    """HCCL's port lists: ``60000,60050-60100`` or ``auto``."""
    try:
        port_ranges(value)
    except ValueError as error:
        return str(error)
    return ""


def port_ranges(value: str) -> list[tuple[int, int]]:
    """First and last port of each range, in order; empty for ``auto``. Raises: ValueError with what was expected."""
    if value == "auto":
        return []
    expected = "ports from 1 to 65535 such as 60000,60050-60100, or auto"
    ranges: list[tuple[int, int]] = []
    for part in value.split(","):
        ends = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part, re.ASCII)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (0, 0)
        if not 1 <= first <= last <= 65535:
            raise ValueError(expected)
        ranges.append((first, last))
    ranges.sort()
    if any(after[0] <= before[1] for before, after in pairwise(ranges)):
        raise ValueError("port ranges that do not overlap")
    return ranges


def visible_devices(value: str, family: Family) -> str:
    """What is expected instead of a list of device numbers, or the empty string."""
    numbers = [int(part) for part in value.split(",")] if re.fullmatch(r"[0-9]{1,3}(,[0-9]{1,3})*", value) else []
    expected = "device numbers in ascending order, with commas and no spaces, such as 0,1,2,3"
    return "" if numbers and numbers == sorted(set(numbers)) else expected


def host(value: str, family: Family) -> str:
    """What is expected instead of a host name or address, or the empty string."""
    name = re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?", value, re.ASCII)
    right = (
        parse_address(value)
        or value.startswith("127.")
        or value == "::1"
        or (name and not re.fullmatch(r"[0-9.]+", value))
    )
    return "" if right else "a host name or an IP address"


def seconds(value: str, family: Family) -> str:
    """AIV mode takes fractions of a second."""
    number = re.fullmatch(r"([0-9]{1,10})(\.[0-9]{1,9})?", value, re.ASCII)
    return "" if number and float(value) <= 2147483647 else "seconds from 0 to 2147483647"


def ip(value: str, family: Family) -> str:
    """What is expected instead of an IP address, or the empty string."""
    return "" if parse_address(value) else "one IPv4 or IPv6 address of this host"


def _parse_int(text: str) -> int:
    """-1 stands for what is no whole number; no variable here may be negative."""
    return int(text) if re.fullmatch(r"[0-9]{1,12}", text, re.ASCII) else -1


_SWITCH = one_of("0", "1")
_NOT_A1 = "the A1 family has no such setting"

RULES: dict[str, Rule] = {
    "ACL_DEVICE_SYNC_TIMEOUT": int_between(1, 2_147_483),
    "ACL_OP_COMPILER_CACHE_MODE": one_of("enable", "disable", "force"),
    "ASCEND_GLOBAL_LOG_LEVEL": int_between(0, 4),
    "ASCEND_LAUNCH_BLOCKING": _SWITCH,
    "ASCEND_RT_VISIBLE_DEVICES": visible_devices,
    "HCCL_ALGO": npu_settings.algorithm,
    "HCCL_ALG_MULTIPLE_DIMENSION_SPLIT_RATIO": npu_settings.fraction,
    "HCCL_ASYNC_ERROR_HANDLING": _SWITCH,
    "HCCL_BUFFSIZE": int_between(1, 999_999_999),
    "HCCL_CONNECT_TIMEOUT": int_between(120, 7200),
    "HCCL_DEBUG_CONFIG": npu_settings.debug_modules,
    "HCCL_DETERMINISTIC": one_of("true", "false", "strict", fold=True),
    "HCCL_DIAGNOSE_ENABLE": _SWITCH,
    "HCCL_ENTRY_LOG_ENABLE": _SWITCH,
    "HCCL_EVENT_TIMEOUT": int_between(0, 2147483647),
    "HCCL_EXEC_TIMEOUT": by_family(int_between(1, 17340), seconds),
    "HCCL_HOST_SOCKET_PORT_RANGE": by_family(must_be_unset(_NOT_A1), ports),
    "HCCL_IF_BASE_PORT": int_between(1024, 65520),
    "HCCL_IF_IP": ip,
    "HCCL_INTER_HCCS_DISABLE": one_of("TRUE", "FALSE", fold=True),
    "HCCL_LOGIC_SUPERPOD_ID": npu_settings.super_pod,
    "HCCL_MULTI_QP_THRESHOLD": int_between(1, 8192),
    "HCCL_NPU_SOCKET_PORT_RANGE": by_family(must_be_unset(_NOT_A1), ports),
    "HCCL_OP_EXPANSION_MODE": by_family(
        must_be_unset(_NOT_A1),
        one_of("AI_CPU", "AIV", "HOST", "HOST_TS", "AICPU_CacheDisable", "AICPU_TS", "CCU_MS", "CCU_SCHED"),
    ),
    "HCCL_OP_RETRY_ENABLE": matching(r"L[0-2]:[01](,\s*L[0-2]:[01])*", "L1 and L2, each 0 or 1, such as L1:1,L2:1"),
    "HCCL_OP_RETRY_PARAMS": npu_settings.retry,
    "HCCL_RDMA_PCIE_DIRECT_POST_NOSTRICT": one_of("TRUE", "FALSE", fold=True),
    "HCCL_RDMA_QPS_PER_CONNECTION": int_between(1, 32),
    "HCCL_RDMA_RETRY_CNT": int_between(1, 7),
    "HCCL_RDMA_SL": int_between(0, 7),
    "HCCL_RDMA_TC": lambda value, family: (
        "" if _parse_int(value) in range(0, 256, 4) else "a multiple of 4 from 0 to 252"
    ),
    "HCCL_RDMA_TIMEOUT": by_family(int_between(5, 24), int_between(5, 20)),
    "HCCL_SOCKET_FAMILY": one_of("AF_INET", "AF_INET6"),
    "HCCL_SOCKET_IFNAME": matching(
        r"\^?=?[^\s,^=/]{1,15}(,[^\s,^=/]{1,15})*", "names such as eth,enp or =eth0 or ^docker"
    ),
    "HCCL_WHITELIST_DISABLE": _SWITCH,
    "MASTER_ADDR": host,
    "MASTER_PORT": int_between(1, 65535),
    "MS_ROLE": one_of("MS_SCHED", "MS_WORKER", "MS_PSERVER"),
    "MS_SCHED_HOST": host,
    "MS_SCHED_PORT": int_between(1024, 65535),
    "MS_WORKER_NUM": int_between(1, 9_999_999),
    "MULTI_STREAM_MEMORY_REUSE": int_between(0, 3),
    "P2P_HCCL_BUFFSIZE": int_between(0, 999_999_999),
    "PYTORCH_NPU_ALLOC_CONF": npu_settings.allocator,
    "RANK_SIZE": int_between(1, 9_999_999),
    "TASK_QUEUE_ENABLE": int_between(0, 2),
    "TORCH_DISTRIBUTED_DEBUG": one_of("OFF", "INFO", "DETAIL", fold=True),
    "TORCH_GLOO_LAZY_INIT": one_of(*TRUTH_WORDS, fold=True),
    "TORCH_HCCL_ASYNC_ERROR_HANDLING": _SWITCH,
    "TORCH_TRANSFER_TO_NPU": _SWITCH,
    "WORLD_SIZE": int_between(1, 9_999_999),
}


def invalid_settings(env: Mapping[str, str], family: Family = "") -> tuple[EnvSetting, ...]:
    """All variables of ``env`` with a value that their reader refuses, by name."""
    wrong = [
        EnvSetting(name, printable(env[name], 80), expected)
        for name, rule in RULES.items()
        if name in env and (expected := rule(env[name], family))
    ]
    pcie, roce = env.get("HCCL_INTRA_PCIE_ENABLE"), env.get("HCCL_INTRA_ROCE_ENABLE")
    if (pcie, roce) not in {(None, None), ("1", None), ("1", "0"), ("0", "0"), ("0", "1"), (None, "1")}:
        value = f"HCCL_INTRA_PCIE_ENABLE={_or_unset(pcie)} and HCCL_INTRA_ROCE_ENABLE={_or_unset(roce)}"
        wrong.append(EnvSetting("HCCL_INTRA_PCIE_ENABLE", value, "1 and 0 (PCIe), or 0 and 1 (RoCE)"))
    if env.get("HCCL_WHITELIST_DISABLE") == "0" and not env.get("HCCL_WHITELIST_FILE"):
        wrong.append(EnvSetting("HCCL_WHITELIST_FILE", "unset", "a file, since HCCL_WHITELIST_DISABLE=0"))
    return tuple(sorted(wrong))


def _or_unset(value: str | None) -> str:
    return "unset" if value is None else printable(value, 20)
