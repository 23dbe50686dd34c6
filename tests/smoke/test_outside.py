"""A sample of `tests.smoke.outside`: faults from outside, on real hosts, in runs of the real command."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.hosts.fleet import Fleet
from tests.smoke.interpreter import visible_folders
from tests.smoke.outside import CASES, Trial, carry_out, judge, trials

pytestmark = [pytest.mark.torch, pytest.mark.hosts, pytest.mark.timeout(180)]


LATER = ("SIGSTOP at join", "sleep at join", "exit 0 at join", "stopped at import", "nofile 12", "closed files")
LATER += ("address gone", "one way", "clock jumps", "nan once", "own sum", "oom", "raises nccl", "odd places")
OTHERS = [pytest.param(name, 2, marks=pytest.mark.full) for name in ("ar-skip", "ar-bitflip", "send-flip", *LATER)]

ONCE = ("send-flip", "nan once")
"""One wrong element of one call: of its group, any rank may have sent it so."""

NUMBERS = [("pairs-garbage", 1), ("layernorm-off", 1), ("onednn-sse41", 2), ("aten-default", 2)]
"""Wrong numbers, and hosts that compute by another code path than the others: these are healthy."""


@pytest.mark.parametrize(("name", "ranks"), [("ar-skip", 1), *NUMBERS, *OTHERS])
def test_a_fault_from_outside_is_laid_at_the_right_host(
    make_fleet: Callable[..., Fleet], name: str, ranks: int
) -> None:
    case = next(case for case in CASES if case.name == name)
    result = carry_out(
        make_fleet(3, {"*": {"shows": visible_folders()}}, name="out"),
        Trial(case, 3, ranks, 1, 0, 5 if case.early or case.name in dict(NUMBERS) else 17),
    )
    assert result.verdict in ("right", "one of"), result
    assert result.verdict == "right" or name in ONCE, result


def test_trials_are_seeded_and_cover_every_case() -> None:
    some = list(trials(len(CASES), 5))
    assert some == list(trials(len(CASES), 5))
    assert {trial.case.name for trial in some} == {case.name for case in CASES}
    assert all(2 <= trial.hosts * trial.ranks <= 8 for trial in some)


def test_an_innocent_host_in_a_finding_is_wrong() -> None:
    case = next(case for case in CASES if case.name == "ar-wrong")
    assert judge(case, "b", {"smoke-collective-wrong": ["a"]}, True, None) == "wrong"
    assert judge(case, "b", {"smoke-collective-wrong": ["a", "b"]}, True, None) == "one of"
    assert judge(case, "b", {}, True, None) == "missed"
    assert judge(case, "b", {}, False, None) == "not struck"
