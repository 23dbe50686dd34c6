"""`doctor watch --live` on terminals: what the job writes, and how the terminal is left, whatever ends the view."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from doctor.report.live.terminal_keeper import ENTER, LEAVE, READ_CALLS
from tests.terminals import TerminalProgram

pytestmark = pytest.mark.timeout(200)
WATCH = (sys.executable, "-m", "doctor", "watch", "--live")
FOOTER = b"q closes this view"


def live(script: str, *options: str, columns: int = 80, rows: int = 24, **environ: str) -> TerminalProgram:
    return TerminalProgram([*WATCH, *options, "--", "sh", "-c", script], columns, rows, environ)


def until(path: Path) -> str:
    """A shell's loop until a file is there."""
    return f"while [ ! -e {path} ]; do sleep 0.02; done"


def shown_bytes(terminal: TerminalProgram) -> bytes:
    """The ordinary screen without doctor's own lines, whose seconds differ."""
    return b"\n".join(line for line in terminal.ordinary.split(b"\n") if b"doctor watch:" not in line)


@pytest.mark.parametrize("code", [0, 3])
def test_output_and_exit_code_are_those_of_the_same_command_without_a_view(code: int, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = f"printf 'a\\001\\033[31mred\\033[0m\\rhalf'; echo err >&2; {until(gate)}; echo end; exit {code}"
    gate.touch()
    with TerminalProgram(
        ["sh", "-c", f'exec {" ".join(WATCH[:-1])} -- sh -c "$SCRIPT"'], environ={"SCRIPT": script}
    ) as plain_run:
        assert plain_run.end() == code
        plain_run.wait_for(b"no rank was seen")
    gate.unlink()
    with live(script) as live_run:
        live_run.wait_for(FOOTER)
        live_run.wait_for(b"half")  # the view has the last lines
        assert live_run.ordinary == b"" or ENTER in live_run.output
        gate.touch()
        assert live_run.end() == code
        live_run.wait_until_sane()
        live_run.wait_for(b"no rank was seen")
        assert shown_bytes(live_run) == shown_bytes(plain_run)


def test_q_closes_the_view_and_the_job_goes_on(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with live(f"echo before; {until(gate)}; echo after; exit 5") as live_run:
        live_run.wait_for(FOOTER)
        live_run.press(b"xq")
        live_run.wait_until_sane()
        live_run.wait_for(lambda output: b"before" in output.rpartition(LEAVE)[2])
        assert live_run.process.poll() is None
        gate.touch()
        assert live_run.end() == 5
        live_run.wait_for(lambda output: b"no rank was seen" in output.rpartition(b"after")[2])
        assert live_run.output.count(ENTER) == 1 and live_run.is_sane


@pytest.mark.skipif(os.uname().machine not in READ_CALLS, reason="which call is read(2) is not known")
def test_a_job_that_reads_the_terminal_gets_it() -> None:
    with live("printf 'name? '; read name; echo hello $name; exit 6") as live_run:
        live_run.wait_for(FOOTER)
        live_run.wait_until_sane()
        live_run.wait_for(lambda output: b"name? " in output.rpartition(LEAVE)[2])
        live_run.press(b"quinn\r")
        assert live_run.end() == 6
        live_run.wait_for(b"hello quinn")
        assert live_run.output.count(ENTER) == 1


def test_a_job_that_reads_a_pipe_keeps_the_view() -> None:
    with live("sleep 2 | cat; exit 4") as live_run:
        live_run.wait_for(FOOTER)
        assert live_run.end() == 4
        assert live_run.output.count(ENTER) == 1


def test_ctrl_c_reaches_the_job_and_leaves_the_terminal_sane() -> None:
    with live("trap 'echo caught; exit 9' INT; echo rea''dy; while :; do sleep 0.05; done") as live_run:
        live_run.wait_for(b"ready")
        live_run.press(b"\x03")
        assert live_run.end() == 9
        live_run.wait_until_sane()
        assert b"caught\r\n" in live_run.ordinary


def test_after_a_killed_doctor_the_terminal_is_sane_and_the_job_is_read_on(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = f"echo before; {until(gate)}; echo after"
    with TerminalProgram([*WATCH, "--", "sh", "-c", script], controls=False) as live_run:
        live_run.wait_for(FOOTER)
        live_run.process.kill()
        live_run.wait_until_sane()
        gate.touch()
        live_run.wait_for(lambda output: b"before\r\nafter\r\n" in output.rpartition(LEAVE)[2])


def test_after_a_killed_keeper_nothing_is_lost(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with live(f"echo bef''ore; {until(gate)}; echo after; exit 4") as live_run:
        live_run.wait_for(b"before")  # among the last lines of the output; the title has another text
        keepers = [
            child
            for child in psutil.Process(live_run.process.pid).children()
            if "terminal_keeper" in " ".join(child.cmdline())
        ]
        keepers[0].kill()
        live_run.wait_until_sane()
        gate.touch()
        assert live_run.end() == 4
        live_run.wait_for(lambda output: b"before\r\nafter\r\n" in output.rpartition(LEAVE)[2])


def test_a_terminal_that_is_gone_ends_the_job_as_without_a_view(tmp_path: Path) -> None:
    live_run = live("while echo more; do sleep 0.05; done; exit 6")
    job = []
    try:
        live_run.wait_for(b"more")
        job = psutil.Process(live_run.process.pid).children(recursive=True)
    finally:
        os.close(live_run._stopped)
        live_run.reader.join()
        os.close(live_run.slave)
        os.close(live_run.master)
    assert live_run.end() != 0
    assert not psutil.wait_procs(job, timeout=60)[1]
    os.close(live_run.stop)


def test_the_frame_follows_the_size_and_the_job_sees_it(tmp_path: Path) -> None:
    gate, sizes = tmp_path / "gate", tmp_path / "sizes"
    script = f"""
import os, time
size = None
while not os.path.exists({str(gate)!r}):
    if size != os.get_terminal_size(1):
        size = os.get_terminal_size(1)
        print(size, flush=True)
        open({str(sizes)!r}, "a").write(str(size))
    time.sleep(0.02)
"""
    with TerminalProgram([*WATCH, "--", sys.executable, "-c", script]) as live_run:
        live_run.wait_for(FOOTER)
        live_run.resize(120, 30)
        live_run.wait_for(lambda output: max(map(len, frame_lines(output))) > 100)
        live_run.resize(40, 8)
        live_run.wait_for(lambda output: len(frame_lines(output)) == 8 and max(map(len, frame_lines(output))) <= 39)
        live_run.wait_for(lambda _: "columns=40, lines=8" in sizes.read_text())
        gate.touch()
        assert live_run.end() == 0
        assert b"columns=120, lines=30" in live_run.ordinary and b"columns=40, lines=8" in live_run.ordinary


def frame_lines(output: bytes) -> list[str]:
    """The last whole frame."""
    frame = output.rpartition(b"\x1b[J")[0].rpartition(b"\x1b[H")[2].decode()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frame).replace("\r", "").split("\n")


@pytest.mark.parametrize(
    ("environ", "why"),
    [({"TERM": "dumb"}, "TERM=dumb"), ({"TERM": ""}, "TERM=)")],
)
def test_where_the_terminal_can_show_none_one_line_says_so(environ: dict[str, str], why: str) -> None:
    with live("echo out; exit 3", **environ) as live_run:
        assert live_run.end() == 3
        live_run.wait_for(b"no rank was seen")
        assert ENTER not in live_run.output
        lines = [line for line in live_run.output.decode().splitlines() if "--live" in line]
        assert len(lines) == 1 and why in lines[0]


def test_in_a_pipe_one_line_says_so_and_all_else_is_the_same() -> None:
    done = subprocess.run([*WATCH, "--", "sh", "-c", "echo out; exit 3"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "out\n")
    first, rest = done.stderr.split("\n", 1)
    assert first == "doctor watch: --live: stderr is no terminal; this goes on without the view"
    assert rest.startswith("doctor watch: no rank was seen")


def test_in_the_background_there_is_no_view() -> None:
    with TerminalProgram(["bash", "-c", f"set -m; {' '.join(WATCH)} -- sh -c 'exit 3' & wait $!"]) as live_run:
        assert live_run.end() == 3
        assert ENTER not in live_run.output and b"runs in the background" in live_run.output


def test_live_is_for_a_command() -> None:
    done = subprocess.run([*WATCH, "--log", "/dev/null"], capture_output=True, text=True)
    assert done.returncode == 2 and "--live shows the ranks of a command" in done.stderr


def test_in_chinese_without_colours(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with live(until(gate), NO_COLOR="1", DOCTOR_LANG="zh", LC_ALL="C.UTF-8") as live_run:
        live_run.wait_for("按 q".encode())
        gate.touch()
        live_run.end()
        frames = live_run.output.partition(ENTER)[2].partition(LEAVE)[0]
        assert not re.search(rb"\x1b\[[1-9][0-9;]*m", frames)


def test_a_stopped_terminal_stops_no_watch() -> None:
    """Ctrl-S: the view misses frames, and doctor still sees the signal that ends the job."""
    with live("trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done") as live_run:
        live_run.wait_for(b"ready")
        live_run.press(b"\x13")
        live_run.process.send_signal(signal.SIGTERM)
        live_run.press(b"\x11")
        assert live_run.end() == 9
        live_run.wait_until_sane()
