"""The values that environment variables of HCCL, NCCL, torch, OpenMP and MindSpore may have. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from doctor.engine.addresses import means_own_host, numeric_ipv4, parse_address
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.engine.toml_compat import read_table
from doctor.job.job_size import python_number

Family = str
"""A1, A2 or A3; the empty string where it is not known, and then what any of them accepts is right."""
OnBad = Literal["ends", "ends_nccl", "ignored"]
"""What a bad value does: ends the program, ends one that uses NCCL or CUDA, or nothing that the user wished."""
LARGEST, MOST_DIGITS = (1 << 63) - 1, 24
"""Of C's long long; more digits than it has in any base. Python refuses to read numbers of thousands of digits."""
_LONGEST = 4096
_NUMBER = r"\s*[+-]?(0[xX][0-9a-fA-F]+|[0-9]+)\s*"


class EnvSetting(msgspec.Struct, frozen=True, order=True):
    """A variable with a value that its reader refuses."""

    variable: str
    value: str
    expected: str


class ValueRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rule for the values of some variables: ``digits``, ``number``, ``choices``, ``pattern`` or ``rule``."""

    names: str
    prefix: str = ""
    """Of each of the names."""
    on_bad: OnBad = "ends"
    """In the file the name of the row's table."""
    digits: tuple[int, int] | None = None
    """A whole number without a sign: the least and the most."""
    multiple_of: int = 1
    number: tuple[int, int] | None = None
    """A whole number as C reads it, also as hexadecimal: the least and the most."""
    choices: tuple[str, ...] = ()
    pattern: str = ""
    """A regular expression for the whole value."""
    any_case: bool = False
    """Capital and small letters are the same to the reader."""
    trimmed: bool = False
    """Blanks around the value are none to the reader."""
    by_python: bool = False
    """Python's int() reads the number of ``digits``: with blanks, a plus sign and underscores."""
    among_ranks: bool = False
    """A rank alone does not read it."""
    beside: str = ""
    """Another variable; beside it any value is right."""
    expected: str = ""
    """What ``pattern`` demands, in words."""
    rule: str = ""
    """A function below."""
    rest: str = ""
    """The same for what the reader passes over, where it takes the beginning of the value."""
    a1_digits: tuple[int, int] | None = None
    """As ``digits``, for the A1 family."""
    a1_has_none: bool = False
    """The A1 family has no such setting."""
    cann: tuple[str, ...] = ()
    torch_npu: tuple[str, ...] = ()
    """The releases that the rule was read from; empty: it is the same in all."""

    def refuse(self, value: str, family: Family) -> str:
        """What is expected instead of a value, or the empty string."""
        expected = self._refuse(value)
        if not (self.a1_digits or self.a1_has_none):
            return expected
        of_a1 = _digits(value, self.a1_digits) if self.a1_digits else "unset: the A1 family has no such setting"
        if family == "A1":
            return of_a1
        return "" if expected and not family and not of_a1 else expected

    def _refuse(self, value: str) -> str:
        if self.rule:
            return _RULES[self.rule](value)
        if self.digits:
            number = python_number(value) if self.by_python else None
            return _digits(value if number is None else str(number), self.digits, self.multiple_of)
        if self.number:
            return _number(value, *self.number)
        if self.pattern:
            flags = re.ASCII | re.DOTALL | (re.IGNORECASE if self.any_case else 0)
            return "" if len(value) < _LONGEST and re.fullmatch(self.pattern, value, flags) else self.expected
        value = value.strip() if self.trimmed else value
        right = value.lower() in map(str.lower, self.choices) if self.any_case else value in self.choices
        return "" if right else filled("one of {0}", ", ".join(self.choices))


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ends: tuple[ValueRow, ...]
    ends_nccl: tuple[ValueRow, ...]
    ignored: tuple[ValueRow, ...]

    def rows(self) -> list[ValueRow]:
        by_effect: dict[OnBad, tuple[ValueRow, ...]] = {
            "ends": self.ends,
            "ends_nccl": self.ends_nccl,
            "ignored": self.ignored,
        }
        return [msgspec.structs.replace(row, on_bad=effect) for effect, rows in by_effect.items() for row in rows]


