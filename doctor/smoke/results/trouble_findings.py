"""A trouble as the values of a finding: who, where, what it was doing, who waited. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from doctor.engine.fact import Unreadable
from doctor.engine.result import Finding
from doctor.smoke.model import SmokeRun, Trouble, TroubleKind
from doctor.smoke.results.to_facts import unreached

FRAMES = 4
"""Of a stack, innermost first."""
MOST = 8
DEVICES = {"gloo": "", "nccl": "GPU", "hccl": "NPU"}


def found(run: SmokeRun, template: str, *kinds: TroubleKind, **more: Any) -> Iterator[Finding]:
    """One finding for each trouble of these kinds, at the hosts that are to blame.

    Raises: Unreadable, for a run without such a trouble that did not come to its end either.
    """
    troubles = [trouble for trouble in run.troubles if trouble.kind in kinds]
    for trouble in troubles:
        yield Finding(template, hosts=hosts(run, trouble), **values(run, trouble), **more)
    if not troubles and run.ended != "complete":
        raise Unreadable(*unreached(run, "teardown"))


def hosts(run: SmokeRun, trouble: Trouble) -> tuple[str, ...]:
    """Those of the guilty ranks; of a broken link both ends, unless one host explains several; else all."""
    guilty = run.hosts(trouble.guilty)
    ends = tuple(sorted({host for link in trouble.links for host in link}))
    explained = len(guilty) == 1 and len(ends) > 2 and all(guilty[0] in link for link in trouble.links)
    if ends and not explained:
        return ends
    return guilty or run.hosts(tuple(range(run.plan.world)))


def values(run: SmokeRun, trouble: Trouble) -> dict[str, Any]:
    """What templates and pages may name. ``process``: the guilty rank's words for a shell."""
    first = trouble.guilty[0] if trouble.guilty else -1
    return {
        "who": ranks(run, trouble.guilty),
        "ranks": list(trouble.guilty),
        "where": where(trouble),
        "stage": trouble.stage,
        "step": trouble.step,
        "layout": trouble.layout,
        "op": trouble.op,
        "group": trouble.group,
        "call": call(trouble),
        "doing": trouble.calls.get(first, "") or "nothing that was recorded",
        "state": trouble.states.get(first, ""),
        "sides": sides(trouble),
        "waiting": ranks(run, trouble.victims) or "nobody",
        "text": trouble.text or trouble.states.get(first, ""),
        "frame": frame(trouble.stacks.get(first, "")),
        "seconds": round(trouble.seconds, 2),
        "limit": round(trouble.limit, 2),
        "certainty": trouble.certainty,
        "links": [f"{one} to {two}" for one, two in trouble.links],
        "evidence": list(trouble.evidence),
    }


def ranks(run: SmokeRun, some: Sequence[int]) -> str:
    """Such as ``rank 2 (NPU 2)``, ``ranks 0, 1 and 3``; the empty string for none."""
    device = DEVICES[run.plan.backend]
    if len(some) == 1:
        number = run.plan.places[some[0]].device
        return f"rank {some[0]} ({device} {number})" if device and number >= 0 else f"rank {some[0]}"
    words = [str(rank) for rank in some[:MOST]]
    words += [f"{len(some) - MOST} more"] if len(some) > MOST else []
    return f"ranks {', '.join(words[:-1])} and {words[-1]}" if words else ""


def where(trouble: Trouble) -> str:
    """Such as ``in step 3 of dp2 tp2``, ``in the collectives stage``."""
    if trouble.layout:
        return f"in step {trouble.step} of {trouble.layout}"
    return f"in the {trouble.stage} stage" if trouble.stage else "in the run"


def call(trouble: Trouble) -> str:
    """The collective that it is all about."""
    if not trouble.op:
        return "no collective"
    size = f" of {trouble.numel} {trouble.dtype}" if trouble.dtype else ""
    return f"{trouble.op}{size} in {trouble.group}, number {trouble.seq}"


def sides(trouble: Trouble) -> list[str]:
    """What each rank concerned was doing, ranks that did the same together, the guilty first."""
    same: dict[str, list[int]] = {}
    for rank in sorted(trouble.calls, key=lambda rank: (rank not in trouble.guilty, rank)):
        same.setdefault(trouble.calls[rank], []).append(rank)
    named = (
        f"rank{'s' * (len(some) > 1)} {', '.join(map(str, some[:MOST]))}{' ...' * (len(some) > MOST)}: {doing}"
        for doing, some in same.items()
    )
    return list(named)[:MOST]


def frame(stack: str) -> str:
    """The innermost calls of a stack, in one line."""
    lines = [line.strip() for line in stack.splitlines() if line.strip().startswith("File ")]
    return ", called from ".join(lines[:FRAMES]) or "no stack could be had"
