"""Since which version a library reads a variable, and until which one it did. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

import msgspec

from doctor.engine.toml_compat import table_beside
from doctor.engine.version_matrix import version_numbers
from doctor.job.variable_values import value_rows


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


class _Since(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    library: str
    releases: dict[str, str]
    """By release, oldest first, the variables that it is the first to read."""
    prefix: str = ""
    """Of each of the names."""
    old_names: dict[str, str] = {}
    """Variables of the same meaning that older releases read."""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    since: tuple[_Since, ...]
    until: dict[str, tuple[str, str]]
    """Of NCCL, by variable: the first release that does not read it any more, and what comes nearest."""
    packages: dict[str, str]
    """Of torch_npu: the packages of each release, oldest first."""


_table = table_beside(__file__, _Table)


@cache
def first_releases(library: str) -> dict[str, str]:
    """By variable of ``NCCL``, ``PyTorch``, ``torch_npu`` or ``HCCL``, the release that reads it first."""
    row = next(row for row in _table().since if row.library == library)
    return {row.prefix + name: release for release, names in row.releases.items() for name in names.split()}


def not_read(
    environ: Mapping[str, str], nccl: str, torch: str, torch_npu: str = "", cann: str = ""
) -> Iterator[VariableNotRead]:
    """The variables that these versions ignore. The versions: such as 2.21.5; empty where not known.

    A variable whose old name is set as well is not listed: a job for old and new releases has both.

    >>> [row.variable for row in not_read({"NCCL_NVLS_ENABLE": "0", "NCCL_DEBUG": "INFO"}, "2.10.3", "")]
    ['NCCL_NVLS_ENABLE']
    """
    installed = {"NCCL": nccl, "PyTorch": torch, "torch_npu": release_of(torch_npu), "HCCL": cann}
    for row in _table().since:
        version = _order(row.library, installed[row.library])
        for name, release in first_releases(row.library).items():
            old = row.old_names.get(name, "")
            if name in environ and not (old and old in environ) and () < version < _order(row.library, release):
                yield VariableNotRead(name, row.library, since=release, replacement=old)
    version = release_numbers(nccl)
    for name, (release, replacement) in _table().until.items():
        if name in environ and version >= release_numbers(release):
            yield VariableNotRead(name, "NCCL", until=release, replacement=replacement)


def _order(library: str, version: str) -> tuple[int, ...]:
    """Numbers by which versions of a library are compared; empty for what is no version."""
    if library == "torch_npu":
        return (list(_table().packages).index(version),) if version else ()
    if library == "HCCL":  # 8.0.RC3, 9.1.0-beta.1
        return tuple(map(int, re.findall(r"[0-9]{1,4}", version, re.ASCII)[:2]))
    return release_numbers(version)


def is_rule_of_release(variable: str, cann: str, torch_npu: str) -> bool:
    """Whether what `doctor.job.variable_values` expects of a variable's value holds for these installed versions.

    True for a variable whose values are the same in all releases. ``cann``, ``torch_npu``: as they are installed, such
    as 8.5.0 and 2.6.0.post3; empty where not known.

    >>> [is_rule_of_release("HCCL_ALGO", version, "") for version in ("8.5.0", "9.0.0", "")]
    [True, False, False]
    """
    row = value_rows().get(variable)
    if row and row.torch_npu:
        return release_of(torch_npu) in row.torch_npu
    return not (row and row.cann) or cann.startswith(tuple(f"{release}." for release in row.cann))


def release_of(package: str) -> str:
    """The release of torch_npu that a package is of; the empty string for one that is not in the table."""
    match = re.match(r"[0-9]+(\.[0-9]+){2}(\.?(post|rc)[0-9]+)?", package, re.ASCII)
    text = re.sub(r"(?<=[0-9])(post|rc)", r".\1", match[0]) if match and "dev" not in package else ""
    return next((release for release, packages in _table().packages.items() if text in packages.split()), "")


def release_numbers(version: str) -> tuple[int, ...]:
    """``2.21.5`` and ``2.1.0+cu118`` as numbers; empty for what is no version."""
    try:
        return version_numbers(version.partition("+")[0])
    except ValueError:
        return ()