@cache
def value_rows() -> dict[str, ValueRow]:
    """By variable."""
    rows = read_table(Path(__file__).with_suffix(".toml"), _Table).rows()
    return {row.prefix + name: row for row in rows for name in row.names.split()}


def refused(environ: Mapping[str, str], on_bad: OnBad, family: Family = "", *, alone: bool = False) -> list[EnvSetting]:
    """The variables with a value that their reader refuses, and that has this effect, by name.

    ``alone``: in a job of one rank.

    >>> refused({"NCCL_P2P_DISABLE": "true", "NCCL_CROSS_NIC": "2"}, "ignored")[0].expected
    'a whole number: NCCL reads 0 there'
    """
    judged = {name: value_rows()[name] for name in sorted(environ) if name in value_rows()}
    refusals = dict[str, str]()
    for name, row in judged.items():
        effect = "ignored" if alone and row.among_ranks else row.on_bad
        if row.beside not in environ and effect == on_bad:
            refusals[name] = row.refuse(environ[name], family)
        elif row.rest and on_bad == "ignored":
            refusals[name] = _RULES[row.rest](environ[name])
    return [EnvSetting(name, printable(environ[name], 80) or "empty", text) for name, text in refusals.items() if text]


_NPU_ALONE = re.compile(
    r"(HCCL|P2P_HCCL|TORCH_HCCL|ASCEND|ACL|PYTORCH_NPU)_\w+|MULTI_STREAM_MEMORY_REUSE|TASK_QUEUE_ENABLE"
)


def is_read_on_npus_alone(variable: str) -> bool:
    """Only HCCL, CANN and torch_npu read it: it ends no job on hosts without NPUs.

    >>> [is_read_on_npus_alone(name) for name in ("HCCL_CONNECT_TIMEOUT", "TASK_QUEUE_ENABLE", "MASTER_PORT")]
    [True, True, False]
    """
    return _NPU_ALONE.fullmatch(variable) is not None


def is_other_spelling(setting: EnvSetting) -> bool:
    """A word of the variable with its letters in another order or case, which no later release adds; or options of an
    allocator in a form that PyTorch's own never took.

    >>> [is_other_spelling(EnvSetting("HCCL_OP_EXPANSION_MODE", value, "")) for value in ("AVI", "aiv", "AIV2")]
    [True, True, False]
    """
    row = value_rows().get(setting.variable)
    if row and row.rule == "npu_allocator":
        return bool(value_rows()["PYTORCH_ALLOC_CONF"].refuse(setting.value, ""))
    letters = sorted(setting.value.lower())
    return row is not None and any(letters == sorted(choice.lower()) for choice in row.choices)


