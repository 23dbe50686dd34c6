from doctor.engine.fact import Fact
from doctor.engine.quantities import GIB, MIB
from doctor.engine.result import Severity
from doctor.facts.memory import HostMemory
from doctor.facts.visit import Reachability
from doctor.job import LaunchConfig
from tests.checks.control_groups import GROUP, control_group, memory_bound
from tests.checks.npus import npus
from tests.checks.run_check import messages, run_check

LARGE = HostMemory(total=1000 * GIB, available=900 * GIB)


def test_a_tenth_is_enough() -> None:
    assert messages(run_check("memory-short", {"a": [HostMemory(total=1000 * GIB, available=100 * GIB)]})) == []


def test_less_is_short() -> None:
    outcome = run_check("memory-short", {"a": [HostMemory(total=1000 * GIB, available=64 * GIB)]})
    assert messages(outcome) == [("a", "64 GiB of 1000 GiB of memory are available; expected at least 100 GiB")]


def test_a_control_group_with_enough_and_one_with_more_than_the_host() -> None:
    some = control_group(memory=(memory_bound(64 * GIB, 50 * GIB),))
    none = control_group(memory=(memory_bound(2000 * GIB, 1999 * GIB),))
    facts = {"a": [LARGE, some, npus(8)], "b": [LARGE, none, npus(8)], "c": [LARGE, control_group()]}
    assert messages(run_check("memory-short", facts)) == []


def test_a_control_group_that_is_used_up() -> None:
    """The narrowest of several counts, whichever file sets it."""
    bounds = (memory_bound(64 * GIB), memory_bound(60 * GIB, 58 * GIB, "memory.high"))
    outcome = run_check("memory-short", {"a": [LARGE, control_group(memory=bounds)]})
    text = f"2 GiB of 60 GiB are available below the limit in {GROUP}/memory.high; expected at least 6 GiB"
    assert messages(outcome) == [("a", f"{text} (ranks of the host: 1)")]


def test_ranks_share_what_there_is() -> None:
    """One GiB for each rank with a device, a quarter of that for one without."""
    group = control_group(memory=(memory_bound(4 * GIB, 100 * MIB),))
    outcome = run_check("memory-short", {"a": [LARGE, group, npus(8)], "b": [LARGE, group]})
    text = f"3.9 GiB of 4 GiB are available below the limit in {GROUP}/memory.max; expected at least 8 GiB"
    assert messages(outcome) == [("a", f"{text} (ranks of the host: 8)")]
    assert (
        messages(run_check("memory-short", {"b": [LARGE, group]}, LaunchConfig.from_environment({}, ranks_per_host=32)))
        != []
    )


def test_less_than_any_rank_needs_ends_a_job_that_torchrun_starts_in_this_group() -> None:
    def severity(limit: int, *, local: bool = True, launchers: tuple[str, ...] = ("torchrun",)) -> Severity:
        group = control_group(memory=(memory_bound(limit, 0),))
        launch = LaunchConfig(launchers=launchers, ranks_per_host=2)
        facts: dict[str, list[Fact]] = {"a": [LARGE, group, Reachability("", "", "", local=local)]}
        outcome = run_check("memory-short", facts, launch)
        (finding,) = outcome.findings
        return outcome.severity_of(finding)

    assert severity(390 * MIB) is Severity.ERROR
    assert severity(401 * MIB) is Severity.WARNING
    for launchers in ((), ("srun", "torchrun")):
        assert severity(390 * MIB, launchers=launchers) is Severity.WARNING
    assert severity(390 * MIB, local=False) is Severity.WARNING
