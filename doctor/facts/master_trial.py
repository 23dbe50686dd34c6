"""The second round's: which host answers at a MASTER_ADDR that none of them has, as where it is translated (DNAT)."""

from __future__ import annotations

import _socket as socket
import os
import select
import struct
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from doctor.engine.fact import Fact, PerHost, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.engine.texts import filled
from doctor.facts.interfaces import Interfaces
from doctor.facts.names import MAX_NAME_CHARS, HostNames, is_loopback, normalize_host
from doctor.facts.peer_connections import LONGEST_TURN, MAX_ADDRESSES
from doctor.remote.runtime.keyed_hash import is_keyed_hash, keyed_hash

SECONDS = 6.0
"""How long each host tries: all begin at about the same time, and end as soon as all are answered."""
NONCE_SIZE = PROOF_SIZE = 16


def try_master(arguments: ProbeArguments) -> dict:  # type: ignore[type-arg]
    """Runs on the host: listens at MASTER_PORT, connects to MASTER_ADDR, and reports which host has answered there."""
    task = arguments[arguments["asked"]]  # type: ignore[literal-required]
    master, ports = arguments.get("master_addr") or "", arguments.get("ports") or []
    if master not in task["callers"] or not ports:
        return {"needed": False}
    trial = _MasterTrial(task, ports[0], task["addresses"].get(master, []), task["callers"][master])
    trial.run()
    return {
        "reached": trial.reached,
        "accepted": trial.accepted,
        "listened": trial.listened,
        "longest": round(trial.longest, 3),
    }


def _new_socket(family: int) -> Any:
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setblocking(False)
    return opened


class _MasterTrial:
    """The listener and the calls of one host. A proof is for the nonce of the call, with the key of the run."""

    def __init__(self, task: dict, port: int, addresses: list, callers: int) -> None:  # type: ignore[type-arg]
        self.name, self.key, self.port = task["host"].encode(), bytes.fromhex(task["key"]), port
        self.addresses, self.callers, self.nonce = addresses, callers, os.urandom(NONCE_SIZE)
        self.reached, self.accepted, self.proofs, self.longest = "", False, 0, 0.0
        self.end = time.monotonic() + task["seconds"]
        self.listeners = list(filter(None, map(self._listener, (socket.AF_INET, socket.AF_INET6))))
        self.listened = bool(self.listeners)
        self.calls: dict = {}  # type: ignore[type-arg]
        """By descriptor: the socket, when it was opened, and whether it has sent its nonce."""
        self.guests: dict = {}  # type: ignore[type-arg]

    def _listener(self, family: int) -> Any:
        opened = None
        try:
            opened = _new_socket(family)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            opened.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", self.port))
            opened.listen(1024)
        except OSError:
            if opened:
                opened.close()
            return None
        return opened

    def run(self) -> None:
        call_at = 0.0
        turn = time.monotonic()
        while turn < self.end and not self._is_complete():
            if self.addresses and not self.reached and turn >= call_at:
                call_at = turn + 0.5
                self._call(turn)
            sending = [entry[0] for entry in self.calls.values() if not entry[2]]
            reading = [entry[0] for entry in self.calls.values() if entry[2]]
            ready = select.select(self.listeners + list(self.guests.values()) + reading, sending, (), 0.1)
            for opened in ready[1]:
                self._send_nonce(opened)
            for opened in ready[0]:
                self._take(opened)
            self.longest = max(self.longest, time.monotonic() - turn)
            turn = time.monotonic()
        # Those that called close first, and keep the port in TIME-WAIT on their side; a reset ends what is left.
        for opened in [entry[0] for entry in self.calls.values()] + list(self.guests.values()):
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            opened.close()
        for opened in self.listeners:
            opened.close()

    def _is_complete(self) -> bool:
        if self.addresses and not self.reached:
            return False
        is_master = not self.reached or self.reached.encode() == self.name
        return self.proofs >= self.callers and not self.guests if is_master else True

    def _call(self, now: float) -> None:
        """Opens a connection to each address; one that has no answer for 3 s is given up."""
        for number, (opened, since, _) in list(self.calls.items()):
            if now - since > 3:
                del self.calls[number]
                opened.close()
        if self.calls:
            return
        for address in self.addresses:
            try:
                opened = _new_socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
                opened.connect_ex((address, self.port))
            except OSError:
                continue
            self.calls[opened.fileno()] = [opened, now, False]

    def _send_nonce(self, opened: Any) -> None:
        call = self.calls[opened.fileno()]
        try:
            opened.send(b"c" + self.nonce)
            call[2] = self.accepted = True
        except OSError:
            del self.calls[opened.fileno()]
            opened.close()

    def _take(self, opened: Any) -> None:
        number = opened.fileno()
        if opened in self.listeners:
            try:
                guest = socket.socket(fileno=opened._accept()[0])
            except OSError:
                return
            guest.setblocking(False)
            self.guests[guest.fileno()] = guest
            return
        try:
            data = opened.recv(512)
            if number in self.guests and len(data) == 1 + NONCE_SIZE and data[:1] == b"c":
                proof = keyed_hash(self.key, b"master", data[1:], self.name)[:PROOF_SIZE]  # type: ignore[no-untyped-call]
                opened.send(proof + self.name)
                self.proofs += 1
                return
        except OSError:
            data = b""
        name = data[PROOF_SIZE:]
        if number in self.calls and is_keyed_hash(data[:PROOF_SIZE], self.key, b"master", self.nonce, name):  # type: ignore[no-untyped-call]
            self.reached = name.decode("utf-8", "replace")
        self.calls.pop(number, None)
        self.guests.pop(number, None)
        opened.close()


