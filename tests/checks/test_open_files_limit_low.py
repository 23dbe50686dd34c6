import pytest

from doctor.facts.limits import Limit
from doctor.facts.slurm import JobServices, raising
from doctor.job import LaunchConfig
from doctor.job.job_script import read_job_script
from tests.checks.limits import FREE, limits
from tests.checks.run_check import advice, job, messages, run_check

NAME = "open-files-limit-low"


@pytest.mark.parametrize("limit", [FREE, Limit(16384, 16384), Limit(65535, 65535), Limit(1048576, None)])
def test_enough_is_well(limit: Limit) -> None:
    assert messages(run_check(NAME, {"a": [limits(nofile=limit)]})) == []


def test_a_low_limit_that_the_job_may_raise_itself() -> None:
    outcome = run_check(NAME, {"a": [limits(nofile=Limit(1024, 524288))]})
    assert messages(outcome) == [("a", "a process may open 1024 files; expected at least 16384, better 65535")]
    assert "limits.conf" not in advice(NAME, outcome)


def test_a_low_limit_that_only_root_can_raise() -> None:
    outcome = run_check(NAME, {"a": [limits(nofile=Limit(1024, 4096))]})
    assert (
        "'* hard nofile 65535' 'root hard nofile 65535' >> /etc/security/limits.d/99-zz-cluster.conf`, then log in"
        in advice(NAME, outcome)
    )


@pytest.mark.parametrize(("ranks", "expected"), [("1024", 16384), ("2048", 32768), ("100000", 65535)])
def test_a_large_job_wants_more(ranks: str, expected: int) -> None:
    hosts = {"a": [limits(nofile=Limit(expected, expected))], "b": [limits(nofile=Limit(expected - 1, None))]}
    outcome = run_check(NAME, hosts, job(WORLD_SIZE=ranks))
    assert [(finding.hosts, finding.values["expected"]) for finding in outcome.findings] == [(("b",), expected)]


@pytest.mark.parametrize(("limit", "severity"), [(1024, "warning"), (31, "warning"), (30, "error")])
def test_an_error_where_rank_0_cannot_have_its_connections(limit: int, severity: str) -> None:
    outcome = run_check(NAME, {"a": [limits(nofile=Limit(limit, None))]}, job(WORLD_SIZE="8"))
    assert outcome.found_severity.value == severity


@pytest.mark.parametrize(
    ("text", "soft"),
    [
        ("ulimit -n 24", 24),
        ("ulimit -Sn 65535", 65535),
        ("ulimit -n 99999999", 1024),  # above the hard limit: refused
        ("ulimit -n unlimited", 1024),
        ("ulimit -n hard", 70000),
        ("( ulimit -n 24 )", 1024),
        ("if true; then ulimit -n 24; fi", 1024),
        ("ulimit -t 1", 1024),
    ],
)
def test_what_the_job_script_sets_counts(text: str, soft: int) -> None:
    (line,) = read_job_script(f"{text}\ntorchrun --nproc-per-node 2 t.py\nulimit -n 7\n").launch_lines
    of_host = limits(nofile=Limit(1024, 70000), memlock=FREE)
    assert of_host.of_job(LaunchConfig(limits=dict(line.limits))).nofile == Limit(soft, 70000)


def test_a_launcher_of_other_hosts_starts_ranks_with_their_own_limits() -> None:
    (line,) = read_job_script("ulimit -n 24\nmpirun -np 4 -H a,b python3 t.py\n").launch_lines
    assert line.limits == []


DAEMON = "Max open files    {0}    {1}    files\nMax locked memory    unlimited    unlimited    bytes\n"


@pytest.mark.parametrize(
    ("of_daemon", "kept", "launchers", "line", "soft"),
    [
        ((24, 24), (), ("srun",), "srun t.py", 24),
        ((24, 70000), (), ("srun",), "srun t.py", 20000),
        ((24, 70000), ("NOFILE",), ("srun",), "srun t.py", 24),
        ((24, 24), (), ("torchrun",), "torchrun t.py", 20000),
        ((24, 24), (), (), "", 20000),
        ((24, 24), (), ("srun",), "srun --propagate=NONE t.py", 20000),
    ],
)
def test_tasks_of_srun_have_the_limits_of_slurmd(
    of_daemon: tuple[int, int], kept: tuple[str, ...], launchers: tuple[str, ...], line: str, soft: int
) -> None:
    """Measured with Slurm 22.05: `test_what_srun_gives_its_tasks` of tests/interfaces/test_slurm_limits.py."""
    daemon = JobServices({"slurmd": DAEMON.format(*of_daemon)}, kept)
    launch = LaunchConfig(launchers=launchers, launch_line=line)
    assert limits(nofile=Limit(20000, 20000)).of_job(launch, daemon).nofile.soft == soft
    outcome = run_check(NAME, {"a": [limits(nofile=Limit(20000, 20000)), daemon]}, launch)
    expected = [("a", "a process that slurmd starts may open 24 files; expected at least 16384, better 65535")]
    assert messages(outcome) == (expected if soft == 24 else [])
    assert all(finding.values["case"] == "Service" for finding in outcome.findings)


@pytest.mark.parametrize(
    ("environ", "launchers", "line", "limit"),
    [
        ({"PBS_JOBID": "17.head"}, ("openmpi",), "mpirun -np 4 t.py", "pbs_mom"),
        ({"LSB_JOBID": "17"}, (), "", "sbatchd"),
        ({"_CONDOR_SLOT": "slot1_1"}, ("torchrun",), "torchrun t.py", "condor_startd"),
        ({"PBS_JOBID": "17.head"}, ("ssh", "torchrun"), "ssh a torchrun t.py", ""),
        ({"LSB_JOBID": "17"}, ("deepspeed",), "deepspeed t.py", ""),
        ({}, ("openmpi",), "mpirun -np 4 t.py", ""),
    ],
)
def test_a_job_has_the_limits_of_the_service_that_starts_it(
    environ: dict[str, str], launchers: tuple[str, ...], line: str, limit: str
) -> None:
    """A login has more; the service of another scheduler says nothing of the job."""
    launch = LaunchConfig(env=environ, launchers=launchers, launch_line=line)
    for service in ("pbs_mom", "sbatchd", "condor_startd", "slurmd"):
        services = JobServices({service: DAEMON.format(24, 24)})
        outcome = run_check(NAME, {"a": [limits(nofile=Limit(20000, 20000)), services]}, launch)
        text = f"a process that {service} starts may open 24 files; expected at least 16384, better 65535"
        assert messages(outcome) == ([("a", text)] if service == limit else [])
        healthy = JobServices({service: DAEMON.format(65536, 65536)})
        assert messages(run_check(NAME, {"a": [limits(nofile=Limit(20000, 20000)), healthy]}, launch)) == []


@pytest.mark.parametrize(("service", "text"), [("pbs_mom", "ulimit -n 65535"), ("sbatchd", "LimitNOFILE=65535")])
def test_what_raises_the_limit_of_a_service(service: str, text: str) -> None:
    assert text in raising(service, "NOFILE", "65535")


def test_a_script_may_raise_what_a_service_gives_it() -> None:
    launch = LaunchConfig(env={"PBS_JOBID": "1"}, launchers=("torchrun",), limits={"n": "20000"})
    services = JobServices({"pbs_mom": DAEMON.format(24, 65536)})
    assert limits(nofile=Limit(1024, 1024)).of_job(launch, services).nofile == Limit(20000, 65536)
