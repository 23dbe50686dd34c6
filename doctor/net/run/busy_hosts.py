"""Hosts that were too busy to answer in time: what timed out there says nothing of the network. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.facts.peer_connections import LONGEST_TURN
from doctor.net.run.host_trial import HostTrial
from doctor.net.run.sessions import AttemptReport, PaceReport

TIMED_OUT = frozenset({"dropped", "silent", "sends-stall", "receives-stall"})
"""Outcomes of attempts that waited for an answer until their time was over."""
PROGRAM_LATE = TIMED_OUT - {"dropped"}
"""Those that a kernel had answered, and a program did not; unless a size was found from which on packets are lost."""
CLOSED = "cut"
"""The outcome of one that the other side closed before a word was said."""
WAITED_SHARE = 0.5
"""Of its time a prober waited for a CPU."""
STOLEN_SHARE = 0.3
"""Of the host's CPU time the hypervisor took."""
LEAST_SECONDS = 1.0
"""Below which the shares prove nothing."""

GAVE_UP = "it closed connections that it had no time or room for"
"""Of a host that is not busy by what it measured."""

Cell = tuple[int, int, int]
"""Source, target and place of the port."""


def busy_text(pace: PaceReport | None) -> str:
    """What kept a host from answering, in words; the empty string where nothing did.

    >>> busy_text(PaceReport(seconds=4.0, longest=2.5))
    'its programs did not run for 2.5 s at a stretch'
    """
    if pace is None:
        return "it did not say in time whether its programs run"
    parts = []
    if pace.longest >= LONGEST_TURN:
        parts.append(filled("its programs did not run for {0} s at a stretch", f"{pace.longest:.1f}"))
    if pace.seconds >= LEAST_SECONDS and pace.waited >= WAITED_SHARE * pace.seconds:
        parts.append(filled("they waited for a CPU for {0} of the time", f"{pace.waited / pace.seconds:.0%}"))
    if pace.seconds >= LEAST_SECONDS and pace.stolen >= STOLEN_SHARE:
        parts.append(filled("the hypervisor took {0} of its CPU time", f"{pace.stolen:.0%}"))
    return ", ".join(parts)


def undecided(trials: Mapping[int, HostTrial]) -> dict[Cell, int]:
    """The attempts that timed out because of a busy host, with that host's number; ``trials`` by number.

    A busy host with which as many attempts were answered as timed out did answer: there the network is to blame. What
    a program owed says nothing however many others it answered.
    """
    owed = {
        (source, target, place): target if attempt.outcome == CLOSED or trials[target].busy else source
        for source, trial in trials.items()
        for (target, place), attempt in trial.attempts.items()
        if target in trials and _was_owed(attempt, trial, trials[target])
    }
    return {**_late(trials), **owed}


def _was_owed(attempt: AttemptReport, source: HostTrial, target: HostTrial) -> bool:
    """Whether the target's kernel has answered, and its program, or the source's that reads, had no time or no room."""
    if attempt.outcome == CLOSED:
        return (attempt.port, attempt.source_port) in (target.given_up or ())
    return bool(source.busy or target.busy) and attempt.outcome in PROGRAM_LATE and not attempt.largest


def _late(trials: Mapping[int, HostTrial]) -> dict[Cell, int]:
    busy = {host for host, trial in trials.items() if trial.busy}
    if not busy:
        return {}
    late, answered = Counter[int](), Counter[int]()
    for source, target, _, outcome in _attempts(trials):
        counts = late if outcome in TIMED_OUT else answered
        counts.update({source, target} & busy)
    unproven = {host for host in busy if late[host] > answered[host]}
    return {
        (source, target, place): min({source, target} & unproven)
        for source, target, place, outcome in _attempts(trials)
        if outcome in TIMED_OUT and {source, target} & unproven
    }


def _attempts(trials: Mapping[int, HostTrial]) -> Iterator[tuple[int, int, int, str]]:
    for source, trial in trials.items():
        for (target, place), attempt in trial.attempts.items():
            if attempt.outcome not in ("local", "untried"):
                yield source, target, place, attempt.outcome


def busy_note(names: Mapping[str, str]) -> str:
    """One line on the busy hosts, by name what kept each."""
    some = joined(
        "; ", (filled("{0}: {1}", strip_control_chars(host, 60), text) for host, text in list(names.items())[:4])
    )
    more = filled("; and {0} more", len(names) - 4) if len(names) > 4 else ""
    return filled(
        "network test: hosts were too busy to answer in time ({0}{1}); what timed out there is unknown", some, more
    )
