"""The modules that all programs on hosts share, run by every python3 that hosts may have."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.remote.bootstrap import assemble
from doctor.remote.request import framed_record, marked_text, new_marker
from doctor.remote.runtime.framing import frame, marked_line
from doctor.remote.runtime.readable_json import strict_json
from doctor.remote.runtime.streams import BoundedOutput, LineBuffer
from tests.test_collector import PYTHONS

RUNTIME = [
    f"doctor.remote.runtime.{name}"
    for name in ("processes", "command_environment", "streams", "framing", "readable_json")
]

CHECKS = """
import select, time

def wait_for(holds):
    deadline = time.time() + 10
    while not holds():
        assert time.time() < deadline
        time.sleep(0.005)

def alive(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

def read_all(fd):
    data = b""
    while True:
        piece = os.read(fd, 65536)
        data += piece
        if not piece:
            return data

# A child has its own session, default signals, our pipes, and no file of ours.
child_exits = wake_on_child_exit()
on_termination(signal.SIG_IGN)
text = "cat; echo err >&2; ls /proc/self/fd | wc -l; ps -o sid= -p $$ | tr -d ' '; kill -TERM $$; echo not reached"
pid, stdin, stdout, stderr = fork_with_pipes(lambda: os.execv("/bin/sh", ["/bin/sh", "-c", text]))
os.write(stdin, b"in\\n")
os.close(stdin)
assert read_all(stdout).split() == [b"in", b"4", b"%d" % pid]
assert read_all(stderr) == b"err\\n"
assert select.select([child_exits], [], [], 10)[0]
assert os.read(child_exits, 4096)
wait_for(lambda: ended(pid))
assert ended(pid).si_status == signal.SIGTERM
assert exit_code(os.waitpid(pid, 0)[1]) == -signal.SIGTERM

# What a child raises is on its stderr, and its exit code is the one that was asked for.
def fails():
    raise ValueError("by design")

for code in (1, 127):
    pid, stdin, stdout, stderr = fork_with_pipes(fails, code)
    assert read_all(stderr) == b"ValueError: by design\\n"
    assert exit_code(os.waitpid(pid, 0)[1]) == code

# A whole group is ended, also where its leader has ended before.
pid, stdin, stdout, stderr = fork_with_pipes(
    lambda: os.execv("/bin/sh", ["/bin/sh", "-c", "sleep 1000 & echo $!"])
)
orphan = int(os.read(stdout, 100))
wait_for(lambda: ended(pid))
assert alive(orphan)
signal_group(pid)
wait_for(lambda: not alive(orphan))
os.waitpid(pid, 0)
signal_group(pid)

# A child ends with its parent, even when the parent is killed; at once, when it has ended already.
def parent():
    me = os.getpid()
    if os.fork() == 0:
        die_with_parent(me)
        os.write(1, b"%d\\n" % os.getpid())
        time.sleep(1000)
    time.sleep(1000)

pid, stdin, stdout, stderr = fork_with_pipes(parent)
grandchild = int(os.read(stdout, 100))
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
wait_for(lambda: not alive(grandchild))
pid, stdin, stdout, stderr = fork_with_pipes(lambda: (die_with_parent(1 << 30), time.sleep(1000)))
assert exit_code(os.waitpid(pid, 0)[1]) == 0

# Orphans come to us.
become_reaper()
pid, stdin, stdout, stderr = fork_with_pipes(
    lambda: os.execv("/bin/sh", ["/bin/sh", "-c", "sleep 0.2 >/dev/null & echo $!"])
)
orphan = int(os.read(stdout, 100))
os.waitpid(pid, 0)
assert os.waitpid(orphan, 0) == (orphan, 0)

os.environ["PATH"] = ":/opt/x::/usr/bin"
path = tool_environment()["PATH"].split(":")
assert path[:2] == ["/opt/x", "/usr/bin"] and "" not in path and "/usr/sbin" in path
assert path.count("/usr/bin") == 1 and tool_environment()["LC_ALL"] == "C"

output, lines = BoundedOutput(4), LineBuffer()
output.add(b"abc"), output.add(b"")
assert not output.cut
output.add(b"\\xff" b"e")
assert (output.text(), output.cut) == ("abc\\ufffd", True)
assert lines.split(b"a") == [] and lines.split(b"b\\nc\\nd") == [b"ab", b"c"] and lines.split(b"\\n") == [b"d"]
before, record, begun = split_frame("hello" + frame("M", "[1]") + "bye", "M")
assert (before, record, begun) == ("hello", "[1]", True)
write_all(1, marked_line(b"M", b"done"))
"""


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: Path(path).parts[-3])
def test_every_python_runs_it(python: str) -> None:
    done = subprocess.run([python, "-I", "-S", "-"], input=(assemble(*RUNTIME) + CHECKS).encode(), capture_output=True)
    assert (done.stdout, done.stderr, done.returncode) == (b"M done\n", b"", 0)


@given(st.lists(st.binary()), st.binary(max_size=50))
def test_lines_are_the_same_wherever_the_stream_is_cut(lines: list[bytes], rest: bytes) -> None:
    lines = [line.replace(b"\n", b"") for line in lines]
    stream, buffer = b"".join(line + b"\n" for line in lines) + rest.replace(b"\n", b""), LineBuffer()
    split = [line for start in range(0, len(stream), 3) for line in buffer.split(stream[start : start + 3])]
    assert split == lines


def test_of_a_line_that_never_ends_the_last_bytes_are_kept() -> None:
    buffer = LineBuffer(4)
    assert buffer.split(b"abc") == []
    assert buffer.split(b"defgh") == []
    assert buffer.split(b"\n12345\n") == [b"efgh", b"12345"]


@given(st.lists(st.binary(max_size=20)), st.integers(0, 60))
def test_of_output_the_first_bytes_are_kept(pieces: list[bytes], limit: int) -> None:
    output = BoundedOutput(limit)
    for piece in pieces:
        output.add(piece)
    data = b"".join(pieces)
    assert (bytes(output.data), output.cut) == (data[:limit], len(data) > limit)


@given(st.text(), st.text(), st.text())
def test_a_record_is_read_from_between_noise(before: str, text: str, after: str) -> None:
    marker = new_marker()
    printed = before + frame(marker, text) + after
    assert framed_record(printed, marker) == (text, True)
    assert framed_record(printed, new_marker()) == (None, False)


def test_a_record_that_broke_off_is_none() -> None:
    assert framed_record(frame("M", "[1, 2]")[:-2], "M") == (None, True)


def test_a_line_of_anybody_else_is_none() -> None:
    assert marked_text(marked_line(b"M", b"{}").rstrip(), b"M") == b"{}"
    assert marked_text(b"M2 {}", b"M") is None
    assert marked_text(b" M {}", b"M") is None


def test_json_without_halves_of_surrogate_pairs():
    text = {"name": "a\udcff\ud800b", "smile": "\U0001f600", "backslash": "\\udcff", "number": 1.5}
    data = json.dumps(text).encode("ascii")
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(data)
    assert msgspec.json.decode(strict_json(data)) == {**text, "name": "a??b"}
    assert strict_json(b'{"a": [1, 2]}') == b'{"a": [1, 2]}'
