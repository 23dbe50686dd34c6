from __future__ import annotations

from doctor.analysis.causes import resolve_causes
from doctor.engine.catalog import load_checks
from doctor.engine.exit_code import Exit, exit_code
from doctor.engine.result import WARNING, Finding, Outcome, Report
from tests.checks.net_answers import HEALTHY, answers
from tests.checks.run_check import advice, messages, run_check

NAME = "net-port-unavailable"
BOUND = [
    {"port": 0, "state": "bound", "number": 29500, "detail": "train.py (pid 7, user ann, for 90 s)"},
    {"port": 1, "state": "listening"},
]
NO_RENDEZVOUS = [{"port": 1, "state": "listening"}]
ROWS = [["-roo", "o-oo", "or-o", "oro-"], ["-ooo", "o-oo", "oo-o", "ooo-"]]


def test_free_ports_have_no_finding() -> None:
    assert messages(run_check(NAME, HEALTHY)) == []


def test_a_port_that_another_process_holds_is_its_own_hosts_whoever_tried_it() -> None:
    outcome = run_check(NAME, answers(ROWS, listeners={1: BOUND}))
    ((hosts, text),) = messages(outcome)
    assert hosts == "w2"
    assert text == "it cannot listen on port master 29500: bound; train.py (pid 7, user ann, for 90 s)"
    assert 'ss -tlnp "sport = :29500"' in advice(NAME, outcome)


def test_a_service_of_the_host_is_never_ended() -> None:
    held = {**BOUND[0], "detail": "sshd: /usr/sbin/sshd -D (pid 7, user root, for 90 s)", "service": True}
    of_service = run_check(NAME, answers(ROWS, listeners={1: [held, BOUND[1]]}))
    assert "It belongs to a service of w2: leave that alone" in advice(NAME, of_service)
    assert "fuser" not in advice(NAME, of_service)
    assert "fuser" in advice(NAME, run_check(NAME, answers(ROWS, listeners={1: BOUND})))


def test_a_port_that_no_process_holds_has_its_own_reason_and_no_process_to_find() -> None:
    why = "only root, or a process with CAP_NET_BIND_SERVICE, may listen on a port below 1024"
    refused = [{"port": 0, "state": "failed", "number": 80, "detail": why}, {"port": 1, "state": "listening"}]
    outcome = run_check(NAME, answers(ROWS, (("master", 80), ("ephemeral", 0)), listeners={1: refused}))
    assert messages(outcome) == [("w2", f"it cannot listen on port master 80: no listener; {why}")]
    assert "ss -tlnp" not in advice(NAME, outcome)


def test_where_the_kernel_has_no_port_left_no_process_is_looked_for() -> None:
    """Three local ports, all in use: `ss -tlnp "sport = :PORT"` was the advice, and diagnose named MASTER_PORT."""
    bound = [{"port": number, "state": "bound", "detail": "a process"} for number in (0, 1)]
    outcome = run_check(NAME, answers(ROWS, (("ephemeral", 0), ("ephemeral-high", 0)), listeners={1: bound}))
    ((_, text),) = messages(outcome)
    assert text == "it cannot listen on an ephemeral port: the kernel has none left to assign"
    assert "ss -tlnp" not in advice(NAME, outcome) and "ip_local_port_range" in advice(NAME, outcome)


def test_a_refusal_of_a_host_that_listens_is_no_held_port() -> None:
    assert messages(run_check(NAME, answers(ROWS))) == []


def list_findings(listeners: dict[int, list[dict[str, object]]]) -> Finding:
    (only,) = run_check(NAME, answers(ROWS, listeners=listeners)).findings
    return only


def test_a_port_of_rank_0_that_another_host_can_open_is_a_warning() -> None:
    assert list_findings({1: BOUND}).is_warning


def test_the_port_of_the_one_host_that_needs_it_is_an_error() -> None:
    """Where MASTER_ADDR is known the others do not listen there."""
    assert not list_findings({0: NO_RENDEZVOUS, 1: BOUND, 2: NO_RENDEZVOUS, 3: NO_RENDEZVOUS}).is_warning


def test_a_port_that_every_rank_needs_is_an_error() -> None:
    ports = (("hccl", 60000), ("ephemeral", 0))
    (only,) = run_check(NAME, answers(ROWS, ports, listeners={1: BOUND})).findings
    assert not only.is_warning


def test_it_follows_from_the_default_port_that_is_taken() -> None:
    """And so one cause is shown once, with the exit code of its severity."""
    cause = Finding("taken", hosts=("w2",), port=29500)
    outcomes = (
        Outcome("default-port-taken", WARNING, "kernel", "", (cause,)),
        run_check(NAME, answers(ROWS, listeners={1: BOUND})),
    )
    report = resolve_causes(Report("", ("w1", "w2", "w3", "w4"), outcomes), load_checks())
    assert [finding.follows_from for finding in report.outcomes[1].findings] == ["default-port-taken"]
    assert exit_code(report) == Exit.HEALTHY
