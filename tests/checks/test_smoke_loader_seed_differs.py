from __future__ import annotations

from typing import Any

import msgspec

from doctor.engine.result import Finding, Status
from doctor.smoke.model import SmokeRun
from tests.checks.smoke import findings_of, loader, loader_events, page, ran, run_check
from tests.checks.trained import DP2TP2, DP4, TP4

NAME = "smoke_loader_seed_differs"


def loader_findings(run: SmokeRun, change: dict[int, dict[str, Any]]) -> tuple[Finding, ...]:
    """What the check finds when these ranks' loaders tell something else."""
    events = loader_events(run)
    return findings_of(
        NAME, run, loader(run, [msgspec.structs.replace(event, **change.get(event.rank, {})) for event in events])
    )


def test_workers_draw_by_the_data_parallel_index() -> None:
    for layout in (DP4, TP4, DP2TP2):
        run = ran(4, 2, layouts=(layout,))
        assert run_check(NAME, run, loader(run)).status is Status.PASSED


def test_the_workers_of_one_rank_draw_otherwise() -> None:
    [finding] = loader_findings(ran(4, 2, layouts=(TP4,)), {2: {"digests": {"python": 0, "numpy": 99, "torch": 2}}})
    assert (finding.values["ranks"], finding.values["generators"], finding.hosts) == ([2], ["numpy"], ("w2",))
    assert str(finding).startswith(
        "the loader workers of rank 2 (w2; tp2) drew other numpy numbers than those of the rest"
    )


def test_of_two_that_hold_one_model_none_has_a_majority() -> None:
    [finding] = loader_findings(ran(4, 2, layouts=(DP2TP2,)), {3: {"digests": {"python": 5, "numpy": 6, "torch": 7}}})
    assert finding.values["tie"]
    assert str(finding) == (
        "the loader workers of ranks 2-3, which hold one model, drew different numpy, python and torch numbers; "
        "expected the same"
    )


def test_numpy_is_the_parents_copy_everywhere() -> None:
    digests = {rank: {"digests": {"python": 100 * rank, "numpy": 7, "torch": 100 * rank + 2}} for rank in range(4)}
    [finding] = loader_findings(ran(4, 2, layouts=(DP4,)), digests)
    assert finding.values["generators"] == ["numpy"]
    assert "of ranks 0-3 drew the same numbers (numpy) for different data" in str(finding)
    assert "Check first: numpy" in page(NAME, finding)


def test_a_loader_that_failed_is_not_compared() -> None:
    assert not loader_findings(ran(4, 2, layouts=(TP4,)), {1: {"digests": {}, "text": "No space left on device (28)"}})


def test_one_loader_has_no_equal() -> None:
    run = ran(1, 1)
    assert run_check(NAME, run, loader(run)).status is Status.SKIPPED


def test_a_generator_that_some_ranks_lack_says_nothing() -> None:
    run = ran(4, 2, layouts=(TP4,))
    events = loader_events(run)
    without = [
        msgspec.structs.replace(
            event, digests={name: value for name, value in event.digests.items() if name != "numpy"}
        )
        if event.rank == 2
        else event
        for event in events
    ]
    assert not findings_of("smoke_loader_seed_differs", run, loader(run, without))
