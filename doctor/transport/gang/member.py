"""A member of a gang: finds its leader, carries out commands for it, receives the verdict."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, NamedTuple

from doctor.engine.sanitize import last_line
from doctor.engine.texts import filled
from doctor.remote.bootstrap import python_problem
from doctor.transport.gang.links import FAILED, FRAMES, ORDERS, PORTS, RECEIPT, VERDICT
from doctor.transport.gang.sealed import CHUNK, Introduction, SealedLink, introduce
from doctor.transport.launcher.launcher import carrier_command
from doctor.transport.peer_handshake import ForeignPeer, KeyRefused

KEY_VARIABLE = "DOCTOR_GANG_KEY"
_CONNECT_SECONDS = 3.0
_FIRST_PAUSE, _LAST_PAUSE = 0.2, 2.0
_END_SECONDS = 3.0


class LeaderAttempt(NamedTuple):
    """One attempt to reach the leader: its link, or why there is none."""

    link: SealedLink | None
    why: str = ""


class Membership:
    """One member's time in its gang.

    Args:
        leader: the name of the leader that DNS has.
        on_state: called with what the member waits for, in words.
        start: names this process; drawn where it is empty.
    """

    def __init__(
        self,
        leader: str,
        key: bytes,
        index: int,
        version: str,
        on_state: Callable[[str], None],
        start: str = "",
        ports: Sequence[int] = PORTS,
    ) -> None:
        self.leader, self.why = leader, ""
        """``why``: the reason of the last attempt that failed."""
        self._key, self._on_state, self._ports = key, on_state, ports
        self._introduction = Introduction(index, os.uname().nodename, version, start or secrets.token_hex(8))

    def receive_verdict(self, patience: float, until: float) -> bytes | None:
        """The leader's verdict; None where the leader was absent for ``patience`` seconds, or at this monotonic time.

        A leader that dies may be started again: it is looked for anew.
        """
        pause, absent_since = _FIRST_PAUSE, time.monotonic()
        while (now := time.monotonic()) < min(until, absent_since + patience):
            self._on_state(filled("waiting for {0}, which leads the gang", self.leader))
            attempt = self._attempt(min(until, absent_since + patience) - now)
            if attempt.link is None:
                self.why = attempt.why
                time.sleep(min(pause * random.uniform(0.7, 1.3), max(0.0, until - time.monotonic())))
                pause = min(pause * 1.5, _LAST_PAUSE)
                continue
            self._on_state(filled("carrying out the checks of {0}", self.leader))
            began = time.monotonic()
            verdict = _serve(attempt.link)
            if verdict is not None:
                return verdict
            self.why = filled("the connection to {0} was cut before its verdict", self.leader)
            absent_since = time.monotonic()
            pause = _FIRST_PAUSE if absent_since > began + _LAST_PAUSE else min(pause * 1.5, _LAST_PAUSE)
            time.sleep(pause)
        return None

    def address_of_leader(self) -> str:
        """Where a leader of this gang listens now; empty where none answers."""
        link = self._attempt(_CONNECT_SECONDS).link
        if link is None:
            return ""
        link.close()
        return str(link.address)

    def _attempt(self, seconds: float) -> LeaderAttempt:
        try:
            places = socket.getaddrinfo(self.leader, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return LeaderAttempt(
                None,
                filled(
                    "the name {0} does not resolve; expected a headless service with publishNotReadyAddresses: true",
                    self.leader,
                ),
            )
        why = ""
        for address in dict.fromkeys(str(place[4][0]) for place in places):
            for port in self._ports:
                attempt = self._connect(address, port, min(seconds, _CONNECT_SECONDS))
                if attempt.link is not None:
                    return attempt
                why = why if why and attempt.why.endswith("refused") else attempt.why
                if attempt.why.endswith("no answer"):
                    break
        return LeaderAttempt(None, why)

    def _connect(self, address: str, port: int, seconds: float) -> LeaderAttempt:
        where = filled("port {0} of {1}", port, self.leader)
        try:
            link = socket.create_connection((address, port), max(seconds, 0.1))
        except TimeoutError:
            return LeaderAttempt(None, filled("{0}: no answer", where))
        except ConnectionRefusedError:
            return LeaderAttempt(None, filled("{0}: connection refused", where))
        except OSError as error:
            return LeaderAttempt(None, filled("{0}: {1}", where, error.strerror or str(error)))
        try:
            return LeaderAttempt(introduce(link, self._key, self._introduction))
        except KeyRefused:
            why = filled("{0}: it has another key, or is of another gang", where)
        except (ForeignPeer, OSError):  # also one that takes connections and keeps silent: the leader has another port
            why = filled("{0}: what answers there is no member of this gang", where)
        link.close()
        return LeaderAttempt(None, why)


def _end(carrier: subprocess.Popen[bytes], orders: IO[bytes]) -> None:
    with contextlib.suppress(OSError):
        orders.close()  # the carrier's cue: it ends what it started
    try:
        carrier.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        carrier.kill()
        carrier.wait()


def _serve(link: SealedLink) -> bytes | None:
    """Carries out what the leader orders until its verdict, which is returned; None where the link was cut."""
    environ = {name: value for name, value in os.environ.items() if name != KEY_VARIABLE}
    pipe = subprocess.PIPE
    carrier = subprocess.Popen(
        carrier_command(), stdin=pipe, stdout=pipe, stderr=pipe, env=environ, start_new_session=True
    )
    assert carrier.stdin and carrier.stdout and carrier.stderr
    output, errors = carrier.stdout.fileno(), carrier.stderr.fileno()

    def send_frames() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(output, CHUNK):
                link.send(FRAMES, data)
            text = os.read(errors, CHUNK).decode("utf-8", "replace").strip()  # it has ended, or has closed both
            link.send(FAILED, (python_problem(text) or last_line(text, 400))[:400].encode())
        link.close()

    sender = threading.Thread(target=send_frames, daemon=True)
    sender.start()
    try:
        while True:
            kind, data = link.receive()
            if kind == VERDICT:
                with contextlib.suppress(OSError):
                    link.send(RECEIPT)
                return data
            if kind == ORDERS:
                carrier.stdin.write(data)
                carrier.stdin.flush()
    except (OSError, ForeignPeer):
        return None
    finally:
        _end(carrier, carrier.stdin)
        sender.join(_END_SECONDS)
        link.close()
        carrier.stdout.close()
        carrier.stderr.close()
