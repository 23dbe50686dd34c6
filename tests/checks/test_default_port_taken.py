import pytest

from tests.checks.network import NPUS
from tests.checks.ports import taken
from tests.checks.run_check import job, messages, run_check, skipped

NAME = "default-port-taken"


def test_free_ports() -> None:
    assert messages(run_check(NAME, {"w1": [taken(22, 29501)]})) == []


@pytest.mark.parametrize("port", [29500, 29400])
def test_a_default_port_without_any_variable(port: int) -> None:
    outcome = run_check(NAME, {"w1": [taken(port)], "w2": [taken()]})
    assert [(host, text.partition(",")[0]) for host, text in messages(outcome)] == [("w1", f"port {port}")]


def test_a_port_of_the_callers_choice() -> None:
    assert messages(run_check(NAME, {"w1": [taken(29500)]}, job(MASTER_PORT="31000"))) == []
    assert len(messages(run_check(NAME, {"w1": [taken(31000)]}, job(MASTER_PORT="31000")))) == 1


def test_with_a_master_its_own_check_judges_the_port() -> None:
    assert messages(run_check(NAME, {"w1": [taken(29500)]}, job(MASTER_ADDR="w1"))) == []
    assert len(messages(run_check(NAME, {"w1": [taken(29400)]}, job(MASTER_ADDR="w1")))) == 1


def test_mindspores_port() -> None:
    assert messages(run_check(NAME, {"w1": [taken(8118)]})) == []
    assert len(messages(run_check(NAME, {"w1": [taken(8118), NPUS]}))) == 1
    assert len(messages(run_check(NAME, {"w1": [taken(8118)]}, job(MS_WORKER_NUM="8")))) == 1
    assert messages(run_check(NAME, {"w1": [taken(29400, 29500)]}, job(MS_WORKER_NUM="8"))) == []


def test_a_connection_is_no_listener() -> None:
    assert messages(run_check(NAME, {"w1": [taken(29500, listening=False)]})) == []


def test_what_is_not_judged() -> None:
    started = job(TORCHELASTIC_USE_AGENT_STORE="True")
    assert "started by torchrun" in " ".join(skipped(run_check(NAME, {"w1": [taken(29500)]}, started)))
    assert skipped(run_check(NAME, {"w1": [taken(8118)]}, job(MS_SCHED_HOST="w1"))) == {
        "MS_SCHED_HOST is given: master-port-taken judges its port"
    }
