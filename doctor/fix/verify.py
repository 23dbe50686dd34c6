"""Whether a host is mended: the very checks that found something are run again, and are green. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

from doctor.engine.result import Outcome, Report
from doctor.engine.sanitize import plain
from doctor.fix.select import message


class Proof(msgspec.Struct, frozen=True):
    """What one check says of one host after the steps."""

    host: str
    check: str
    state: Literal["green", "waits", "red", "unknown"]
    """``waits``: what it found takes other hosts as well, whose turn has not come."""
    why: str = ""


def prove(
    report: Report, wanted: Mapping[str, Collection[str]], mended: Collection[str], planned: Collection[str]
) -> list[Proof]:
    """One for every check of every host of ``wanted``; ``planned`` are all hosts that are to be mended."""
    outcomes = {one.check: one for one in report.outcomes}
    waiting = set(planned) - set(mended)
    return [
        _proof(host, outcomes.get(check), check, waiting) for host, checks in wanted.items() for check in sorted(checks)
    ]


def _proof(host: str, outcome: Outcome | None, check: str, waiting: Collection[str]) -> Proof:
    if outcome is None:
        return Proof(host, check, "unknown", "it was not run again")
    against = [one for one in outcome.findings if host in one.hosts]
    standing = [one for one in against if not set(one.hosts) & set(waiting)]
    if standing:
        return Proof(host, check, "red", message(standing[0]))
    why = outcome.unknown.get(host) or outcome.unknown.get("")
    if why:
        return Proof(host, check, "unknown", plain(why.text))
    if host in outcome.crashed or "" in outcome.crashed:
        return Proof(host, check, "unknown", "the check itself broke")
    if against:
        return Proof(host, check, "waits")
    if host not in outcome.looked:
        skipped = outcome.skipped.get(host) or outcome.skipped.get("") or "it did not look at the host"
        return Proof(host, check, "unknown", plain(skipped))
    return Proof(host, check, "green")
