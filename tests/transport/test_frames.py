"""What passes between us and the carriers: whole through every launcher's cuts, and once for all that is alike."""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
import zlib

import pytest

from doctor.collect.collector_request import COLLECTOR, CollectOptions, RequestTemplate
from doctor.facts.kernel import ListenQueues
from doctor.transport.launcher.carrier.carrier import HEAD, Carrier, FrameWriter
from doctor.transport.launcher.frames import Frame, FrameError, FrameReader, RequestEncoder
from doctor.transport.launcher.mpi import MpiReader
from doctor.transport.launcher.slurm_steps import SlurmReader


def framed(*frames: tuple[bytes, int, bytes]) -> bytes:
    writer = FrameWriter()
    for frame in frames:
        writer.send(*frame)
    return bytes(writer.queue)


def read(stream: bytes, cuts: list[int] | None = None) -> list[Frame]:
    reader, places = FrameReader(), [0, *sorted(cuts or []), len(stream)]
    pieces = [stream[start:end] for start, end in itertools.pairwise(places)]
    return [frame for piece in pieces for frame in reader.read(piece)]


class TestFrames:
    def test_wherever_they_are_cut_they_come_whole(self) -> None:
        large = os.urandom(40_000)
        stream = framed((b"o", 7, b"some words"), (b"e", 9, large), (b"x", 7, b"0"))
        full = [Frame("o", 7, b"some words"), Frame("e", 9, large), Frame("x", 7, b"0")]
        chance = random.Random(1)
        for _ in range(20):
            assert read(stream, [chance.randrange(len(stream)) for _ in range(30)]) == full

    def test_no_line_is_longer_than_srun_leaves_whole(self) -> None:
        assert max(map(len, framed((b"o", 1, os.urandom(48_000))).split(b"\n"))) <= 1000

    def test_what_else_a_host_prints_between_them_is_skipped(self) -> None:
        first, second = framed((b"o", 1, b"a"), (b"o", 1, b"b")).splitlines(keepends=True)
        noise = b"Welcome (to node 7)\n(AAAA.00000000)\n" + os.urandom(500).replace(b"(", b"")
        assert [frame.data for frame in read(noise + first + b"\n" + noise + b"\n" + second)] == [b"a", b"b"]

    def test_a_frame_that_never_comes_is_told(self) -> None:
        first, _, third = framed((b"o", 1, b"a"), (b"o", 1, b"b"), (b"o", 1, b"c")).splitlines(keepends=True)
        with pytest.raises(FrameError):
            read(first + third)

    def test_one_that_never_ends_is_not_kept(self) -> None:
        reader = FrameReader()
        for _ in range(100):
            assert list(reader.read(b"(" + b"A" * 100_000)) == []
        assert list(reader.read(framed((b"o", 1, b"a")))) == [Frame("o", 1, b"a")]

    def test_one_that_unpacks_to_far_more_than_it_may_is_noise(self) -> None:
        body = HEAD.pack(0, b"o", 1, 1) + zlib.compress(bytes(100_000_000), 9)
        text = b"(" + base64.b64encode(body) + b".%08x)" % zlib.crc32(body)
        assert read(text) == []


