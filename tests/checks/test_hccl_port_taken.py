from tests.checks.npus import npus
from tests.checks.ports import taken
from tests.checks.run_check import job, messages, run_check

NAME = "hccl-port-taken"


def test_other_ports_do_not_matter() -> None:
    assert messages(run_check(NAME, {"a": [taken(22, 29500, 59999, 60032), npus(8)]})) == []


def test_the_holders_are_named() -> None:
    outcome = run_check(NAME, {"a": [taken(60000, 60001, 60031), npus(8)]})
    assert messages(outcome) == [
        ("a", "TCP port 60000-60001,60031 is taken by process 77 of user ann (python train.py)")
    ]
    assert (outcome.findings[0].values["port"], outcome.findings[0].values["pid"]) == (60000, 77)


def test_a_process_that_cannot_be_seen() -> None:
    (text,) = (text for _, text in messages(run_check(NAME, {"a": [taken(60003, pid=0), npus(8)]})))
    assert text == (
        "TCP port 60003 is taken by a process of user ann (which one: unknown without root, or in another container)"
    )


def test_an_outgoing_connection_holds_a_port_too() -> None:
    assert messages(run_check(NAME, {"a": [taken(60003, listening=False), npus(8)]}))


def test_the_base_moves_them() -> None:
    assert messages(run_check(NAME, {"a": [taken(60003), npus(8)]}, job(HCCL_IF_BASE_PORT="50000"))) == []
    assert messages(run_check(NAME, {"a": [taken(50003), npus(8)]}, job(HCCL_IF_BASE_PORT="50000")))


def test_a_host_without_npus_is_not_judged() -> None:
    assert run_check(NAME, {"a": [taken(60000)]}).status.value == "skipped"


def test_a_secret_on_the_command_line_is_not_shown() -> None:
    outcome = run_check(NAME, {"a": [taken(60000, command="serve --token abc123"), npus(8)]})
    assert "abc123" not in repr(outcome.findings)
