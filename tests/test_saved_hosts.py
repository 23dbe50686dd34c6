"""A host that a saved run names and has no record of is unknown to every command that reads one, and so is a host whose
record holds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from doctor import ERROR, Finding, PerHost, check
from doctor.cli.app import application
from doctor.engine.catalog import load_checks
from doctor.engine.check import Check
from doctor.engine.errors import CommandError
from doctor.engine.exit_code import Exit, exit_code
from doctor.engine.fact import Output, Visit
from doctor.engine.record import BadRun, HostRecord, LaunchOptions, ProbeInputs, Run, load_run
from doctor.engine.result import Status
from doctor.facts.visit import Reachability
from doctor.session.replay import NO_RECORD, load, replay, with_listed_hosts
from doctor.session.select_checks import checks_of_run
from tests.attack.hostile import record
from tests.node_files import run_of
from tests.preflight.runs import Gauge, gauge_differs, gauge_high, gauge_low, ours, run

CHECKS = ours(gauge_low, gauge_high, gauge_differs)
HEALTHY = run({"n1": 5, "n2": 5, "n3": 5})


def encoded(saved: Run) -> bytes:
    return msgspec.json.encode(saved)


def without(saved: Run, *names: str) -> Run:
    """The run with the records of these hosts removed, and the list of hosts as it was."""
    return msgspec.structs.replace(saved, hosts={name: saved.hosts[name] for name in saved.hosts if name not in names})


def statuses(saved: Run, checks: list[Check] = CHECKS) -> set[Status]:
    return {outcome.status for outcome in replay(saved, checks).outcomes}


def test_a_host_without_a_record_is_unknown_to_every_check_of_hosts() -> None:
    report = replay(load(encoded(without(HEALTHY, "n2")), "f"), CHECKS)
    assert report.hosts == ("n1", "n3", "n2")
    assert all(outcome.unknown["n2"].text == f"unknown: {NO_RECORD}" for outcome in report.outcomes)
    assert statuses(load(encoded(HEALTHY), "f")) == {Status.PASSED}


@pytest.mark.parametrize(
    "more",
    [
        {"probe_inputs": ProbeInputs(), "launch": LaunchOptions(ranks_per_host={"n1": 8, "n9": 8})},
        {"probe_inputs": ProbeInputs(), "launch": LaunchOptions(by_host={"n9": {"RANK": "1"}})},
    ],
    ids=["slots", "variables"],
)
def test_wherever_a_run_names_its_hosts(more: dict[str, Any]) -> None:
    assert statuses(load(encoded(msgspec.structs.replace(HEALTHY, **more)), "f")) == {Status.UNKNOWN}


def test_a_run_without_any_record_judges_no_host_and_one_with_some_judges_these() -> None:
    codes = [
        exit_code(replay(load(encoded(saved), "f"), CHECKS))
        for saved in (without(HEALTHY, *HEALTHY.hosts), without(HEALTHY, "n2"))
    ]
    assert codes == [Exit.NOTHING, Exit.UNKNOWN]


def test_one_host_alone_is_not_asked_about_its_fleet() -> None:
    record = HostRecord(Visit(local=True, name="n1"), HEALTHY.hosts["n1"].outputs)
    alone = msgspec.structs.replace(HEALTHY, source="this host alone, n1", hosts={"n1": record})
    assert statuses(load(encoded(alone), "f"), ours(gauge_low)) == {Status.PASSED}
    two = msgspec.structs.replace(alone, hosts={"n1": record, "n2": record})
    remote = msgspec.structs.replace(alone, hosts={"n1": HEALTHY.hosts["n1"]})
    named = msgspec.structs.replace(alone, source="3 hosts from the command line")
    assert [statuses(load(encoded(saved), "f")) for saved in (two, remote, named)] == [{Status.UNKNOWN}] * 3


def test_pods_call_each_other_by_other_names_than_the_report() -> None:
    pods = {"job-0": HostRecord(Visit(name="job-0"), HEALTHY.hosts["n1"].outputs)}
    pods["job-1"] = HostRecord(Visit(name="job-1"), HEALTHY.hosts["n1"].outputs)
    names = ProbeInputs(hosts=("job-0.workers", "job-1.workers"))
    saved = msgspec.structs.replace(HEALTHY, hosts=pods, probe_inputs=names)
    assert with_listed_hosts(saved, names.hosts) is saved
    assert list(with_listed_hosts(without(saved, "job-1"), names.hosts).hosts) == ["job-0", "job-1.workers"]


@pytest.mark.parametrize(
    "form", [json.dumps, lambda document: json.dumps(document, indent=1)], ids=["line", "indented"]
)
def test_a_host_with_two_records_is_refused(form: Callable[[object], str]) -> None:
    text = form(json.loads(encoded(run({"n1": 5, "twice": 3}))))
    with pytest.raises(BadRun, match="a host has two records; expected one for each host"):
        load_run(text.replace('"twice":', '"n1":', 1).encode(), "f")
    assert load_run(text.encode(), "f").hosts.keys() == {"n1", "twice"}
    quoting = json.loads(encoded(HEALTHY)) | {"source": 'a text with "visit": in it'}
    assert load_run(json.dumps(quoting).encode(), "f")


def test_a_record_that_holds_nothing_is_unknown() -> None:
    empty = HostRecord(Visit(name="n2"))
    one = msgspec.structs.replace(HEALTHY, hosts={**HEALTHY.hosts, "n2": empty})
    assert all(outcome.unknown.keys() == {"n2"} for outcome in replay(load(encoded(one), "f"), CHECKS).outcomes)
    all_empty = load(encoded(msgspec.structs.replace(HEALTHY, hosts=dict.fromkeys(HEALTHY.hosts, empty))), "f")
    assert checks_of_run(all_empty, CHECKS) == CHECKS
    assert statuses(all_empty) == {Status.UNKNOWN}


COMMANDS = {
    "check": ["check", "--from", "FILE"],
    "ignoring": ["check", "--from", "FILE", "--ignore", "host-unreachable"],
    "unknown is ok": ["check", "--from", "FILE", "--select", "host-unreachable"],
    "smoke": ["smoke", "--from", "FILE"],
    "report": ["report", "FILE"],
    "difference": ["report", "FILE", "--diff", "WHOLE"],
    "fix": ["fix", "--from", "FILE"],
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_no_command_that_reads_a_saved_run_lets_it_pass(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a check that has nothing against the hosts that are there."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    outputs = {"HostAddresses": {"": Output(out=json.dumps([["lo", "127.0.0.1", 8], ["eth0", "10.0.0.1", 24]]))}}
    hosts = {name: HostRecord(Visit(name=name, python="3.11.2", uid=0), outputs) for name in ("n1", "n2")}
    full_report = msgspec.structs.replace(HEALTHY, hosts=hosts, probe_inputs=ProbeInputs(hosts=("n1", "n2")))
    full_report = msgspec.structs.replace(full_report, checks=("host-unreachable",))
    files = {"FILE": without(full_report, "n2"), "WHOLE": full_report}
    for name, saved in files.items():
        (tmp_path / name).write_bytes(encoded(saved))
    argv = [str(tmp_path / word) if word in files else word for word in words]
    try:
        application(argv)(argv)
        code = 0
    except CommandError as error:
        code = error.exit_code
    except SystemExit as end:
        code = int(end.code or 0)
    printed = capsys.readouterr()
    assert code in (12, 78), printed


def passed_on(saved: Run, host: str) -> set[str]:
    """The checks that have judged a host of a run of real hosts, and found nothing there."""
    report = replay(saved, load_checks())
    return {
        outcome.check
        for outcome in report.outcomes
        if host in outcome.evaluated_hosts and not any(host in finding.hosts for finding in outcome.findings)
    } - {outcome.check for outcome in report.outcomes if outcome.unknown.get(host)}


VISITED = {"clocks-differ", "host-unreachable", "python3-missing"}
"""What the visit itself shows."""
SILENT: dict[str, Callable[[Output], Output | None]] = {
    "left out": lambda output: None,
    "not there": lambda output: Output("absent", err="not found"),
    "an error": lambda output: Output("error", err="x"),
}


@pytest.mark.parametrize("kind", SILENT)
def test_a_host_that_answers_nothing_passes_no_check(kind: str) -> None:
    """Every answer of a real host's record is left out of it, is absent, or is an error: no check has judged that."""
    real = record()
    silent: dict[str, dict[str, Output]] = {}
    for fact, answers in real.outputs.items():
        changed = {name: SILENT[kind](output) for name, output in answers.items()}
        silent[fact] = {name: output for name, output in changed.items() if output}
    saved = run_of("n1", observed_outputs=real.outputs)
    other = HostRecord(saved.hosts["n1"].visit, silent)
    both = msgspec.structs.replace(saved, hosts={"n1": saved.hosts["n1"], "n2": other})
    assert passed_on(both, "n1") - passed_on(both, "n2")
    assert {name for name in passed_on(both, "n2") if not name.startswith("launch-")} <= VISITED  # the job's settings


def test_a_fleet_check_has_not_judged_a_host_that_it_does_not_apply_to() -> None:
    absent = HostRecord(Visit(), {"Gauge": {"/gauge": Output("absent")}})
    saved = msgspec.structs.replace(HEALTHY, hosts={**HEALTHY.hosts, "n2": absent})
    (outcome,) = replay(saved, ours(gauge_and_visit)).outcomes
    assert (outcome.evaluated_hosts, [*outcome.skipped]) == (("n1", "n3"), ["n2"])


@check(severity=ERROR)
def gauge_and_visit(gauges: PerHost[Gauge], visits: PerHost[Reachability]) -> Iterator[Finding]:
    """Of hosts with a gauge, and their visits."""
    assert len(gauges) < len(visits)
    yield from ()
