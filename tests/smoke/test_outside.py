"""A sample of `tests.smoke.outside`: faults from outside, on real hosts, in runs of the real command."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.hosts.fleet import Fleet
from tests.smoke.interpreter import visible_folders
from tests.smoke.outside import CASES, LEFT, ROOT, Trial, carry_out, judge, trials

pytestmark = [pytest.mark.torch, pytest.mark.hosts, pytest.mark.timeout(180)]


LATER = ("SIGSTOP at join", "sleep at join", "exit 0 at join", "stopped at import", "nofile 12", "closed files")
LATER += ("address gone", "one way", "clock jumps", "nan once", "own sum", "oom", "raises nccl", "odd places")
LATER += ("a FUSE mount that never starts", "a FUSE mount that hangs")
OTHERS = [pytest.param(name, 2, marks=pytest.mark.full) for name in ("ar-skip", "ar-bitflip", "send-flip", *LATER)]

ONCE = ("send-flip", "nan once")
"""One wrong element of one call: of its group, any rank may have sent it so."""

NUMBERS = [("pairs-garbage", 1), ("layernorm-off", 1)]
PATHS = [("onednn-sse41", 2), ("aten-default", 2)]


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet(3, {"*": {"shows": visible_folders()}}, name="out")


def tried(fleet: Fleet, name: str, ranks: int) -> None:
    """Carries the case out, and asks for the right verdict."""
    case = next(case for case in CASES if case.name == name)
    trial = Trial(case, 3, ranks, 1, 0, 5 if case.early or name in dict((*NUMBERS, *PATHS)) else 17)
    result = carry_out(fleet, trial)
    assert result.verdict in ("right", "one of"), result
    assert result.verdict == "right" or name in ONCE, result


@pytest.mark.parametrize(("name", "ranks"), [("ar-skip", 1), *OTHERS])
def test_a_fault_from_outside_is_laid_at_the_right_host(fleet: Fleet, name: str, ranks: int) -> None:
    tried(fleet, name, ranks)


@pytest.mark.parametrize(("name", "ranks"), NUMBERS)
def test_wrong_numbers_are_laid_at_the_right_host(fleet: Fleet, name: str, ranks: int) -> None:
    tried(fleet, name, ranks)


@pytest.mark.parametrize(("name", "ranks"), PATHS)
def test_a_host_that_computes_by_another_code_path_is_healthy(fleet: Fleet, name: str, ranks: int) -> None:
    tried(fleet, name, ranks)


def test_trials_are_seeded_and_cover_every_case() -> None:
    some = list(trials(len(CASES), 5))
    assert some == list(trials(len(CASES), 5))
    assert {trial.case.name for trial in some} == {case.name for case in CASES}
    assert all(2 <= trial.hosts * trial.ranks <= 8 for trial in some)


def test_what_a_case_allows_are_checks() -> None:
    names = {path.stem.replace("_", "-") for path in (ROOT / "checks").glob("*.py")}
    assert {name for case in CASES for name in case.checks} <= names


LEAVES = """
touch /dev/shm/torch_9_1; mkdir -p /tmp/pymp-d0000009
DOCTOR_SMOKE=mark sleep 600 >/dev/null 2>&1 &
DOCTOR_SMOKED=mark sleep 601 >/dev/null 2>&1 &
"""


def test_what_a_run_leaves_on_a_host_is_seen(fleet: Fleet) -> None:
    host = fleet.hosts[2]
    with fleet.broken(host, LEAVES):
        listed = fleet.enter(host, LEFT).stdout.splitlines()
    assert [line.split(" ")[0] for line in listed[:2]] == ["/dev/shm/torch_9_1", "/tmp/pymp-d0000009"]
    assert [line.rpartition(" 0 ")[2] for line in listed[2:]] == ["sleep 600 "]
    assert not fleet.enter(host, LEFT).stdout


def test_an_innocent_host_in_a_finding_is_wrong() -> None:
    case = next(case for case in CASES if case.name == "ar-wrong")
    assert judge(case, ["b"], {"smoke-collective-wrong": ["a"]}, True, None) == "wrong"
    assert judge(case, ["b"], {"smoke-collective-wrong": ["a", "b"]}, True, None) == "one of"
    assert judge(case, ["b"], {}, True, None) == "missed"
    assert judge(case, ["b"], {}, False, None) == "not struck"
