"""Rule "odd choice": what NCCL, RCCL or HCCL chose at the start of each process, compared over all processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from doctor.analysis.majority import split
from doctor.diagnose.case import Case
from doctor.diagnose.diagnosis import Cause, Culprit, culprit_of, first_evidence, names_of, sorted_culprits
from doctor.diagnose.events import Event
from doctor.diagnose.process import Process
from doctor.engine.texts import filled

RULE = "odd choice"
DIFFERS, FALLBACK = "communication-choice-differs", "nccl-network-fallback"
_CHOICE, _NOT_OPENED, _DISABLED = "communication-choice", "rdma-not-opened", "rdma-disabled"
_NAMES = {
    "choice_network": "network",
    "choice_plugin": "plugin",
    "choice_gdr": "GPU Direct RDMA",
    "choice_version": "version",
    "choice_algorithm": "algorithm",
    "choice_tuner": "tuner",
    "choice_adapters": "adapters",
    "choice_interface": "interface",
    "choice_channels": "channels",
}
"""What is compared, the most telling first: the first that differs explains those behind it."""
_HARMLESS = ("choice_adapters", "choice_interface", "choice_channels")
"""What hosts of one fleet may rightly have of their own, such as other names of interfaces."""
_LEAST = 3
"""Processes that must show a choice, so that most can agree."""
_SOCKET = "Socket"
_IN_WORDS = {"Could not find": "none", "No plugin found": "none"}
"""What NCCL prints of a choice where it has none."""


class Choice(NamedTuple):
    """What one process chose."""

    process: Process
    value: str
    event: Event


def odd_choices(case: Case) -> list[Cause]:
    """The processes that chose otherwise than more than half of the others, else sockets where RDMA was meant."""
    for name in _NAMES:
        choices = list(_choices(case, name))
        parts = split(choices, lambda choice: choice.value) if len(choices) >= _LEAST else None
        if parts and parts.majority and 2 * len(parts.differing) < len(choices) and _comparable(name, choices):
            return [_differing(name, parts.differing, parts.norm)]
    return _sockets(case)


def odd_choice_of_waiting(case: Case) -> list[Cause]:
    """Where all ranks only waited and no rule says for whom: the rank that chose another network, version or algorithm
    than the others, with which theirs do not fit. It is one explanation.
    """
    if not any(case.waits(process) for process in case.processes):
        return []
    causes = [cause for cause in odd_choices(case) if cause.signature == DIFFERS and cause.confidence == "likely"]
    return [msgspec.structs.replace(cause, confidence="possible") for cause in causes]


def _choices(case: Case, name: str) -> Iterator[Choice]:
    """The first choice of each process: that of its first communicator, which is the whole job's."""
    for process in case.processes:
        choice_events = [event for event in process.events if event.signature == _CHOICE and event.values.get(name)]
        if choice_events and (process.rank is not None or process.pid):
            value = choice_events[0].values[name]
            yield Choice(process, _IN_WORDS.get(value, value), choice_events[0])


def _comparable(name: str, choices: Iterable[Choice]) -> bool:
    """Whether all had the choice: sockets that a variable asks for are meant."""
    disabled = any(event.signature == _DISABLED for choice in choices for event in choice.process.events)
    return not (name in ("choice_network", "choice_adapters") and disabled)


def _differing(name: str, differing: Iterable[Choice], norm: Choice) -> Cause:
    differing = tuple(differing)
    culprits = sorted_culprits(dict.fromkeys(culprit_of(choice.process) for choice in differing))
    values = ", ".join(sorted({choice.value for choice in differing}))
    summary = filled("{0}: {1} {2}, where the others have {3}", names_of(culprits), _NAMES[name], values, norm.value)
    evidence = first_evidence([*(choice.event for choice in differing[:3]), norm.event])
    return Cause(DIFFERS, RULE, "possible" if name in _HARMLESS else "likely", culprits, summary, evidence)


def _sockets(case: Case) -> list[Cause]:
    """Processes that use sockets after they could not open an RDMA adapter that is there."""
    proofs: dict[Culprit, list[Event]] = {}
    for choice in _choices(case, "choice_network"):
        events = choice.process.events
        closed = [event for event in events if event.signature == _NOT_OPENED]
        named = any(event.values.get("adapter") for event in closed)
        meant = any(event.signature == _DISABLED for event in events)
        if choice.value == _SOCKET and named and not meant:
            proofs[culprit_of(choice.process)] = [*closed[:2], choice.event]
    if not proofs:
        return []
    culprits = sorted_culprits(proofs)
    summary = filled("{0}: TCP sockets are used although RDMA adapters are there", names_of(culprits))
    return [
        Cause(FALLBACK, RULE, "likely", culprits, summary, first_evidence(e for rows in proofs.values() for e in rows))
    ]
