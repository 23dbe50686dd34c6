"""What all checks of a run that was broken off have in common."""

from __future__ import annotations

from typing import Any

from doctor.engine.result import Finding
from doctor.engine.smoke_failures import FAILURE_KINDS
from doctor.smoke.model import Failure, FailureKind, SmokeRun
from tests.checks.smoke import findings_of, page, ran, run_check, started

KINDS = tuple(FAILURE_KINDS)


def trouble(kind: FailureKind, *guilty: int, **more: Any) -> Failure:
    """In the second step of a layout, while the others of four ranks wait."""
    victims = tuple(rank for rank in range(4) if rank not in guilty)
    chosen = {"stage": "training", "layout": "dp4", "step": 2, "group": "dp4", "seq": 7, "op": "all_reduce"}
    return Failure(
        **{
            "kind": kind,
            "culprit_ranks": guilty,
            "waiting_ranks": victims,
            **chosen,
            "numel": 128,
            "dtype": "float32",
            **more,
        }
    )


def only(name: str, *kinds: FailureKind) -> None:
    """The check fires for these kinds alone, is content with a whole run, and claims nothing of another broken one."""
    assert run_check(name, ran(), started(ran())).findings == ()
    for kind in KINDS:
        run = ran(4, 2, trouble(kind, 2))
        outcome = run_check(name, run, started(run))
        assert not outcome.crashed, outcome.crashed
        assert bool(outcome.findings) == (kind in kinds), kind
        if kind not in kinds:
            assert outcome.unknown, kind
    interrupted = run_check(name, ran(4, 2, ended="interrupted"))
    assert interrupted.unknown and not interrupted.findings


def only_finding(name: str, run: SmokeRun) -> tuple[Finding, str]:
    """The only finding of the check, and what is to be done about it."""
    (finding,) = findings_of(name, run, started(run))
    return finding, page(name, finding)


__all__ = ["only", "only_finding", "trouble"]
