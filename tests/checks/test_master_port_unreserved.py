from doctor.facts.kernel import RESERVED_PORTS, KernelSetting, SysctlFiles
from tests.checks.ports import known_as, reserved
from tests.checks.run_check import advice, job, messages, run_check, skipped

NAME = "master-port-unreserved"
HOSTS = {"w1": [reserved("60000-60031"), *known_as("w1", "10.0.0.1")]}


def test_the_defaults_lie_outside_the_range() -> None:
    assert messages(run_check(NAME, HOSTS, job(MASTER_ADDR="w1"))) == []
    assert messages(run_check(NAME, HOSTS, job(MS_SCHED_HOST="w1"))) == []


def test_a_port_that_may_be_given_away() -> None:
    outcome = run_check(NAME, HOSTS, job(MASTER_ADDR="w1", MASTER_PORT="45000"))
    assert [text.partition(" (")[0] for _, text in messages(outcome)] == [
        "port 45000 may be assigned to any outgoing connection"
    ]
    assert "ip_local_reserved_ports=45000,60000-60031" in advice(NAME, outcome)


def test_the_advice_keeps_what_the_files_reserve_at_boot() -> None:
    files = SysctlFiles(
        settings=(KernelSetting(key=RESERVED_PORTS, value="50000", path="/etc/sysctl.d/a.conf"),),
        ignored=(),
        excluded=(),
    )
    hosts = {"w1": [*HOSTS["w1"], files]}
    outcome = run_check(NAME, hosts, job(MASTER_ADDR="w1", MASTER_PORT="45000"))
    assert "ip_local_reserved_ports=45000,50000,60000-60031" in advice(NAME, outcome)


def test_a_reserved_port_is_well() -> None:
    assert messages(run_check(NAME, HOSTS, job(MASTER_ADDR="w1", MASTER_PORT="60000"))) == []


def test_other_hosts_are_not_judged() -> None:
    assert run_check(NAME, HOSTS, job(MASTER_ADDR="w2", MASTER_PORT="45000")).status.value == "skipped"
    assert skipped(run_check(NAME, HOSTS, job(MASTER_PORT="45000"))) == {"MASTER_ADDR is not given"}
