"""Compatible and known bad versions: vendors' tables as data, and the comparison of version strings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from doctor.engine.toml_compat import read_table

TORCH_NPU_TABLE = Path(__file__).with_name("torch_npu_cann.toml")
MINDSPORE_TABLE = Path(__file__).with_name("mindspore_cann.toml")
DRIVER_MATRIX = Path(__file__).with_name("cann_driver_matrix.toml")
DRIVER_LISTS = Path(__file__).with_name("cann_drivers.toml")
ROCM_DRIVERS = Path(__file__).with_name("rocm_drivers.toml")
KNOWN_BAD = Path(__file__).with_name("known_bad_versions.toml")
TABLE_DATE = "2026-08-21"
"""The day of torch_npu_cann.toml's source: COMPATIBILITY.en.md of torch_npu (Ascend/pytorch)."""


class DriverRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The drivers that the vendor names beside one CANN release; each is two numbers, as 25.5."""

    cann: str
    works: tuple[str, ...]
    fails: tuple[str, ...] = ()
    source: str = ""
    """The vendor's pages; of a row of the matrix its file names them."""


class _DriverTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    matrix: tuple[DriverRow, ...] = ()
    listed: tuple[DriverRow, ...] = ()


class RocmDriver(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One release of AMD's driver; what the columns mean stands at the head of rocm_drivers.toml."""

    driver: str
    module: str
    rocm: tuple[str, ...]


class _RocmTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    driver: tuple[RocmDriver, ...]


class KnownBad(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Versions with a published fault; what the columns mean stands at the head of known_bad_versions.toml."""

    component: str
    first: str
    last: str
    fixed: str
    fault: str
    source: str
    gpus: tuple[str, ...] = ()
    instead: str = ""


class _KnownBadTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: tuple[KnownBad, ...]


@cache
def _cann_by_release() -> dict[tuple[str, str], str]:
    """The CANN that a release of a framework was made for; the tables list the releases of each CANN."""
    tables = [read_table(path, dict[str, dict[str, list[str]]]) for path in (TORCH_NPU_TABLE, MINDSPORE_TABLE)]
    rows = [(name, cann, releases) for table in tables for name in table for cann, releases in table[name].items()]
    return {(name, release): cann for name, cann, releases in rows for release in releases}


@cache
def _driver_rows() -> dict[str, DriverRow]:
    listed = read_table(DRIVER_LISTS, _DriverTable).listed
    return {row.cann: row for row in (*listed, *read_table(DRIVER_MATRIX, _DriverTable).matrix)}


def driver_row(cann: str) -> DriverRow | None:
    """What the vendor's tables say of the drivers for one CANN; None where they do not hold it.

    >>> driver_row("9.1.0").fails, driver_row("8.1.RC1").works[0], driver_row("6.3.RC2")
    (('25.0',), '24.1', None)
    """
    return _driver_rows().get(".".join(cann.split(".")[:2]))


def judge_driver(row: DriverRow, driver: str) -> Literal["works", "fails", "older", "unlisted"]:
    """Whether the vendor lists the driver beside that CANN; older: than every one that it lists.

    >>> [judge_driver(driver_row("9.1.0"), driver) for driver in ("26.0.RC1", "25.0.1", "24.1.rc3.b999", "27.0.0")]
    ['works', 'fails', 'older', 'unlisted']

    Raises: ValueError when the driver's version does not begin with two numbers.
    """
    release = first_two_numbers(driver)
    if release in row.works:
        return "works"
    if release in row.fails:
        return "fails"
    return "older" if version_numbers(release) < min(map(version_numbers, row.works)) else "unlisted"


@cache
def _rocm_drivers() -> dict[str, RocmDriver]:
    return {row.module: row for row in read_table(ROCM_DRIVERS, _RocmTable).driver}


def rocm_driver_row(module: str) -> RocmDriver | None:
    """What AMD's table says of a driver, by the version of its kernel module; None of one that it does not hold.

    >>> rocm_driver_row("6.10.5").driver, rocm_driver_row("6.8.0-79-generic")
    ('6.3', None)
    """
    return _rocm_drivers().get(module)


def judge_rocm(row: RocmDriver, version: str) -> Literal["works", "fails", "unlisted"]:
    """Whether AMD lists the driver with that ROCm; unlisted: a ROCm that the table does not hold at all.

    >>> [judge_rocm(rocm_driver_row("6.7.0"), version) for version in ("6.4.1-83", "7.0.0", "5.6", "7.11.0")]
    ['works', 'fails', 'fails', 'unlisted']

    Raises: ValueError when the version does not begin with two numbers.
    """
    release = first_two_numbers(version)
    if release in row.rocm:
        return "works"
    return "fails" if any(release in one.rocm for one in _rocm_drivers().values()) else "unlisted"


@cache
def _known_bad_rows() -> tuple[KnownBad, ...]:
    return read_table(KNOWN_BAD, _KnownBadTable).version


def known_bad(component: str, version: str, gpus: Iterable[str] = ()) -> list[KnownBad]:
    """The published faults of a version, with GPUs of such names.

    >>> [row.fixed for row in known_bad("NCCL", "2.25.1")], known_bad("NCCL", "2.26.2")
    (['2.26.2'], [])
    >>> [row.fixed for row in known_bad("torch_npu", "2.10.0.post4")], known_bad("torch_npu", "2.10.0")
    (['2.10.0.post6'], [])
    """
    match = re.match(r"[0-9]{1,6}(?:\.(?:post)?[0-9]{1,6}){1,4}", version)
    return [
        row
        for row in _known_bad_rows()
        if match
        and row.component == component
        and release_numbers(row.first) <= release_numbers(match[0]) <= release_numbers(row.last)
        and (not row.gpus or any(word in name for word in row.gpus for name in gpus))
    ]


def release_numbers(version: str) -> tuple[int, ...]:
    """``2.10.0.post4`` as numbers: those of its release, then that of the repair. Raises: ValueError."""
    return version_numbers(version.replace(".post", "."))


def cann_for_release(framework: str, version: str) -> str:
    """The CANN that a release of torch_npu or mindspore was made for; empty when the tables do not hold it.

    >>> [cann_for_release("torch_npu", version) for version in ("2.7.1.post4", "2.1.0rc1+git1234", "2.13.0")]
    ['9.0.0', '7.0.RC1', '']
    >>> cann_for_release("mindspore", "2.7.1")
    '8.3.RC1'
    """
    return _cann_by_release().get((framework, re.sub(r"(?<=\d)rc", ".rc", version.partition("+")[0])), "")


def base_version(version: str) -> str:
    """The release that a version builds on: ``2.7.1.post4`` and ``2.7.1+cpu`` give ``2.7.1``; else the empty string."""
    match = re.match(r"\d+\.\d+\.\d+", version)
    return match.group(0) if match else ""


def first_two_numbers(version: str) -> str:
    """``25.0`` of ``25.0.1``. Raises: ValueError when the version does not begin with two numbers.

    >>> first_two_numbers("24.1.rc3.b999"), first_two_numbers("2.6.0a0+ecf3bae40a.nv25.01")
    ('24.1', '2.6')
    """
    match = re.match(r"[0-9]{1,4}\.[0-9]{1,4}(?![0-9])", version)
    if match is None:
        raise ValueError(version)
    return match[0]


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
