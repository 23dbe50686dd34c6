"""Questions to neighbours for their hardware addresses, by a process that gets no CPU in time, and in a flood."""

from __future__ import annotations

import pytest

from doctor.remote.runtime import neighbours

TARGET, OTHER, CARD = b"\x0a\x00\x00\x02", b"\x0a\x00\x00\x03", b"\x02\xfc\x00\x00\x00\x02"
QUESTION = ("eth0", b"question")


def answer_of(address: bytes) -> bytes:
    return bytes(20) + b"\0\2" + CARD + address + bytes(10)


class Neighbour:
    """The socket: each question is answered at once; frames that others sent come before."""

    def __init__(self, answers: bool, flood: bool = False) -> None:
        self.answers, self.flood, self.queue, self.read = answers, flood, list[bytes](), 0

    def sendto(self, frame: bytes, to: tuple[str, int]) -> None:
        if self.answers:
            self.queue.append(answer_of(TARGET))

    def settimeout(self, seconds: float) -> None:
        assert seconds > 0

    def recv(self, most: int) -> bytes:
        self.read += 1
        if self.queue:
            return self.queue.pop()
        if self.flood:
            return answer_of(OTHER)
        raise TimeoutError


def asked(neighbour: Neighbour, monkeypatch: pytest.MonkeyPatch, step: float) -> list[bytes]:
    """``step``: seconds that pass between two looks at the clock."""
    clock = iter(range(1_000_000))
    monkeypatch.setattr("time.monotonic", lambda: next(clock) * step)
    return neighbours._answers(neighbour, [(TARGET, QUESTION)], 0.2)[TARGET]  # type: ignore[no-any-return, no-untyped-call]


@pytest.mark.parametrize("step", [0.001, 5.0], ids=["in time", "without a CPU for 5 s"])
def test_an_answer_that_waits_in_the_queue_counts(step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(Neighbour(True), monkeypatch, step) == [CARD] * neighbours.ENOUGH


@pytest.mark.parametrize("flood", [False, True])
def test_who_does_not_answer_is_silent_also_in_a_flood(flood: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    neighbour = Neighbour(False, flood)
    assert asked(neighbour, monkeypatch, 0.01) == []
    assert neighbour.read <= neighbours.TURNS * (neighbours.LATE + 30)
