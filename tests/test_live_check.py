"""`doctor check --live` on a terminal: report, exit code and files are those of the same check without it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from doctor.report.live.terminal_keeper import ENTER, LEAVE
from tests.terminals import TerminalProgram

pytestmark = pytest.mark.timeout(200)
CHECK = (sys.executable, "-m", "doctor", "check", "--scope", "local", "-s", "kernel", "--no-history")


def run(folder: Path, *options: str) -> tuple[int, bytes, dict[str, Any]]:
    with TerminalProgram([*CHECK, *options, "--save", str(folder / "run"), "-f", f"json={folder / 'json'}"]) as program:
        code = program.end()
        program.wait_until_sane()
        program.wait_for(b"check")
        output = program.output
    return code, output, json.loads((folder / "json").read_text())


def test_nothing_else_changes(tmp_path: Path) -> None:
    for name in ("plain", "live"):
        (tmp_path / name).mkdir()
    code, _, plain = run(tmp_path / "plain")
    live_code, output, live = run(tmp_path / "live", "--live")
    assert live_code == code and output.startswith(ENTER)
    assert b"q closes this view; the check goes on" in output.partition(LEAVE)[0]
    assert [item["check"] for item in live["outcomes"]] == [item["check"] for item in plain["outcomes"]]
    assert [item["status"] for item in live["outcomes"]] == [item["status"] for item in plain["outcomes"]]
    assert live["hosts"] == plain["hosts"] and (tmp_path / "live" / "run").exists()


def test_ctrl_c_leaves_the_terminal_sane() -> None:
    stalled = "192.0.2.1"  # documentation's address: nobody answers
    with TerminalProgram([*CHECK[:4], stalled, "--live", "--connect-timeout", "60", "--no-history"]) as program:
        program.wait_for(b"no answer yet")
        program.press(b"\x03")
        assert program.end() == 130
        program.wait_until_sane()


def test_the_title_is_in_chinese_too(tmp_path: Path) -> None:
    _, output, _ = run(tmp_path, "--live", "--lang", "zh")
    title = output.partition(b"doctor check: ")[2].partition(b"\r\n")[0].decode()
    assert "1 host" not in title and any(letter > "\u4e00" for letter in title)
