from tests.checks.npus import npus
from tests.checks.run_check import job, messages, run_check, skipped

NAME = "master-port-among-hccl-ports"
HOSTS = {"a": [npus(8)]}


def test_the_default_is_well() -> None:
    assert messages(run_check(NAME, HOSTS, job(MASTER_ADDR="a"))) == []
    assert messages(run_check(NAME, HOSTS, job(MASTER_ADDR="a", MASTER_PORT="60032"))) == []


def test_a_port_of_hccls() -> None:
    outcome = run_check(NAME, HOSTS, job(MASTER_ADDR="a", MASTER_PORT="60031"))
    assert [str(finding) for finding in outcome.findings] == ["MASTER_PORT 60031 is one of HCCL's ports, 60000-60031"]


def test_the_base_moves_them() -> None:
    launch = job(MASTER_ADDR="a", MASTER_PORT="60031", HCCL_IF_BASE_PORT="50000")
    assert messages(run_check(NAME, HOSTS, launch)) == []


def test_no_master_is_not_judged() -> None:
    assert skipped(run_check(NAME, HOSTS, job(MASTER_PORT="60000")))
