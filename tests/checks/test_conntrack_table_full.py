from doctor.facts.kernel import Conntrack
from tests.checks.run_check import advice, messages, run_check

NAME = "conntrack-table-full"


def test_a_fifth_free_is_well() -> None:
    assert messages(run_check(NAME, {"a": [Conntrack(count=80, maximum=100)]})) == []


def test_less_is_full() -> None:
    outcome = run_check(NAME, {"a": [Conntrack(count=262000, maximum=262144)]})
    assert messages(outcome) == [
        ("a", "262000 of 262144 entries for tracked connections are in use; expected at most 209715")
    ]
    assert "nf_conntrack_max=524288" in advice(NAME, outcome)


def test_a_kernel_that_tracks_nothing_is_not_judged() -> None:
    assert run_check(NAME, {"a": []}).status.value == "skipped"


def test_a_full_table_is_an_error() -> None:
    severities = [run_check(NAME, {"a": [Conntrack(count=n, maximum=100)]}).found_severity.value for n in (99, 100)]
    assert severities == ["warning", "error"]
