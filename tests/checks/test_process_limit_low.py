import pytest

from doctor.facts.limits import Limit
from tests.checks.control_groups import GROUP, control_group
from tests.checks.limits import FREE, limits
from tests.checks.run_check import messages, run_check


@pytest.mark.parametrize("limit", [FREE, Limit(4096, 4096), Limit(127000, None)])
def test_enough_is_well(limit: Limit) -> None:
    assert messages(run_check("process-limit-low", {"a": [limits(nproc=limit)]})) == []


def test_too_few() -> None:
    outcome = run_check("process-limit-low", {"a": [limits(nproc=Limit(1024, None))]})
    assert messages(outcome) == [("a", "a user may have 1024 processes and threads; expected at least 4096")]
    assert outcome.findings[0].values["hard"] == "unlimited"


def test_the_limit_of_a_control_group() -> None:
    low = control_group(processes=2048, processes_setting=f"{GROUP}/pids.max")
    outcome = run_check(
        "process-limit-low", {"a": [limits(nproc=FREE), low], "b": [limits(nproc=FREE), control_group()]}
    )
    text = f"the job's control group may have 2048 processes and threads, by {GROUP}/pids.max; expected at least 4096"
    assert messages(outcome) == [("a", text)]
