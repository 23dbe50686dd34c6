"""The streams of a watched job on their way through `doctor watch`: bytes, order, terminals, and what never blocks."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from doctor.watch.job_output import JobOutput
from doctor.watch.output_pump import MAX_COPY, LineCopy
from tests.readable import readable
from tests.terminals import TerminalProgram
from tests.watch.running import LIMIT

pytestmark = pytest.mark.timeout(150)
WATCH = (sys.executable, "-m", "doctor", "watch", "-q", "--")


def python(program: str) -> tuple[str, ...]:
    return (*WATCH, sys.executable, "-c", program)


def own_lines(text: bytes) -> list[bytes]:
    """Without what doctor itself says on stderr."""
    return [line for line in text.splitlines() if not line.startswith(b"doctor watch:")]


def test_both_streams_pass_byte_by_byte() -> None:
    data = "import random; data = random.Random(7).randbytes(3_000_000)"
    both = f"{data}\nimport os\nos.write(2, data[:60000]); os.write(1, data)\nos._exit(5)"
    done = subprocess.run(
        python(f"{data}\nimport sys\nsys.stdout.buffer.write(data); sys.exit(5)"), capture_output=True
    )
    namespace: dict[str, bytes] = {}
    exec(data, namespace)
    assert done.returncode == 5
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(namespace["data"]).digest()
    done = subprocess.run(python(both), capture_output=True)
    assert done.returncode == 5 and done.stderr.startswith(namespace["data"][:60000])


def test_two_streams_into_one_place_keep_their_order() -> None:
    program = "import os\nfor n in range(2000): os.write(1 + n % 2, b'%d\\n' % n)"
    done = subprocess.run(python(program), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert own_lines(done.stdout) == [b"%d" % number for number in range(2000)]


def test_what_is_written_is_passed_on_at_once() -> None:
    program = "import os, sys\nos.write(1, b'begun')\nsys.stdin.read()"
    with subprocess.Popen(python(program), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdin
        assert os.read(process.stdout.fileno(), 100) == b"begun"
        process.stdin.close()


def test_a_terminal_stays_a_terminal_of_the_same_size() -> None:
    program = (
        "import os, sys\n"
        "print(sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size(1), 'end')\n"
        "sys.stderr.write('\\x1b[31mred\\n')\n"
    )
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    process = subprocess.Popen(python(program), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    output = b""
    with contextlib.suppress(OSError):
        while data := os.read(ours, 4096):
            output += data
    os.close(ours)
    assert process.wait() == 0
    job_lines = [line for line in output.split(b"\n") if b"doctor watch" not in line][:2]
    assert job_lines == [b"True True os.terminal_size(columns=77, lines=33) end\r", b"\x1b[31mred\r"]


def test_a_program_learns_the_new_size_of_its_window() -> None:
    """The kernel's signal reaches it before doctor has passed on the size."""
    program = (
        "import os, signal\n"
        "def tell(*_): print(os.get_terminal_size(1).columns, 'columns', flush=True)\n"
        "signal.signal(signal.SIGWINCH, tell)\n"
        "print('ready', flush=True)\n"
        "os.read(0, 1)\n"
    )
    with TerminalProgram(python(program), columns=80) as shown:
        shown.wait_for(b"ready")
        shown.process.send_signal(signal.SIGSTOP)
        shown.resize(132, 40)
        shown.wait_for(b"80 columns")
        shown.process.send_signal(signal.SIGCONT)
        shown.wait_for(b"132 columns")
        shown.press(b"\n")
        assert shown.end() == 0


@pytest.mark.parametrize("end", ["\\r100%", "\\r100%\\n"])
def test_what_doctor_says_begins_a_line_of_its_own_after_a_progress_bar(end: str) -> None:
    done = subprocess.run(python(f"import os\nos.write(2, b' 50%{end}')"), capture_output=True)
    assert done.stderr.startswith(b" 50%\r100%\ndoctor watch: ")


