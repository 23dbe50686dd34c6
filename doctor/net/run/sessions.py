"""The probers of all hosts, and the lines that they send."""

from __future__ import annotations

import contextlib
import secrets
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec

from doctor.facts.ports import is_service
from doctor.net.prober.handshake import is_proof_of_host, pair_key
from doctor.remote.request import new_marker
from doctor.transport import RemoteSession, Transport
from doctor.transport.program import HostProgram, ProgramSessions, decode_message, start_session

PROBER = HostProgram("doctor.net.prober.prober")
"""The program of each host."""
TOKEN_BYTES = 32
TARGETS_OF_MESSAGE = 1024
PROOF_CHARS = 2 * (16 + 16 + 16)
"""Of a challenge, a nonce and a keyed hash."""
MARGIN_SECONDS = 15.0
"""That a prober may live beyond the test's budget, if nothing else ends it."""

Text = Annotated[str, msgspec.Meta(max_length=4096)]
PrintedText = Annotated[str, msgspec.Meta(max_length=8192)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class AttemptReport(msgspec.Struct, frozen=True, array_like=True):
    """One attempt as a prober reports it."""

    peer: int
    address: Text
    port: Port
    outcome: Text
    detail: Text
    seconds: float
    sent_again: int
    """Segments that the kernel sent more than once."""
    largest: int
    """Bytes of the largest packet that passes, where full-size ones do not; 0 where it was not found."""
    source_port: Port = 0
    """That it came from; 0 where it was not made."""


class ListenerReport(msgspec.Struct, frozen=True, array_like=True):
    """What became of one listener."""

    address: Text
    requested: Port
    port: Port
    problem: Text
    owner: dict[str, object]
    """user, pid, command and seconds of the process that holds the port."""

    @property
    def is_of_service(self) -> bool:
        """A service of the host holds the port, and no job."""
        pid, command = self.owner.get("pid"), str(self.owner.get("command") or "")
        return self.requested > 0 and is_service(pid if isinstance(pid, int) else 0, self.requested, command)


class StreamReport(msgspec.Struct, frozen=True):
    """Streams that sent at the same time."""

    bytes: Annotated[int, msgspec.Meta(ge=0)]
    seconds: Annotated[float, msgspec.Meta(ge=0)]
    again: Annotated[int, msgspec.Meta(ge=0)]
    """Segments that were sent more than once."""
    problem: Text = ""
    waited: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds that a program of either end waited for a CPU."""
    arrival: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Bytes a second at which packets arrived while they did, by the kernel's time stamps; 0 where too few did."""

    @property
    def rate(self) -> float | None:
        """Bytes a second; None where nothing was measured."""
        return self.bytes / self.seconds if self.seconds > 0 and self.bytes and not self.problem else None


class SpeedReport(msgspec.Struct, frozen=True):
    """The speed from one host to another."""

    host: int
    problem: Text = ""
    latencies: Annotated[list[float], msgspec.Meta(max_length=4096)] = []
    """Seconds of round trips of one byte."""
    single: StreamReport | None = None
    multi: StreamReport | None = None


class PaceReport(msgspec.Struct, frozen=True):
    """How far a host let its prober run."""

    seconds: Annotated[float, msgspec.Meta(ge=0)]
    """Measured in all."""
    longest: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds of the prober's longest turn: 0.1 s where nothing disturbs it."""
    waited: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds that it waited for a CPU."""
    stolen: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Share of the host's CPU time that the hypervisor took."""


class ProberMessage(msgspec.Struct, frozen=True):
    """One line of a prober; it has one of these fields."""

    hello: dict[str, object] | None = None
    listening: Annotated[list[ListenerReport], msgspec.Meta(max_length=4096)] | None = None
    attempts: Annotated[list[AttemptReport], msgspec.Meta(max_length=4096)] | None = None
    round: int = 0
    done: int | None = None
    arrived: Annotated[list[tuple[Text, Port, Port]], msgspec.Meta(max_length=4096)] | None = None
    given_up: Annotated[list[tuple[Port, Port]], msgspec.Meta(max_length=4096)] | None = None
    """Port here and the caller's of each call that it closed on timeout or overload."""
    speed: SpeedReport | None = None
    pace: PaceReport | None = None
    job: Annotated[list[tuple[int, Text]], msgspec.Meta(max_length=64)] | None = None
    programs: Annotated[list[Text], msgspec.Meta(max_length=16)] | None = None
    serving: int | None = None
    called: Annotated[list[tuple[Text, PrintedText, float]], msgspec.Meta(max_length=64)] | None = None
    """Label, output and seconds of each program that was run."""
    bye: dict[str, object] | None = None
    fault: Text = ""


_DECODER = msgspec.json.Decoder(ProberMessage)


class Probers(ProgramSessions):
    """The probers of all hosts, by host. A host that is lost is in `lost`, with the reason."""

    def __init__(
        self, hosts: Sequence[str], transport: Transport, seconds: float, within: tuple[str, ...] = (), python: str = ""
    ) -> None:
        self.hosts = tuple(hosts)
        self._own_keys = [secrets.token_bytes(TOKEN_BYTES) for _ in self.hosts]
        self.on_message: Callable[[str, ProberMessage], None] = lambda host, message: None
        marker = new_marker()
        fields = {"marker": marker, "token": secrets.token_hex(TOKEN_BYTES), "seconds": seconds + MARGIN_SECONDS}

        def connect(number: int, host: str) -> RemoteSession:
            first = msgspec.json.encode({**fields, "host": number, "own_key": self._own_keys[number].hex()})
            request = PROBER.request(marker, first, candidate=python, within=within)
            return start_session(transport, host, request)

        starts = {host: partial(connect, number, host) for number, host in enumerate(self.hosts)}
        super().__init__(PROBER.name, starts, marker, b'{"do":"stay"}')

    def take_message(self, name: str, data: bytes) -> None:
        self.on_message(name, decode_message(_DECODER, data))

    def send_targets(
        self, host: str, targets: Sequence[tuple[int, str, int, bool, int]], order: Mapping[str, Any]
    ) -> None:
        """An order with targets, in messages of some of them, with the keys that they prove themselves by."""
        for start in range(0, max(len(targets), 1), TARGETS_OF_MESSAGE):
            part = targets[start : start + TARGETS_OF_MESSAGE]
            keys = self.pair_keys(host, {target[0] for target in part})
            is_last = start + TARGETS_OF_MESSAGE >= len(targets)
            self.send(host, {**order, "targets": part, "keys": keys, "last": is_last})

    def pair_keys(self, caller: str, targets: Iterable[int]) -> list[tuple[int, str]]:
        """By which each of the targets proves itself to a caller."""
        number = self.hosts.index(caller)
        return [
            (target, pair_key(self._own_keys[target], number).hex())  # type: ignore[no-untyped-call]
            for target in targets
        ]

    def verified(self, caller: str, attempt: AttemptReport) -> AttemptReport:
        """What a host has reported; another host than its target has answered only where that is proven."""
        if attempt.outcome != "other-host":
            return attempt
        match attempt.detail.split():
            case [number, port, proof] if (number + port + proof).isalnum() and len(proof) == PROOF_CHARS:
                with contextlib.suppress(ValueError, IndexError, struct.error):
                    [(_, key)] = self.pair_keys(caller, [int(number)])
                    if is_proof_of_host(bytes.fromhex(key), int(number), int(port), bytes.fromhex(proof)):  # type: ignore[no-untyped-call]
                        return msgspec.structs.replace(attempt, detail=number)
        return msgspec.structs.replace(attempt, outcome="stranger", detail="")

    def send(self, host: str, order: Mapping[str, Any]) -> None:
        """Does nothing where the prober is gone; the inbox reports that."""
        if host not in self.lost:
            self.send_line(host, msgspec.json.encode(order))

    def close(self, grace: float = 1.0) -> None:
        for host in self._sessions:
            self.send(host, {"do": "end"})
        super().close(grace)
