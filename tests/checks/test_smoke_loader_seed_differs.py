from __future__ import annotations

from typing import Any

import msgspec

from doctor.engine.result import Finding, Status
from doctor.smoke.model import SmokeRun
from tests.checks.smoke import found, judged, loader, loader_events, page, ran
from tests.checks.trained import DP2TP2, DP4, TP4

NAME = "smoke_loader_seed_differs"


def said(run: SmokeRun, change: dict[int, dict[str, Any]]) -> tuple[Finding, ...]:
    """What the check finds when these ranks' loaders tell something else."""
    events = loader_events(run)
    return found(NAME, run, loader(run, [msgspec.structs.replace(one, **change.get(one.rank, {})) for one in events]))


def test_workers_draw_by_the_data_parallel_index() -> None:
    for layout in (DP4, TP4, DP2TP2):
        run = ran(4, 2, layouts=(layout,))
        assert judged(NAME, run, loader(run)).status is Status.PASSED


def test_the_workers_of_one_rank_draw_otherwise() -> None:
    [one] = said(ran(4, 2, layouts=(TP4,)), {2: {"digests": {"python": 0, "numpy": 99, "torch": 2}}})
    assert (one.values["ranks"], one.values["generators"], one.hosts) == ([2], ["numpy"], ("w2",))
    assert str(one).startswith("the loader workers of rank 2 (w2; tp2) drew other numpy numbers than those of the rest")


def test_of_two_that_hold_one_model_none_has_a_majority() -> None:
    [one] = said(ran(4, 2, layouts=(DP2TP2,)), {3: {"digests": {"python": 5, "numpy": 6, "torch": 7}}})
    assert one.values["tie"]
    assert str(one) == (
        "the loader workers of ranks 2-3, which hold one model, drew different numpy, python and torch numbers; "
        "expected the same"
    )


def test_numpy_is_the_parents_copy_everywhere() -> None:
    digests = {rank: {"digests": {"python": 100 * rank, "numpy": 7, "torch": 100 * rank + 2}} for rank in range(4)}
    [one] = said(ran(4, 2, layouts=(DP4,)), digests)
    assert one.values["generators"] == ["numpy"]
    assert "of ranks 0-3 drew the same numbers (numpy) for different data" in str(one)
    assert "Check first: numpy" in page(NAME, one)


def test_a_loader_that_failed_is_not_compared() -> None:
    assert not said(ran(4, 2, layouts=(TP4,)), {1: {"digests": {}, "text": "No space left on device (28)"}})


def test_one_loader_has_no_equal() -> None:
    run = ran(1, 1)
    assert judged(NAME, run, loader(run)).status is Status.SKIPPED


def test_a_generator_that_some_ranks_lack_says_nothing() -> None:
    run = ran(4, 2, layouts=(TP4,))
    events = loader_events(run)
    without = [
        msgspec.structs.replace(one, digests={name: value for name, value in one.digests.items() if name != "numpy"})
        if one.rank == 2
        else one
        for one in events
    ]
    assert not found("smoke_loader_seed_differs", run, loader(run, without))
