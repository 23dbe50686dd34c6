"""Compatible versions: a vendor's table as data, and the comparison of version strings."""

from __future__ import annotations

import re

TABLE_DATE = "2026-08-21"
"""The day of the table's source: COMPATIBILITY.en.md in the public repository of torch_npu (Ascend/pytorch)."""

_TORCH_NPU_BY_CANN = {
    "9.1.0": "2.12.0 2.11.0 2.10.0.post4 2.9.0.post6 2.7.1.post8",
    "9.0.0": "2.10.0.post2 2.9.0.post2 2.8.0.post4 2.7.1.post4",
    "8.5.0": "2.9.0 2.8.0.post2 2.7.1.post2 2.6.0.post5",
    "8.3.RC1": "2.8.0 2.7.1 2.6.0.post3 2.1.0.post17",
    "8.2.RC1": "2.6.0 2.5.1.post1 2.1.0.post13",
    "8.1.RC1": "2.5.1 2.4.0.post4 2.3.1.post6 2.1.0.post12",
    "8.0.0": "2.4.0.post2 2.3.1.post4 2.1.0.post10",
    "8.0.RC3": "2.4.0 2.3.1.post2 2.1.0.post8",
    "8.0.RC2": "2.3.1 2.2.0.post2 2.1.0.post6 1.11.0.post14",
    "8.0.RC1": "2.2.0 2.1.0.post4 1.11.0.post11",
    "7.0.0": "2.1.0 2.0.1.post1 1.11.0.post8",
    "7.0.RC1": "2.1.0.rc1 2.0.1 1.11.0.post4",
    "6.3.RC3.1": "1.11.0.post3",
    "6.3.RC3": "1.11.0.post2",
    "6.3.RC2": "2.0.1.rc1 1.11.0.post1 1.8.1.post2",
    "6.3.RC1": "1.11.0 1.8.1.post1",
}

_CANN_BY_TORCH_NPU = {torch_npu: cann for cann, line in _TORCH_NPU_BY_CANN.items() for torch_npu in line.split()}


def cann_for_torch_npu(torch_npu: str) -> str:
    """The CANN that a release of torch_npu was made for; the empty string when the table does not hold it.

    >>> cann_for_torch_npu("2.7.1.post4"), cann_for_torch_npu("2.1.0rc1+git1234"), cann_for_torch_npu("2.13.0")
    ('9.0.0', '7.0.RC1', '')
    """
    release = re.sub(r"(?<=\d)rc", ".rc", torch_npu.partition("+")[0])
    return _CANN_BY_TORCH_NPU.get(release, "")


def base_version(version: str) -> str:
    """The release that a version builds on: ``2.7.1.post4`` and ``2.7.1+cpu`` give ``2.7.1``; else the empty string."""
    match = re.match(r"\d+\.\d+\.\d+", version)
    return match.group(0) if match else ""


def version_numbers(version: str) -> tuple[int, ...]:
    """``7.1.0.11.220`` as numbers. Raises: ValueError when there is anything else in it."""
    return tuple(int(part) for part in version.strip().split("."))


def in_version_range(version: str, first: str, last: str) -> bool:
    """Whether a version lies in a range; a bound is compared only in as many parts as it has.

    Raises: ValueError when one of them is not made of numbers.
    """
    parts, low, high = version_numbers(version), version_numbers(first), version_numbers(last)
    return parts[: len(low)] >= low and parts[: len(high)] <= high


def same_cann_release(first: str, second: str) -> bool:
    """Whether two CANN versions are one release: betas count as their release, and patches of one line are one.

    >>> same_cann_release("8.2.RC1.beta1", "8.2.RC1"), same_cann_release("8.5.1", "8.5.0")
    (True, True)
    >>> same_cann_release("8.0.RC3", "8.0.0")
    False
    """
    return _cann_release(first) == _cann_release(second)


def _cann_release(version: str) -> tuple[str, ...]:
    parts = re.sub(r"\.(alpha|beta)\d*$", "", version.upper(), flags=re.I).split(".")
    return tuple(parts[:3]) if len(parts) > 2 and parts[2].startswith("RC") else tuple(parts[:2])
