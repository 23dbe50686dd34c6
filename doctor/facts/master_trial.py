"""The second round's: which host answers at a MASTER_ADDR that none of them has, as where it is translated (DNAT)."""

from __future__ import annotations

import _socket as socket
import select
import struct
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from doctor.engine.fact import Fact, PerHost, ProbeAnswer, ProbeArguments, ProvenFact, Unreadable, ask
from doctor.engine.texts import filled
from doctor.facts.address_proofs import proven_host, tasks_with_keys
from doctor.facts.interfaces import Interfaces
from doctor.facts.names import MAX_NAME_CHARS, HostNames, is_loopback, normalize_host
from doctor.facts.peer_connections import LONGEST_TURN, MAX_ADDRESSES
from doctor.remote.runtime.keyed_hash import make_proof, read_proof

SECONDS = 6.0
"""How long each host tries: all begin at about the same time, and end as soon as all are answered."""
NONCE_SIZE = 16
MAX_GUESTS = 256
"""Connections kept at a time; a flood beyond them closes the oldest, and an honest host calls again."""


def try_master(arguments: ProbeArguments) -> dict:  # type: ignore[type-arg]
    """Runs on the host: listens at MASTER_PORT, connects to MASTER_ADDR, and reports which host has answered there."""
    task = arguments[arguments["asked"]]  # type: ignore[literal-required]
    master, ports = arguments.get("master_addr") or "", arguments.get("ports") or []
    if master not in task["callers"] or not ports:
        return {"needed": False}
    trial: dict = {"task": task, "reached": None, "accepted": False, "proofs": 0, "longest": 0.0}  # type: ignore[type-arg]
    trial.update(port=ports[0], calls={}, guests={}, refused=False)
    trial.update(addresses=task["addresses"].get(master, []), callers=task["callers"][master])
    trial["listeners"] = [entry for entry in [_listener(ports[0], is_ipv6) for is_ipv6 in (False, True)] if entry]
    _meet(trial, time.monotonic() + task["seconds"])
    # Those that called close first, and keep the port in TIME-WAIT on their side; a reset ends what is left.
    for opened in [entry[0] for entry in trial["calls"].values()] + list(trial["guests"].values()):
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        opened.close()
    for opened in trial["listeners"]:
        opened.close()
    answer = {name: trial[name] for name in ("reached", "accepted", "refused")}
    return dict(answer, listened=bool(trial["listeners"]), longest=round(trial["longest"], 3))


def _new_socket(family: int) -> Any:
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setblocking(False)
    return opened


def _listener(port: int, is_ipv6: bool) -> Any:
    opened = None
    try:
        opened = _new_socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_ipv6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(("::" if is_ipv6 else "0.0.0.0", port))
        opened.listen(1024)
    except OSError:
        if opened:
            opened.close()
        return None
    return opened


def _meet(trial: dict, end: float) -> None:  # type: ignore[type-arg]
    """Calls until a host of the run has answered, and answers until all that call have been."""
    call_at, turn = 0.0, time.monotonic()
    while turn < end and not _is_complete(trial):
        if trial["addresses"] and not trial["reached"] and turn >= call_at:
            call_at = turn + 0.5
            _call(trial, turn)
        waiting = {opened.fileno(): opened for opened in trial["listeners"]}
        waiting.update(trial["guests"])
        poll = select.poll()  # `select` ends at 1,024 open files, and each host of the job may call
        for number in waiting:
            poll.register(number, select.POLLIN)
        for number, call in trial["calls"].items():
            waiting[number] = call[0]
            poll.register(number, select.POLLIN if call[2] else select.POLLOUT)
        for number, _ in poll.poll(100):
            unsent = number in trial["calls"] and not trial["calls"][number][2]
            (_send_nonce if unsent else _take)(trial, waiting[number])
        trial["longest"] = max(trial["longest"], time.monotonic() - turn)
        turn = time.monotonic()


def _is_complete(trial: dict) -> bool:  # type: ignore[type-arg]
    if trial["addresses"] and not trial["reached"]:
        return bool(trial["refused"] and trial["task"]["is_alone"])
    if trial["reached"] and trial["reached"][0] != trial["task"]["host"]:
        return True
    return trial["proofs"] >= trial["callers"] and not trial["guests"]


