import pytest

from tests.checks.npus import npus
from tests.checks.ports import reserved
from tests.checks.run_check import messages, run_check

NAME = "hccl-ports-half-reserved"


def test_all_of_them_is_well() -> None:
    assert messages(run_check(NAME, {"a": [reserved("60000-60031"), npus(8)]})) == []


@pytest.mark.parametrize(("text", "lost"), [("60000-60015", "60016-60031"), ("60000-60030", "60031")])
def test_the_upper_half_is_missing(text: str, lost: str) -> None:
    outcome = run_check(NAME, {"a": [reserved(text), npus(8)]})
    assert outcome.findings[0].values["ports"] == lost
    assert outcome.findings[0].values["merged"] == "60000-60031"


@pytest.mark.parametrize("text", ["", "60016-60031", "60001-60015"])
def test_a_missing_lower_half_is_left_to_its_own_check(text: str) -> None:
    assert messages(run_check(NAME, {"a": [reserved(text), npus(8)]})) == []
