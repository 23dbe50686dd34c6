"""A smoke run as facts: what the ranks of each host said, stage by stage, and why a stage was not reached. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from doctor.engine.fact import Output
from doctor.smoke.model import Plan, SmokeRun, Trouble, TroubleKind

_FACTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "SmokeStart": ("start", ("imported", "try", "joined", "error", "exit")),
    "SmokeCollectives": ("collectives", ("checked", "wrong", "unsupported", "speed")),
    "SmokePairs": ("pairs", ("pair",)),
    "SmokeTraining": ("training", ("twin", "twin-blocks", "twin-update", "begin", "step", "end")),
    "SmokeLearning": ("learning", ("learn",)),
    "SmokeLoader": ("loader", ("loader",)),
    "SmokePace": ("pace", ("pace",)),
    "SmokeNative": ("native", ("native",)),
}
"""Fact class -> the stage that it is learnt in, and the events that it is made of."""

CHECKS: dict[TroubleKind, str] = {
    "not-started": "smoke-rank-not-started",
    "never-joined": "smoke-rank-never-joined",
    "mismatch": "smoke-collective-mismatched",
    "order": "smoke-collective-order",
    "dead": "smoke-rank-died",
    "left": "smoke-rank-left",
    "stopped": "smoke-rank-stopped",
    "frozen": "smoke-rank-stopped",
    "blocked": "smoke-rank-blocked",
    "busy": "smoke-rank-blocked",
    "input": "smoke-input-stalled",
    "network": "smoke-network-silent",
    "silent": "smoke-host-silent",
    "budget": "smoke-budget-spent",
}
"""The check that reports each kind of trouble."""


_EVERY_RANK = ("SmokeCollectives", "SmokeTraining", "SmokeLoader", "SmokePace")
"""Facts that every rank has something to say of."""


def outputs(
    run: SmokeRun, host: str, events: Sequence[Mapping[str, Any]], elsewhere: Collection[str] = ()
) -> dict[str, dict[str, Output]]:
    """One output a fact class, for one host of the run. ``elsewhere``: the kinds of events that other hosts told."""
    mine = {place.rank for place in run.plan.places if place.host == host}
    found: dict[str, dict[str, Output]] = {}
    for name, (stage, kinds) in _FACTS.items():
        said = [event for event in events if event.get("ev") in kinds]
        passed = {event.get("rank") for event in events if event.get("ev") == "stage" and event.get("stage") == stage}
        # Of the start everything is known that was said: it is judged as it stands.
        reached = mine <= passed if name != "SmokeStart" else bool(said)
        why, because = ("", "") if reached else unreached(run, stage)
        planned = stage in run.plan.stages
        if reached and not said and set(kinds) & set(elsewhere):
            # Only some ranks compute a loss, and only some exchange with other hosts.
            planned, why = False, f"the {stage} stage gives this host's ranks nothing to tell"
        if reached and not said and name == "SmokePairs" and _one_host_of_cpus(run.plan):
            planned, why = False, "the ranks run on the CPUs of one host: there is no link between them"
        body = {
            "reached": reached,
            "why": why,
            "because": because,
            "planned": planned,
            "ranks": sorted(mine) if name in _EVERY_RANK else [],
            "events": said,
        }
        found[name] = {"": Output(out=msgspec.json.encode(body).decode())}
    return found


def _one_host_of_cpus(plan: Plan) -> bool:
    return plan.backend == "gloo" and len({place.host for place in plan.places}) == 1


def unreached(run: SmokeRun, stage: str) -> tuple[str, str]:
    """Why a stage was not passed, and the check that reports the cause."""
    if stage not in run.plan.stages:
        return (f"the {stage} stage was not asked for", "")
    if run.troubles:
        return (f"the smoke run ended before: {in_words(run, run.troubles[0])}", CHECKS[run.troubles[0].kind])
    if run.ended == "interrupted":
        return ("the smoke run was interrupted before", "")
    return (f"the {stage} stage did not run", "")


def in_words(run: SmokeRun, trouble: Trouble) -> str:
    """Such as ``rank 2 (w1) dead in training, signal 9``."""
    shown = [f"{rank} ({run.plan.host_of(rank)})" for rank in trouble.guilty[:4]]
    more = f" and {len(trouble.guilty) - 4} more" if len(trouble.guilty) > 4 else ""
    who = f"rank{'s' * (len(shown) > 1)} {', '.join(shown)}{more} " if shown else ""
    where = f" in {trouble.stage}" if trouble.stage else ""
    return f"{who}{trouble.kind}{where}{', ' if trouble.text else ''}{trouble.text}"
