"""Ranks whose interpreters differ: in torch, in NumPy, in Python. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from doctor.analysis.majority import split
from doctor.engine.grouping import lists_by_key
from doctor.engine.pairwise_blame import folded
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.facts.pip_commands import typed_interpreter
from doctor.facts.smoke.first_stages import SmokeStart, TorchImported
from doctor.job.variables import EQUAL_EVERYWHERE, comparable
from doctor.smoke.model import SmokeRun

NOT_INSTALLED = "not installed"
PACKAGES = ("torch", "numpy", "Python")
OF_OTHERS = {"gloo": ("NCCL_", "HCCL_"), "nccl": ("HCCL_",), "hccl": ("NCCL_",)}
"""By backend: how variables begin that its ranks do not read."""
MOST_SIDES = 3


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


def interpreter_of(run: SmokeRun, start: SmokeStart) -> str:
    """The interpreter of a host's ranks, as it is typed in front of ``-m pip``."""
    return typed_interpreter(run.plan.python or "python3", any(event.managed for event in start.imported))


def lacking_numpy(started: Mapping[str, SmokeStart]) -> list[str]:
    """Hosts without NumPy, where others have it."""
    hosts = versions_by_host(started)["numpy"]
    lacking = [host for host, version in hosts.items() if NOT_INSTALLED in version]
    return lacking if len(lacking) < len(hosts) or any(hosts[host] != NOT_INSTALLED for host in lacking) else []


def unlike_interpreters(
    imported: Mapping[str, Iterable[TorchImported]], backend: str, names: Sequence[str] = ("torch", *EQUAL_EVERYWHERE)
) -> tuple[list[str], str]:
    """Hosts whose ranks have another torch than most, or another value of a variable that all ranks must have alike.

    With a sentence of it. At a tie those that have the variable set, or all. ``backend``: whose ranks read it.
    ``names``: what is compared.
    """
    hosts, texts = dict[str, None](), list[str]()
    for name in names:
        values = {
            host: joined(" and ", sorted({alike(name, event) for event in events}))
            for host, events in sorted(imported.items())
            if events and not name.startswith(OF_OTHERS.get(backend, ()))
        }
        if parts := split(values, values.__getitem__, ""):
            hosts |= dict.fromkeys(parts.differing)
            by_value = lists_by_key((values[host], host) for host in (*parts.differing, *parts.agreeing))
            sides = [
                filled("{0} on {1}", strip_control_chars(value, 60) or "not set", folded(some))
                for value, some in list(by_value.items())[-MOST_SIDES:]
            ]
            texts.append(filled("{0} is {1}", name, joined(" and ", sides)))
    why = ["ranks that differ in it wait for each other for ever, or crash"] * bool(texts)
    return list(hosts), joined(": ", [*texts[:MOST_SIDES], *why])


def alike(name: str, event: TorchImported) -> str:
    """The value of a variable, or torch's version, as far as ranks must have it alike."""
    return _version(name, event.torch) if name == "torch" else comparable(name, event.variables.get(name, ""))


def _version(name: str, text: str | None) -> str:
    numbers = re.match(r"(MindSpore )?\d{1,5}(\.\d{1,5}){0,2}", text or "")
    if not numbers:
        return NOT_INSTALLED if text is None else "unknown"
    parts = numbers[0].split(".")
    return ".".join(parts if name == "torch" else parts[:2])