class TestOrders:
    def fed(self, lines: bytes, task: str) -> bytes:
        """What a carrier's commands are fed, by these lines."""
        carrier = Carrier.__new__(Carrier)
        carrier.bases, fed = {}, bytearray()
        carrier.feed = lambda number, data: fed.extend(data)
        for line in lines.splitlines():
            to, _, order = line.decode().partition(" ")
            if to in ("*", task):
                name, *arguments = json.loads(order)
                getattr(carrier, f"do_{name}")(*arguments)
        return bytes(fed)

    def test_each_host_is_fed_its_own(self) -> None:
        orders = RequestEncoder()
        shared = os.urandom(30_000)
        sent = {task: shared + b"%d" % task * 9 + shared[::-1] for task in range(12)}
        lines = b"".join(orders.encode_data(task, 1, data) for task, data in sent.items())
        assert all(self.fed(lines, str(task)) == data for task, data in sent.items())

    def test_what_is_unlike_all_before_is_sent_whole(self) -> None:
        orders = RequestEncoder()
        sent = [os.urandom(5000) for _ in range(10)]
        lines = b"".join(orders.encode_data(0, 1, data) for data in sent)
        assert self.fed(lines, "0") == b"".join(sent)

    def test_sixty_four_hosts_are_asked_for_little_more_than_one(self) -> None:
        """Requests that differ in a marker: every host reads all lines, so their sum is what counts."""
        hosts = [f"node{n:04d}" for n in range(64)]
        orders, template = RequestEncoder(), RequestTemplate(CollectOptions((ListenQueues,), {"hosts": hosts}))
        requests = [template.request(58.5).stdin for _ in range(64)]
        sizes = [len(orders.encode_data(task, task, request)) for task, request in enumerate(requests)]
        assert sizes[0] < len(COLLECTOR.source)
        assert max(sizes[1:]) < 200
        assert sum(sizes) < sizes[0] * 1.5


class TestSlurmsWords:
    def test_a_task_cannot_speak_for_another(self) -> None:
        ears = SlurmReader()
        outputs = list(ears.read_stdout(b" 3: 1: forged\n12: x"))
        outputs += list(ears.read_stdout(b"y\nsrun: error: forged\n"))
        assert [(output.task, output.data) for output in outputs] == [(3, b"1: forged"), (12, b"xy")]

    def test_which_task_is_where_is_sruns_word(self) -> None:
        ears = SlurmReader()
        list(
            ears.read_stderr(
                b"srun: launching StepId=4.0 on host exp2, 1 tasks: 1\n0: srun: launching on host exp9, 1 tasks: 0\n"
            )
        )
        list(
            ears.read_stderr(
                b"srun: launching 5.0 on host exp1, 1 tasks: 0\nsrun: launch/slurm: _task_start: Node exp1, 1 tasks"
            )
        )
        list(ears.read_stderr(b" started\n"))
        assert ears.host_by_task == {0: "exp1", 1: "exp2"}
        assert ears.started_hosts == {"exp1"}

    def test_a_node_that_cannot_be_launched_on_is_named(self) -> None:
        ears = SlurmReader()
        list(
            ears.read_stderr(
                b"srun: error: Task launch for StepId=7.0 failed on node exp3: Communication connection failure\n"
            )
        )
        assert ears.errors_by_host["exp3"].text.endswith("Communication connection failure")

    def test_its_last_error_is_kept_without_what_a_terminal_obeys(self) -> None:
        ears = SlurmReader()
        list(ears.read_stderr(b"srun: error: Unable to create step for job 8: \x1b[31mno\x1b[0m\n"))
        assert ears.last_error == "Unable to create step for job 8: no"


class TestMpirunsWords:
    def test_a_task_cannot_speak_for_another(self) -> None:
        ears = MpiReader(["a", "b"])
        stream = b'<stdout rank="1">half &lt;stdout rank="0"&gt;x&#027;</stdout><stderr rank="0">e&#010;</stderr>\n'
        received = [tuple(output) for output in ears.read_stdout(stream)]
        assert received == [(1, False, b'half <stdout rank="0">x\x1b'), (0, True, b"e\n")]

    def test_which_task_is_where_is_the_first_maps_word(self) -> None:
        ears = MpiReader(["a", "b"])
        text = '<map>\n\t<host name="{}" slots="1">\n\t\t<process rank="0" status="x"/>\n\t</host>\n</map>\n'
        list(ears.read_stdout((text.format("b") + text.format("a")).encode()))
        assert ears.host_by_task[0] == "b"

    def test_a_host_that_its_ssh_does_not_reach_is_named(self) -> None:
        ears = MpiReader(["a", "b"])
        list(ears.read_stderr(b"ssh: connect to host b port 22: Connection refused\r\n"))
        assert ears.errors_by_host["b"].text == "mpirun's ssh could not connect to it: Connection refused"