class MasterTrial(Fact, frozen=True):
    """Which host of the list answers at MASTER_ADDR and MASTER_PORT, where that is an address of none of them.

    For some seconds each host listens at MASTER_PORT, and each to which MASTER_ADDR means such an address connects to
    it. What answers proves with the random key of the run which host it is.

    Raw output, as JSON::

        {"reached": "node1", "accepted": true, "listened": true, "longest": 0.101}
    """

    probe = ask(try_master, job=True, timeout=SECONDS + 9)
    needs = (Interfaces, HostNames)
    is_trial = True
    not_planned_reason = "the names that the hosts know mean addresses of theirs"

    reached: str = ""
    """The host that proved itself; empty for none."""
    accepted: bool = False
    """Something accepted the connection."""
    listened: bool = True
    """False: the port was taken here, or the user may not open it."""
    longest: float = 0.0
    """Seconds for which the program did not run, at a stretch."""
    needed: bool = True
    """False: MASTER_ADDR is no such address."""

    @property
    def is_busy(self) -> bool:
        return self.longest >= LONGEST_TURN

    @classmethod
    def plan(cls, fleet_facts: Mapping[type[Fact], PerHost[Any]]) -> dict[str, object]:
        interfaces: PerHost[Interfaces] = fleet_facts[Interfaces]
        names: PerHost[HostNames] = fleet_facts[HostNames]
        own = {normalize_host(entry.address) for facts in interfaces.values() for entry in facts.addresses}
        foreign: dict[str, dict[str, list[str]]] = {}
        for host in interfaces:
            meanings = names[host].names if host in names else {}
            for name, meaning in meanings.items():
                addresses = [address for address in meaning.addresses if not is_loopback(address)]
                if addresses and not any(normalize_host(address) in own for address in addresses):
                    foreign.setdefault(name, {})[host] = addresses[:MAX_ADDRESSES]
        if not foreign or len(interfaces) < 2:
            return {}
        callers = {name: len(hosts) for name, hosts in foreign.items()}
        common = {"callers": callers, "key": os.urandom(32).hex(), "seconds": SECONDS}
        return {
            host: {
                **common,
                "host": host,
                "addresses": {name: hosts[host] for name, hosts in foreign.items() if host in hosts},
            }
            for host in interfaces
        }

    @classmethod
    def read(cls, answer: ProbeAnswer) -> MasterTrial:
        try:
            value = msgspec.convert(answer.json(), cls)
        except msgspec.ValidationError as error:
            raise Unreadable(filled("no trial of MASTER_ADDR: {0}", error)) from None
        if len(value.reached) > MAX_NAME_CHARS:
            raise Unreadable("no trial of MASTER_ADDR: the name is too long")
        return value
