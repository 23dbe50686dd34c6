"""Commands that print hosts: what they print, or one reason why they do not."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from doctor.environment import host_list
from doctor.environment.host_list import run_command
from doctor.environment.job_context import detect
from tests.readable import readable


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `flux` that is found before any other."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "flux"


def install(program: Path, text: str) -> None:
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


def test_what_a_command_prints(program: Path) -> None:
    install(program, '[ "$*" = hostlist ] && echo "n[1-2,1]"')
    assert run_command(("flux", "hostlist")) == "n[1-2,1]\n"
    detected = detect({"FLUX_URI": "local:///x"})
    assert (detected.hosts, detected.hosts_source) == (("n1", "n2"), "flux hostlist")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo first >&2; printf 'no \\033[31mbroker' >&2; exit 3", r"fails: no \\x1b\[31mbroker"),
        ("exit 3", "fails: exit code 3"),
        ("head -c 100 /dev/zero", "prints more than"),
        ("exec cat /dev/zero", "prints more than"),
        ("while :; do echo error >&2; done", "prints more than"),
        ("exec sleep 60", "does not end"),
        ("exec >&- 2>&-; exec sleep 60", "does not end"),
    ],
)
def test_a_command_that_fails(program: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str) -> None:
    monkeypatch.setattr(host_list, "MAX_OUTPUT", 99)
    install(program, text)
    with pytest.raises(OSError, match=f"^flux hostlist {reason}"):
        run_command(("flux", "hostlist"), 0.5 if "sleep" in text else 30)


def test_what_a_command_leaves_behind_is_ended_and_not_waited_for(program: Path, tmp_path: Path) -> None:
    """A process in the background keeps the pipes open."""
    install(program, f"sleep 600 & echo $! >{tmp_path}/pid; echo n1")
    assert run_command(("flux", "hostlist")) == "n1\n"
    with contextlib.suppress(ProcessLookupError):  # it has gone already
        ended = os.pidfd_open(int((tmp_path / "pid").read_text()))
        assert readable([ended], 30)
        os.close(ended)


def test_a_command_that_is_absent(program: Path) -> None:
    with pytest.raises(OSError, match=r"^flux is not installed$"):
        run_command(("flux", "hostlist"))
