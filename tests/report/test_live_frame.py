"""Frames of the live view: every size, strangers' texts, many rows; and what its keeper does with a flood."""

from __future__ import annotations

import os
import pty
import re
import socket
import tempfile
import threading

import pytest

from doctor.engine import language
from doctor.engine.output_encoding import display_width
from doctor.report.layout.terminal import Terminal
from doctor.report.live import terminal_keeper
from doctor.report.live.live_frame import LiveRow, LiveView, render_frame
from doctor.report.live.terminal_keeper import ENTER, LEAVE, Keeper
from doctor.session.live_hosts import host_rows
from doctor.smoke.model import Snapshot
from doctor.watch.live_ranks import rank_rows
from doctor.watch.training import Training

HOSTILE = "\x1b]0;title\x07[red]w1[/red]\r\n\x9b31m\u202e主机" + "x" * 500
COLOURED, PLAIN = Terminal(tty=True, colour=True, width=80), Terminal(tty=True, colour=False, width=80)


def hostile_view(count: int) -> LiveView:
    rows = [LiveRow((HOSTILE, HOSTILE, HOSTILE), number % 3, number, HOSTILE) for number in range(count)]
    return LiveView(HOSTILE, HOSTILE, ("rank", "host", "state"), rows, [HOSTILE] * 9, HOSTILE)


@pytest.mark.parametrize("name", ["en", "zh"])
@pytest.mark.parametrize("size", [(20, 3), (39, 8), (79, 24), (119, 40), (199, 100)])
@pytest.mark.parametrize("terminal", [COLOURED, PLAIN, PLAIN._replace(unicode=False)])
def test_each_frame_has_its_size_and_no_control_sequence_but_colours(
    name: str, size: tuple[int, int], terminal: Terminal
) -> None:
    language.select(name, {})
    try:
        frames = [render_frame(hostile_view(count), size, terminal, [HOSTILE] * 6) for count in (0, 1, 600)]
        widths = [[display_width(line) for line in lines_of(frame)] for frame in frames]
    finally:
        language.select("en", {})
    for frame, lines in zip(frames, widths, strict=True):
        assert len(lines) == size[1] and max(lines) <= size[0]
        bare = re.sub(r"\x1b\[[\d;]*m", "", frame)
        assert all(letter.isprintable() or letter == "\n" for letter in bare)
        assert terminal.colour or "\x1b" not in frame


def lines_of(frame: str) -> list[str]:
    return re.sub(r"\x1b\[[\d;]*m", "", frame).split("\n")


def test_of_512_hosts_those_in_trouble_come_first_and_the_others_are_counted() -> None:
    hosts = [f"node{number:03}" for number in range(512)]
    answers = dict.fromkeys(hosts[:400], (1.5, ""))
    answers["node007"] = 5.0, "Connection refused"
    view = LiveView("t", "s", ("host", "after", "state"), host_rows(hosts, answers, 30.0), (), "f")
    lines = lines_of(render_frame(view, (79, 24), PLAIN))
    assert lines[3] == "node007  5.0 s   could not be reached: Connection refused"
    assert lines[4] == "node400  30.0 s  no answer yet"
    assert lines[22] == "493 more: has answered (399), no answer yet (94)"


def test_a_password_that_a_host_names_is_hidden() -> None:
    view = LiveView("t", "s", ("host",), [LiveRow(("password=hunter22",))], (), "f")
    assert "hunter22" not in render_frame(view, (79, 10), PLAIN, ["token=hunter2222222222222"])


def training(*snapshots: Snapshot) -> Training:
    made = Training(4, 60.0, "w1", 0.0)
    for snapshot in snapshots:
        made.hosts[snapshot.rank] = "w1"
        made.watch.snapshots[snapshot.rank] = snapshot
    return made


def test_a_rank_that_ended_that_is_quiet_or_unseen_is_to_be_looked_at() -> None:
    rows = rank_rows(
        training(
            Snapshot(rank=0, stamp=1, state="collective", stage="soak", op="all_reduce", seq=7, age=11.0),
            Snapshot(rank=1, stamp=1, state="compute", stage="soak", dead="signal 9"),
            Snapshot(rank=2, stamp=1, state="done", stage="soak", dead="exit status 0"),
        )
    )
    assert [row.trouble for row in rows] == [1, 1, 2, 1]
    assert [row.cells[-1] for row in rows] == [
        "in all_reduce, call 7",
        "has ended: signal 9",
        "has finished",
        "not seen yet",
    ]


def test_a_flood_is_written_before_the_view_goes_on_and_no_byte_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_keeper, "MOST_HELD", 100_000)
    terminal, screen = pty.openpty()
    pseudo, sink = pty.openpty()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    os.set_blocking(terminal, True)
    output = bytearray()
    settings = terminal_keeper.termios.tcgetattr(sink)
    settings[1] &= ~terminal_keeper.termios.OPOST
    for number in (sink, screen):
        terminal_keeper.termios.tcsetattr(number, terminal_keeper.termios.TCSANOW, settings)
    with ours, theirs, tempfile.TemporaryFile() as held:
        keeper = Keeper(screen, pseudo, held.fileno(), theirs)
        keeper.enter()
        threads = [
            threading.Thread(target=keeper.keep, daemon=True),
            threading.Thread(target=read_all, args=(terminal, output), daemon=True),
        ]
        for thread in threads:
            thread.start()
        data = b"".join(b"%09d\n" % number for number in range(40_000))
        written = 0
        while written < len(data):
            written += os.write(sink, data[written:])
        ours.send(terminal_keeper.END + b"mark")
        os.write(sink, b"mark")
        ours.settimeout(60)
        assert ours.recv(16) == terminal_keeper.DONE
        os.close(sink)
        threads[0].join(60)
        os.close(screen)
        threads[1].join(60)
    assert output.count(ENTER) >= 3
    assert re.sub(re.escape(ENTER) + b".*?" + re.escape(LEAVE), b"", bytes(output), flags=re.DOTALL) == data
    for number in (terminal, pseudo):
        os.close(number)


def read_all(number: int, output: bytearray) -> None:
    try:
        while data := os.read(number, 1 << 16):
            output += data
    except OSError:
        pass
