from doctor.facts.visit import ClockOffset
from tests.checks.run_check import messages, run_check, skipped


def clock(offset: float, error: float = 0.01) -> list[ClockOffset]:
    return [ClockOffset(minimum=offset - error, maximum=offset + error)]


def test_clocks_within_a_second_are_well() -> None:
    hosts = {"a": clock(0), "b": clock(0.9), "c": clock(-0.1)}
    assert messages(run_check("clocks-differ", hosts)) == []


def test_the_one_that_differs_from_most_is_named_with_its_error_bar() -> None:
    outcome = run_check("clocks-differ", {"a": clock(5), "b": clock(-85, 0.2), "c": clock(5.1), "d": clock(4.9)})
    assert messages(outcome) == [("b", "the clock is 90.0 s behind that of most hosts (+/- 0.21 s)")]
    assert outcome.findings[0].values["observed"] == "-90.000 s"


def test_our_own_clock_does_not_matter() -> None:
    assert messages(run_check("clocks-differ", {"a": clock(-3600), "b": clock(-3600.2)})) == []


def test_what_may_be_a_slow_network_is_no_finding() -> None:
    """The ranges touch within a second: the clocks may agree."""
    hosts = {"a": clock(0), "b": clock(0), "c": clock(30, 29.5)}
    assert messages(run_check("clocks-differ", hosts)) == []


def test_two_that_differ_are_both_named() -> None:
    outcome = run_check("clocks-differ", {"a": clock(0), "b": clock(10)})
    assert [host for host, _ in messages(outcome)] == ["a", "b"]
    assert "no majority shows which clock is right" in messages(outcome)[0][1]


def test_three_against_two_blames_the_two() -> None:
    hosts = {"a": clock(0), "b": clock(60), "c": clock(0), "d": clock(60), "e": clock(0)}
    assert [host for host, _ in messages(run_check("clocks-differ", hosts))] == ["b", "d"]


def test_a_single_host_is_skipped() -> None:
    assert skipped(run_check("clocks-differ", {"a": clock(9)})) == {"only one host: nothing to compare"}
