"""Tiers of a preflight: which checks run, and the default time limit. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal, get_args

from doctor.engine.check import Check
from doctor.engine.result import Severity
from doctor.engine.texts import filled

Tier = Literal["quick", "standard", "smoke", "deep"]
TIERS: tuple[Tier, ...] = get_args(Tier)
TRAINING_TIERS: tuple[Tier, ...] = ("smoke", "deep")
"""Those with a smoke run; deep also tests each device."""


def checks_of_tier(checks: Iterable[Check], tier: Tier) -> tuple[list[Check], list[Check]]:
    """The checks of a tier, and those that it leaves out.

    quick: every host is read once, with no load on devices or links: nothing that takes a second round, but to settle a
    doubt of the first, and no call of a vendor's tool for each device that only a warning needs. These run one after
    the other, some 0.2 s each.
    standard: everything that reads, and a quick test of the network between the hosts. smoke: also the results of the
    training run, and the network test of all pairs. deep: also those of the device test.
    """
    picked: list[Check] = []
    excluded: list[Check] = []
    candidates = list(checks)
    needed = {fact for check in candidates if check.severity is Severity.ERROR for fact in check.facts}
    for check in candidates:
        trains = any(fact.probe.kind == "smoke" for fact in check.facts) or check.area == "smoke"
        second = any(fact.needs and not fact.settles_doubt for fact in check.facts)
        if (trains and tier not in TRAINING_TIERS) or (tier == "quick" and tests_network([check])):
            continue
        slow = any(
            fact.probe.lane and (fact.probe.each or fact.probe.repeats) and fact not in needed for fact in check.facts
        )
        if (second or slow) and tier == "quick":
            excluded.append(check)
        else:
            picked.append(check)
    return picked, excluded


def left_out(select: Iterable[str], candidates: Collection[Check], picked: Collection[Check]) -> dict[Check, str]:
    """Why the checks do not run that a word of ``select`` asks for and of which none is picked."""
    names = {check.name for check in picked}
    reasons: dict[Check, str] = {}
    for word in select:
        selected = [check for check in candidates if word in (check.name, check.area)]
        for check in selected if names.isdisjoint(check.name for check in selected) else ():
            tier = next(tier for tier in TIERS if checks_of_tier([check], tier)[0])
            option = f"--tier {tier} --net quick" if tests_network([check]) else f"--tier {tier}"
            reasons[check] = filled("{0} was selected, and needs {1}", word, option)
    return reasons


def tests_network(checks: Iterable[Check]) -> bool:
    """Whether one of the checks needs the hosts to try their network."""
    return any(fact.probe.kind == "network-test" for check in checks for fact in check.facts)
