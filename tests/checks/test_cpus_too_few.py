from doctor.job import LaunchConfig
from tests.checks.control_groups import GROUP, control_group
from tests.checks.npus import npus
from tests.checks.run_check import messages, run_check, skipped


def test_one_cpu_a_rank_is_enough() -> None:
    for group in (control_group(), control_group(allowed_cpus=8), control_group(quota=8.0)):
        assert messages(run_check("cpus-too-few", {"a": [group, npus(8)]})) == []


def test_a_host_that_is_small_as_a_whole_is_not_judged() -> None:
    assert messages(run_check("cpus-too-few", {"a": [control_group(allowed_cpus=2, online_cpus=2), npus(8)]})) == []


def test_fewer_cpus_than_ranks() -> None:
    """One CPU a task is what Slurm gives where nothing is asked for."""
    outcome = run_check("cpus-too-few", {"a": [control_group(allowed_cpus=1), npus(8)]})
    text = "8 ranks may use 1 of 128 CPUs, by the CPU affinity of their processes; expected at least one a rank"
    assert messages(outcome) == [("a", text)]


def test_less_time_than_ranks() -> None:
    slow = control_group(quota=2.5, quota_setting=f"{GROUP}/cpu.max", allowed_cpus=64)
    outcome = run_check("cpus-too-few", {"a": [slow]}, LaunchConfig.from_environment({}, ranks_per_host=4))
    assert messages(outcome) == [
        ("a", f"4 ranks may use 2.5 of 128 CPUs, by {GROUP}/cpu.max; expected at least one a rank")
    ]


def test_ranks_that_nobody_counts() -> None:
    outcome = run_check("cpus-too-few", {"a": [control_group(allowed_cpus=1)]})
    assert skipped(outcome) == {"the number of ranks on a host is not known"}