def test_a_reader_that_pauses_loses_nothing_and_stops_only_its_own_stream() -> None:
    program = (
        "import os\nos.write(2, b'e' * 50000)\nfor n in range(400): os.write(1, b'%0999d\\n' % n)\nos.write(2, b'last')"
    )
    with subprocess.Popen(python(program), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        assert readable([process.stderr], LIMIT)
        time.sleep(0.2)  # both pipes before the reader are full by now
        out = process.stdout.read()
        assert [int(line) for line in out.splitlines()] == list(range(400))
        assert b"elast" in process.stderr.read()


def test_a_child_that_keeps_the_streams_holds_up_nobody_and_its_output_still_comes() -> None:
    program = (
        "import os\nif not os.fork():\n    os.read(0, 1); os.write(1, b'late'); os._exit(0)\nos.write(1, b'early')\n"
    )
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(python(program), **streams) as process:  # type: ignore[call-overload]
        assert process.wait() == 0
        assert os.read(process.stdout.fileno(), 100) == b"early"
        process.stdin.close()
        assert process.stdout.read() == b"late"


def test_the_job_goes_on_when_doctor_is_killed() -> None:
    program = "import os, sys\nos.write(1, os.environb[b'DOCTOR_WATCH'])\nsys.stdin.read()\nos.write(1, b'end')"
    with subprocess.Popen(python(program), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdin
        folder = os.read(process.stdout.fileno(), 4096).decode()
        process.kill()
        process.wait()
        process.stdin.close()
        assert process.stdout.read() == b"end"
    shutil.rmtree(folder)


def pumps(process: subprocess.Popen[bytes]) -> Iterator[psutil.Process]:
    for child in psutil.Process(process.pid).children():
        with contextlib.suppress(psutil.Error):  # it ends just now
            if any(word.endswith("output_pump.py") for word in child.cmdline()):
                yield child


def test_a_carrier_that_is_killed_is_started_again() -> None:
    program = "import os, sys\nos.write(1, b'begun')\nsys.stdin.readline()\nos.write(1, b'end')"
    with subprocess.Popen(python(program), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdin
        os.read(process.stdout.fileno(), 100)
        old = list(pumps(process))
        for pump in old:
            pump.kill()
        while not [pump for pump in pumps(process) if pump not in old]:
            time.sleep(0.02)
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.stdout.read() == b"end"
        assert process.wait() == 0


def test_a_reader_that_leaves_ends_the_job_as_without_doctor() -> None:
    with subprocess.Popen((*WATCH, "yes"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout
        assert process.stdout.readline() == b"y\n"
        process.stdout.close()
        assert process.wait() == 128 + signal.SIGPIPE


def test_a_stream_that_leads_nowhere_is_left_as_it_is(tmp_path: Path) -> None:
    program = "import os\nprint(os.readlink('/proc/self/fd/2'))"
    done = subprocess.run(python(program), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert done.stdout == b"/dev/null\n"
    untouched = (*WATCH[:-1], "--untouched", "--", sys.executable, "-c", program.replace("fd/2", "fd/1"))
    with (tmp_path / "out").open("wb") as out:
        subprocess.run(untouched, stdout=out, stderr=subprocess.DEVNULL)
    assert (tmp_path / "out").read_text() == f"{tmp_path / 'out'}\n"


def test_the_copy_has_whole_lines_and_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "copy"
    copy = LineCopy(str(path), every_line=False)
    for part in (b"step 1 lo", b"ss: 2.5\nnothing\n", b"x" * 70_000, b"\nLoss 3", b"\rprogress\r", b"loss: 4"):
        copy.add(part)
    assert path.read_bytes() == b"step 1 loss: 2.5\nLoss 3\n"
    copy.end()
    assert path.read_bytes().endswith(b"Loss 3\nloss: 4\n")
    line = b"loss: 1.0" + b" " * 1000 + b"\n"
    for _ in range(3 * MAX_COPY // len(line)):
        copy.add(line)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= MAX_COPY + len(line)


def test_a_carrier_that_cannot_live_is_replaced_by_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong with the interpreter: the job must not stand still."""
    monkeypatch.setattr("doctor.watch.job_output._PUMP", str(tmp_path / "not there"))
    ours, theirs = os.pipe()
    saved = os.dup(1)
    os.dup2(theirs, 1)
    try:
        output = JobOutput(tmp_path)
        number = output.stdout
        assert number is not None
        job_end = os.dup(number)
        output.started()
        os.write(job_end, b"loss: 1.5\n")
        stream = next(stream for stream in output.streams if 1 in stream.numbers)
        while stream.thread is None:
            stream.process.wait()
            output.look()
        assert os.read(ours, 100) == b"loss: 1.5\n"
        os.close(job_end)
        stream.thread.join()
        output.close()
    finally:
        os.dup2(saved, 1)
        for file in (ours, theirs, saved):
            os.close(file)
