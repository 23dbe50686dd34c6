"""What speaks against touching a host: who works on it, and what cannot be told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from doctor.fix.inspect_host import CONTAINER_SKIP, HostExecutors, describe_failure, find_activity, inspect_host
from doctor.fix.remote_client import RemoteExecutor, RequestRejected, ResponseT, RunResponse
from doctor.fix.select import ReadyStep, choose_playbooks, ready_steps
from doctor.remedy.playbook import Playbook
from doctor.transport.local import Local
from tests.fix.books import book, file, outcome, report, run, sample_finding

FREE: dict[str, Any] = {"holders": [], "hidden": 0, "trouble": ""}


class Quiet(RemoteExecutor):
    """A host that is asked nothing but who uses its devices."""

    def __init__(self, **responses: Any) -> None:
        self.host, self.answer = "a1", {**FREE, **responses}

    def call(self, response: type[ResponseT], op: str, seconds: float = 10.0, /, **arguments: object) -> ResponseT:
        if self.answer.get("refused"):
            raise RequestRejected("it may not look")
        fields = self.answer if op == "busy" else {"code": 0, "out": "", "err": "", "cut": False}
        return msgspec.convert(fields, response)


@pytest.fixture
def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one that the controller has."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    path = tmp_path / "squeue"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("script", "response"),
    [
        ("", ()),
        (
            '[ "$*" = "-h -w a1 -o %i" ] && echo 41 && echo 42_1',
            ("Slurm job 41 runs on it", "Slurm job 42_1 runs on it"),
        ),
        ("echo 'slurm_load_jobs error: Invalid node name specified' >&2; exit 1", ()),
        ("echo 'fatal: Could not establish a configuration source' >&2; exit 1", ()),
        ("echo 'Unable to contact slurm controller' >&2; exit 1", "Unable to contact slurm controller"),
    ],
)
def test_jobs_of_slurm(squeue: Path, script: str, response: Any) -> None:
    """Where there is no Slurm there is no job; where it does not answer, there may be one."""
    squeue.write_text(f"#!/bin/sh\n{script}\n")
    activity = find_activity(Quiet())
    assert activity == response if isinstance(response, tuple) else response in activity[0]


def test_processes_and_what_hides_them(squeue: Path) -> None:
    holder = {"pid": 7, "name": "py\x1b[31mthon", "user": "ann", "what": "an NPU"}
    assert find_activity(Quiet(holders=[holder])) == ("process 7 (py thon, ann) uses an NPU",)
    assert "without root" in find_activity(Quiet(hidden=3))[0]
    assert find_activity(Quiet(trouble="nvidia-smi does not tell")) == ("nvidia-smi does not tell",)
    assert "are unknown" in find_activity(Quiet(refused=True))[0]


def steps(playbook: Playbook) -> list[ReadyStep]:
    return ready_steps(choose_playbooks(report(outcome("short", sample_finding("a1"))), [playbook]).by_host["a1"], "a1")


def step_rows(playbook: Playbook) -> list[tuple[str, str, str]]:
    """Of each step: why it is left out, what was before, why it cannot be made."""
    hands = HostExecutors(Local(), "a1")
    try:
        return [(probe.skip, probe.before, probe.failure) for probe in inspect_host(hands, steps(playbook)).probes]
    finally:
        hands.close()


def test_steps_are_looked_at_before_anything_is_done() -> None:
    playbook = book(
        "mend",
        ["short"],
        run(1, only="exit 1"),
        run(2, only="true", before="echo '  two words '"),
        run(3, only="echo no tool >&2; exit 127"),
        run(4, only="touch /never-looked-at"),
        root=False,
    )
    skipped, messages, broken, rest = step_rows(playbook)
    assert skipped == ("does not apply here", "", "")
    assert messages == ("", "two words", "")
    assert broken[2] == "`echo no tool >&2; exit 127` ended with 127: no tool"
    assert rest == ("", "", "")
    assert not Path("/never-looked-at").exists()


@pytest.mark.parametrize(("script", "skip"), [("true", CONTAINER_SKIP), ("false", "")])
def test_what_belongs_to_a_host_is_not_done_in_a_container(
    script: str, skip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("doctor.fix.inspect_host.IN_CONTAINER", script)
    playbook = msgspec.structs.replace(book("mend", ["short"], run(1), root=False), host_only=True)
    assert [row[0] for row in step_rows(playbook)] == [skip]


def test_without_what_was_before_nothing_can_be_undone() -> None:
    (row,) = step_rows(book("mend", ["short"], run(1, before="echo out; exit 3"), root=False))
    assert row[2] == "`echo out; exit 3` ended with 3: out, so the step could not be undone"


def test_a_file_that_cannot_be_written_is_found_out_before() -> None:
    (row,) = step_rows(book("mend", ["short"], file(path="/dev/null/x"), root=False))
    assert row[2] == "/dev/null/x: /dev/null is not a folder"


def test_how_a_command_ended() -> None:
    assert describe_failure(RunResponse(-9, "", "", False)) == "died of signal 9"
    assert describe_failure(RunResponse(2, "a\nb\n", "", False)) == "ended with 2: b"
