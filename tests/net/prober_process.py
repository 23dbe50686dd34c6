"""A prober as a process of this machine, with the orders of a controller."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from doctor.net.prober.handshake import pair_key
from doctor.net.run.sessions import PROBER
from tests.readable import readable

MARKER = "doctor-test"
TOKEN = "ab" * 32


def own_key(host: int) -> bytes:
    return bytes([host]) * 32


class ProberProcess:
    """One prober on loopback: `order` sends, `answer` waits for a message with a key."""

    def __init__(self, host: int, seconds: float = 60.0) -> None:
        self.host = host
        keys = {"token": TOKEN, "own_key": own_key(host).hex()}
        request = json.dumps({"marker": MARKER, **keys, "host": host, "seconds": seconds}).encode()
        start = PROBER.request(MARKER, request, interpreter=sys.executable)
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", start.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(start.stdin)
        self.process.stdin.flush()

    def order(self, name: str, **fields: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": name, **fields}).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, key: str, seconds: float = 60.0) -> Any:
        """The value of the next message that has this key."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert readable([self.process.stdout], deadline - time.monotonic()), f"no {key}"
            line = self.process.stdout.readline()
            assert line, f"the prober ended before {key}"
            if line.startswith(MARKER.encode() + b" "):
                message = json.loads(line[len(MARKER) + 1 :])
                assert "fault" not in message, message
                if key in message:
                    return message[key]
        raise AssertionError(f"no {key}")

    def listen(self, *services: tuple[str, int]) -> list[int]:
        """The ports that it got; 0 where it could not listen."""
        self.order("listen", services=services)
        return [report[2] for report in self.answer("listening")]

    def attempt(self, peer: int, address: str, port: int, *, bulk: bool = False, seconds: float = 20.0) -> list[Any]:
        """The report of one attempt: peer, address, port, outcome, detail, and figures."""
        key = pair_key(own_key(peer), self.host).hex()  # type: ignore[no-untyped-call]
        targets, keys = [[peer, address, port, bulk, 0]], [[peer, key]]
        self.order("connect", number=1, targets=targets, keys=keys, seconds=seconds, total=60.0, last=True)
        (report,) = self.answer("attempts")
        return list(report)


@contextlib.contextmanager
def prober(host: int, seconds: float = 60.0) -> Iterator[ProberProcess]:
    """A prober that is ended with the ``with``."""
    started = ProberProcess(host, seconds)
    try:
        started.answer("hello")
        yield started
    finally:
        started.process.kill()
        with contextlib.suppress(OSError), started.process:
            pass