_INTERFACES = ("GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def invalid_settings(env: Mapping[str, str], family: Family = "", hosts: int = 1) -> tuple[EnvSetting, ...]:
    """All variables of ``env`` whose value ends the program, with any library, by name."""
    if not env:
        return ()
    wrong = refused(env, "ends", family)
    pcie, roce = env.get("HCCL_INTRA_PCIE_ENABLE"), env.get("HCCL_INTRA_ROCE_ENABLE")
    if (pcie, roce) not in {(None, None), ("1", None), ("1", "0"), ("0", "0"), ("0", "1"), (None, "1")}:
        value = filled("{0} and HCCL_INTRA_ROCE_ENABLE={1}", _or_unset(pcie), _or_unset(roce))
        wrong.append(EnvSetting("HCCL_INTRA_PCIE_ENABLE", value, "1 and 0 (PCIe), or 0 and 1 (RoCE)"))
    if env.get("HCCL_WHITELIST_DISABLE") == "0" and not env.get("HCCL_WHITELIST_FILE"):
        wrong.append(EnvSetting("HCCL_WHITELIST_FILE", "unset", "a file, since HCCL_WHITELIST_DISABLE=0"))
    for name in _INTERFACES if hosts > 1 else ():
        if env.get(name, "").strip("=") == "lo":
            wrong.append(EnvSetting(name, env[name], "an interface that leads to the other hosts"))
    return tuple(sorted(wrong))


def _or_unset(value: str | None) -> str:
    return "unset" if value is None else printable(value, 20)


def _digits(value: str, limits: tuple[int, int], multiple_of: int = 1) -> str:
    number = int(value) if re.fullmatch(r"[0-9]{1,12}", value, re.ASCII) else -1
    if number in range(limits[0], limits[1] + 1, multiple_of):
        return ""
    if multiple_of > 1:
        return filled("a multiple of {0} from {1} to {2}", multiple_of, limits[0], limits[1])
    return filled("a whole number from {0} to {1}", limits[0], limits[1])


def _number(value: str, least: int, most: int) -> str:
    right = re.fullmatch(_NUMBER, value, re.ASCII) and least <= _strtoll(value) <= most
    return "" if right else filled("a whole number from {0} to {1}", least, most)


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


def _nccl_number(value: str) -> str:
    right = re.fullmatch(_NUMBER, value, re.ASCII)
    return "" if right else filled("a whole number: NCCL reads {0} there", _strtoll(value))


def _ports(value: str) -> str:
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


def _visible_devices(value: str) -> str:
    """What is expected instead of a list of device numbers, or the empty string."""
    numbers = [int(part) for part in value.split(",")] if re.fullmatch(r"[0-9]{1,3}(,[0-9]{1,3})*", value) else []
    expected = "device numbers in ascending order, with commas and no spaces, such as 0,1,2,3"
    return "" if numbers and numbers == sorted(set(numbers)) else expected


def wrong_devices(value: str) -> str:
    """What is expected instead of a list of GPUs, or the empty string. -1 or a word such as NoDevFiles leaves none.

    >>> [bool(wrong_devices(value)) for value in ("0,1", "GPU-8932f937", "-1", "0-7", "[0,1]", "0,1,,3", "0 1")]
    [False, False, False, True, True, True, True]
    """
    entry = r"\s*(?:[0-9]{1,4}|(?:GPU|MIG)-[0-9A-Za-z/-]{1,99})\s*"
    right = re.fullmatch(rf"{entry}(?:,{entry}){{0,1023}},?|\s*-1\s*|(?i:void|no\w*)|\s*", value, re.ASCII)
    return "" if right else "device numbers with commas between, such as 0,1,2,3"


def _first_device_wrong(value: str) -> str:
    return "" if re.match(r"\s*(?:[0-9]|GPU-|MIG-)", value, re.ASCII) else wrong_devices(value)


def _later_devices_wrong(value: str) -> str:
    return "" if _first_device_wrong(value) else wrong_devices(value)


def expected_host(value: str) -> str:
    """What is expected instead of a host name or address, or the empty string."""
    name = re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?", value, re.ASCII)
    right = (
        parse_address(value)
        or means_own_host(value)
        or numeric_ipv4(value)
        or (name and not re.fullmatch(r"[0-9.]+|(?:MASTER|HEAD|MAIN|RDZV|LEADER)_[A-Z0-9_]+", value))  # without its $
    )
    return "" if right else "a host name or an IP address"


def _seconds(value: str) -> str:
    """AIV mode takes fractions of a second."""
    number = re.fullmatch(r"([0-9]{1,10})(\.[0-9]{1,9})?", value, re.ASCII)
    return "" if number and float(value) <= 2147483647 else "seconds from 0 to 2147483647"


def _own_address(value: str) -> str:
    """What is expected instead of an IP address, or the empty string."""
    return "" if parse_address(value) else "one IPv4 or IPv6 address of this host"


_ALGORITHMS = "null|ring|pipeline|fullmesh|H-D_R|pairwise|NHR|NHR_V1|AHC|AHC_BROKE|NB|NA"
_OPERATORS = "broadcast|allreduce|reduce|send|receive|allgather|reducescatter|alltoall|gather|scatter|sendrecv|others"
_LEVELS = rf"level[0-3]:({_ALGORITHMS})(;level[0-3]:({_ALGORITHMS}))*"
_ALGO = rf"({_LEVELS}|({_OPERATORS})={_LEVELS}(/({_OPERATORS})={_LEVELS})*)"
_RETRY = r"MaxCnt:([0-9]{1,6}),\s*HoldTime:([0-9]{1,6}),\s*IntervalTime:([0-9]{1,6})"
_TRUTHS_NAMES = """
expandable_segments multi_stream_lazy_reclaim pin_memory_expandable_segments pinned_mem_register
pinned_use_background_threads release_lock_on_npumalloc throw_on_npumalloc_oom
"""
_TRUTHS = _TRUTHS_NAMES.split()
_NUMBERS_NAMES = """
base_addr_aligned_kb garbage_collection_threshold large_segment_size_mb max_non_split_rounding_mb max_split_size_mb
per_process_memory_fraction pinned_max_cached_size_mb pinned_max_round_threshold_mb segment_size_mb
"""
_NUMBERS = _NUMBERS_NAMES.split()
_WORDS = ("page_size", "roundup_power2_divisions")


def _hccl_algorithm(value: str) -> str:
    """What is expected of HCCL_ALGO instead of this value, or the empty string."""
    if len(value) < 4096 and re.fullmatch(_ALGO, value, re.ASCII):
        levels = [re.findall(r"level([0-3]):", part) for part in value.split("/")]
        if all(len(numbers) == len(set(numbers)) for numbers in levels):
            return ""
    return filled("such as level0:NA;level1:NHR, each level once, with {0}", ", ".join(_ALGORITHMS.split("|")[1:]))


def _hccl_retry(value: str) -> str:
    """What is expected of HCCL_OP_RETRY_PARAMS, or the empty string."""
    match = re.match(_RETRY, value, re.ASCII)
    count, hold, interval = map(int, match.groups()) if match else (0, 0, 0)
    right = 1 <= count <= 10 and hold <= 60_000 and interval <= 60_000
    return "" if right else "MaxCnt:1 to 10,HoldTime:0 to 60000,IntervalTime:0 to 60000, in this order"


def _npu_allocator(value: str) -> str:
    """What is expected of PYTORCH_NPU_ALLOC_CONF, or the empty string.

    >>> _npu_allocator("expandable_segments:True"), _npu_allocator("expandable_segments:true")
    ('', 'expandable_segments:True or False')
    """
    options: dict[str, str] = {}
    for entry in re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", re.sub(r"\s", "", value[:4096])):
        name, colon, text = entry.partition(":")
        expected = _allocator_option(name, text) if colon else "options with a colon, such as expandable_segments:True"
        if expected:
            return expected
        options[name] = text
    if options.get("expandable_segments") == "True":
        other = next((name for name in ("max_split_size_mb", "garbage_collection_threshold") if name in options), "")
        if other:
            return filled("expandable_segments:False beside {0}", other)
    return "" if options else "options such as expandable_segments:True"


def _allocator_option(name: str, text: str) -> str:
    if name not in (*_TRUTHS, *_NUMBERS, *_WORDS):
        return filled("only options that torch_npu has: {0}", ", ".join(sorted((*_TRUTHS, *_NUMBERS, *_WORDS))))
    if name in _TRUTHS:
        return "" if text in ("True", "False") else filled("{0}:True or False", name)
    if name == "page_size":
        return "" if text == "1g" else "page_size:1g"
    if name in _NUMBERS:
        if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", text, re.ASCII):
            return filled("{0} with a number", name)
        if name == "max_split_size_mb" and float(text) <= 20:
            return "max_split_size_mb above 20"
        if name == "garbage_collection_threshold" and not 0 < float(text) < 1:
            return "garbage_collection_threshold between 0 and 1"
        if name == "base_addr_aligned_kb" and float(text) > 16:
            return "base_addr_aligned_kb from 0 to 16"
    return ""


_RULES: Mapping[str, Callable[[str], str]] = {
    "hccl_algorithm": _hccl_algorithm,
    "hccl_retry": _hccl_retry,
    "host": expected_host,
    "nccl_number": _nccl_number,
    "npu_allocator": _npu_allocator,
    "own_address": _own_address,
    "ports": _ports,
    "seconds": _seconds,
    "visible_devices": _visible_devices,
    "gpu_list": _first_device_wrong,
    "gpu_list_rest": _later_devices_wrong,
}
