"""The command line of `doctor net`, where no host is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.test_cli import doctor


@pytest.mark.parametrize("arguments", [["w1"], ["w1", "--json"], ["--scope", "local"]])
def test_a_single_host_has_nothing_to_try_and_is_not_healthy(arguments: list[str]) -> None:
    done = doctor("net", *arguments)
    assert (done.returncode, done.stdout) == (78, b"")
    assert b"doctor: nothing to try: " in done.stderr
    assert done.stderr.endswith(b" is the only host; expected two or more\n")
    assert done.stderr.count(b"\n") == 1


def test_nor_has_the_saved_run_of_one(tmp_path: Path) -> None:
    saved = tmp_path / "run.json"
    doctor("check", "--scope", "local", "--select", "listen-queue-short", "--save", str(saved))
    assert len(json.loads(saved.read_text())["hosts"]) == 1
    done = doctor("net", "--from", str(saved))
    assert done.returncode == 78
    assert b"nothing to try" in done.stderr


@pytest.mark.parametrize("text", [None, b"\xff\xfe"])
def test_a_topology_that_cannot_be_read_is_one_line(tmp_path: Path, text: bytes | None) -> None:
    file = tmp_path / "topology.conf"
    if text:
        file.write_bytes(text)
    done = doctor("net", "w1,w2", "--topology", str(file))
    assert done.returncode == 78
    assert done.stderr.decode().startswith(f"doctor: --topology {file}: ")
