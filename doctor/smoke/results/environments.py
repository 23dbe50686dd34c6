"""Ranks whose interpreters differ: in torch, in NumPy, in Python. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from doctor.analysis.majority import split
from doctor.engine.pairwise_blame import folded
from doctor.engine.texts import filled, joined
from doctor.facts.smoke.first_stages import SmokeStart, TorchImported

NOT_INSTALLED = "not installed"
PACKAGES = ("torch", "numpy", "Python")


def versions_by_host(started: Mapping[str, SmokeStart]) -> dict[str, dict[str, str]]:
    """By package: the version on each host whose ranks have imported torch, as far as a difference may matter.

    Of torch without the build ("2.6.0" for "2.6.0+cpu"), of the others the first two numbers. A host whose ranks differ
    among themselves has all of theirs, such as "2.6.0 and 2.7.1".
    """
    result: dict[str, dict[str, str]] = {name: {} for name in PACKAGES}
    for host, fact in started.items():
        for name in PACKAGES:
            versions = {_version(name, getattr(event, name.lower())) for event in fact.imported}
            if versions:
                result[name][host] = joined(" and ", sorted(versions))
    return result


def lacking_numpy(started: Mapping[str, SmokeStart]) -> list[str]:
    """Hosts without NumPy, where others have it."""
    hosts = versions_by_host(started)["numpy"]
    lacking = [host for host, version in hosts.items() if NOT_INSTALLED in version]
    return lacking if len(lacking) < len(hosts) or any(hosts[host] != NOT_INSTALLED for host in lacking) else []


def minority_torch(imported: Mapping[str, Iterable[TorchImported]]) -> tuple[list[str], str]:
    """Hosts with another torch than most of the fleet, or all hosts where none has a majority, and a sentence of it.

    Empty where all have the same.
    """
    versions = {
        host: joined(" and ", sorted({_version("torch", event.torch) for event in events}))
        for host, events in imported.items()
    }
    parts = split([host for host, version in versions.items() if version], versions.__getitem__)
    if parts is None:
        return [], ""
    counts = Counter(filter(None, versions.values())).most_common(4)
    text = joined("; ", (filled("{0} on {1} host{2}", version, count, "s" * (count > 1)) for version, count in counts))
    return list(parts.differing), filled(
        "The ranks run different versions of torch, which may not understand each other: {0}.", text
    )


def unlike_debug(imported: Mapping[str, Iterable[TorchImported]]) -> tuple[list[str], str]:
    """Hosts with another TORCH_DISTRIBUTED_DEBUG=DETAIL than most, or those with it at a tie, and a sentence of it.

    Empty where all have the same.
    """
    with_it = {host: any(event.detail for event in events) for host, events in imported.items() if events}
    parts = split(sorted(with_it), with_it.__getitem__, False)
    if parts is None:
        return [], ""
    names = (folded([host for host, detail in with_it.items() if detail is value]) for value in (True, False))
    return list(parts.differing), filled(
        "TORCH_DISTRIBUTED_DEBUG is DETAIL on {0} and not on {1}: with it, torch makes a second group, where each rank "
        "waits for all others",
        *names,
    )


def _version(name: str, text: str | None) -> str:
    numbers = re.match(r"(MindSpore )?\d{1,5}(\.\d{1,5}){0,2}", text or "")
    if not numbers:
        return NOT_INSTALLED if text is None else "unknown"
    parts = numbers[0].split(".")
    return ".".join(parts if name == "torch" else parts[:2])