def _call(trial: dict, now: float) -> None:  # type: ignore[type-arg]
    """Opens a connection to each address; one that has no answer for 3 s is given up."""
    for number, (opened, since, _) in list(trial["calls"].items()):
        if now - since > 3:
            del trial["calls"][number]
            opened.close()
    if trial["calls"]:
        return
    for address in trial["addresses"]:
        try:
            opened = _new_socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
            opened.connect_ex((address, trial["port"]))
        except OSError:
            continue
        trial["calls"][opened.fileno()] = [opened, now, False]


def _send_nonce(trial: dict, opened: Any) -> None:  # type: ignore[type-arg]
    call = trial["calls"][opened.fileno()]
    try:
        opened.send(b"c" + bytes.fromhex(trial["task"]["nonce"]))
        call[2] = trial["accepted"] = True
    except OSError as error:
        trial["refused"] = trial["refused"] or isinstance(error, ConnectionRefusedError)
        del trial["calls"][opened.fileno()]
        opened.close()


def _take(trial: dict, opened: Any) -> None:  # type: ignore[type-arg]
    """A connection, a call, which is answered with a proof, or the proof for the own call."""
    if opened in trial["listeners"]:
        try:
            guest = socket.socket(fileno=opened._accept()[0])
        except OSError:
            return
        guest.setblocking(False)
        if len(trial["guests"]) >= MAX_GUESTS:
            trial["guests"].pop(next(iter(trial["guests"]))).close()
        trial["guests"][guest.fileno()] = guest
        return
    number = opened.fileno()
    try:
        data = opened.recv(512)
        if number in trial["guests"] and len(data) == 1 + NONCE_SIZE and data[:1] == b"c":
            opened.send(make_proof(trial["task"], b"master", data[1:].hex()))  # type: ignore[no-untyped-call]
            trial["proofs"] += 1
            return
    except OSError:
        data = b""
    if number in trial["calls"]:
        trial["reached"] = read_proof(trial["task"], b"master", data) or trial["reached"]  # type: ignore[no-untyped-call]
    trial["calls"].pop(number, None)
    trial["guests"].pop(number, None)
    opened.close()


class MasterTrial(ProvenFact, frozen=True):
    """Which host of the list answers at MASTER_ADDR and MASTER_PORT, where that is an address of none of them.

    For some seconds each host listens at MASTER_PORT, and each to which MASTER_ADDR means such an address connects to
    it. What answers proves with a random key of its own which host it is: the caller passes the proof on, and the
    controller, which has the keys, verifies it and keeps the name.

    Raw output, as JSON::

        {"reached": "node1", "accepted": true, "refused": false, "listened": true, "longest": 0.101}
    """

    probe = ask(try_master, job=True, timeout=SECONDS + 9)
    needs = (Interfaces, HostNames)
    is_trial = settles_doubt = True
    not_planned_reason = "the names that the hosts know mean addresses of theirs"

    reached: str = ""
    """The host that proved itself; empty for none."""
    accepted: bool = False
    """Something accepted the connection."""
    refused: bool = False
    """Something refused the connection: a host is there."""
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
        if not foreign:
            return {}
        callers = {name: len(hosts) for name, hosts in foreign.items()}
        common = {"callers": callers, "seconds": SECONDS, "is_alone": len(interfaces) < 2}
        return {
            host: {
                **common,
                **keys,
                "addresses": {name: hosts[host] for name, hosts in foreign.items() if host in hosts},
            }
            for host, keys in tasks_with_keys(interfaces).items()
        }

    @classmethod
    def verified(cls, claims: dict[str, Any], host: str, tasks: Mapping[str, Any]) -> dict[str, Any]:
        return {**claims, "reached": proven_host(claims.get("reached"), b"master", host, tasks)}

    @classmethod
    def read(cls, answer: ProbeAnswer) -> MasterTrial:
        try:
            value = msgspec.convert(answer.json(), cls)
        except msgspec.ValidationError as error:
            raise Unreadable(filled("no trial of MASTER_ADDR: {0}", error)) from None
        if len(value.reached) > MAX_NAME_CHARS:
            raise Unreadable("no trial of MASTER_ADDR: the name is too long")
        return value
