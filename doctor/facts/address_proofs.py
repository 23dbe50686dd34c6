"""The second round's: which host answers at an address, by a keyed handshake: a witness that no host can bear alone."""

from __future__ import annotations

import _socket as socket
import os
import select
import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from doctor.engine.addresses import plain_address
from doctor.engine.fact import Fact, PerHost, ProbeAnswer, ProbeArguments, ProvenFact, Unreadable, ask
from doctor.engine.grouping import sets_by_key
from doctor.engine.texts import filled
from doctor.facts.hardware_addresses import MAX_NEIGHBOURS
from doctor.facts.interfaces import Interfaces
from doctor.facts.peer_connections import connection_partners, target_addresses
from doctor.facts.visit import Reachability
from doctor.remote.runtime.keyed_hash import is_keyed_hash, make_proof, read_proof

SECONDS = 3.0
"""How long a host calls the others: all begin at about the same time, and end as soon as each has answered."""
LAST_SECONDS = 0.25
"""Two more turns, once each has answered, for what of ours was lost on its way."""
FIRST_PORT, PORTS = 20000, 9000
"""UDP: below what kernels give to programs, and below the usual MASTER_PORT."""
NONCE_SIZE, PROOF_CHARS = 16, 32


def prove_addresses(arguments: ProbeArguments) -> dict:  # type: ignore[type-arg]
    """Runs on the host: calls the others from each of its addresses, answers their calls, and reports who answered.

    Both ends call from and to the same port: so the answers pass a firewall that accepts what its own host has begun.
    """
    task = arguments[arguments["asked"]]  # type: ignore[literal-required]
    peers = dict(task["peers"])
    sockets = {address: _open_socket(address, task["port"]) for address in task["own"]}
    opened = [entry for entry in sockets.values() if entry]
    proven: dict = {}  # type: ignore[type-arg]
    answered: set = set()  # type: ignore[type-arg]
    turn, end = 0.0, time.monotonic() + task["seconds"]
    while opened and time.monotonic() < end:
        if len(proven) == len(answered) == len(peers):
            end = min(end, time.monotonic() + LAST_SECONDS)
        if time.monotonic() >= turn:
            turn = time.monotonic() + 0.1
            for address in peers:
                for entry in opened:
                    if entry.family == (socket.AF_INET6 if ":" in address else socket.AF_INET):
                        _send(entry, b"c" + bytes.fromhex(task["nonce"]), address, task["port"])
        for entry in select.select(opened, (), (), max(0.0, turn - time.monotonic()))[0]:
            _take(entry, task, peers, proven, answered)
    for entry in opened:
        entry.close()
    return {"proven": proven, "unopened": sorted(address for address, entry in sockets.items() if not entry)}


def _open_socket(address: str, port: int) -> Any:
    try:
        opened = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    except OSError:
        return None
    try:
        opened.setblocking(False)
        opened.bind((address, port))
    except OSError:
        opened.close()
        return None
    return opened


def _send(entry: Any, data: bytes, address: str, port: int) -> None:
    try:
        entry.sendto(data, (address, port))
    except OSError:
        return  # no route from this address, or a rule of its own: the next turn tries again


def _take(entry: Any, task: dict, peers: dict, proven: dict, answered: set) -> None:  # type: ignore[type-arg]
    """One datagram: a call, which is answered with a proof for its sender alone, or the proof for a call of ours."""
    try:
        data, sender = entry.recvfrom(512)
    except OSError:
        return
    address = sender[0]
    if address not in peers or sender[1] != task["port"]:
        return
    if data[:1] == b"c" and len(data) == 1 + NONCE_SIZE:
        _send(entry, b"p" + make_proof(task, b"address", data[1:].hex()), address, task["port"])  # type: ignore[no-untyped-call]
        answered.add(address)
    elif data[:1] == b"p":
        answer = read_proof(task, b"address", data[1:])  # type: ignore[no-untyped-call]
        if answer:
            proven[address] = answer


def tasks_with_keys(hosts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """For each host the run's key, one of its own that no other host gets, and the nonce of its calls.

    With the run's key alone, any host could answer in the name of another one.
    """
    key = os.urandom(32).hex()
    return {
        host: {"host": host, "key": key, "own_key": os.urandom(32).hex(), "nonce": os.urandom(16).hex()}
        for host in hosts
    }


def proven_host(claims: object, role: bytes, caller: str, tasks: Mapping[str, Any]) -> str:
    """The host that has answered a caller, of ``[name, proof]`` as the caller reports it; empty for none."""
    match claims:
        case [str(name), str(proof)] if name in tasks and len(proof) == PROOF_CHARS and proof.isalnum():
            key, nonce = (bytes.fromhex(encoded) for encoded in (tasks[name]["own_key"], tasks[caller]["nonce"]))
            try:
                return name if is_keyed_hash(bytes.fromhex(proof), key, role, nonce, name.encode()) else ""  # type: ignore[no-untyped-call]
            except ValueError:
                return ""
    return ""


class AddressProofs(ProvenFact, frozen=True):
    """Which host of the list has answered at an address outside the network by which SSH reaches it.

    Every host of a run gets the run's random key and one of its own. A host that is called at an address proves, with
    the caller's nonce, that it has the run's key and, for the controller, who it is. A stranger has no key, a host has
    no other host's, and does not get the nonce of a call to an address that is not its own.

    Raw output, as JSON::

        {"proven": {"10.95.0.2": "node2"}, "unopened": []}
    """

    probe = ask(prove_addresses, job=True, timeout=15)
    needs = (Interfaces, Reachability)
    not_planned_reason = "SSH reaches the hosts by all addresses that they have in common networks"

    proven: dict[str, str]
    """The host that answered, by address."""

    @classmethod
    def plan(cls, fleet_facts: Mapping[type[Fact], PerHost[Any]]) -> dict[str, object]:
        interfaces: PerHost[Interfaces] = fleet_facts[Interfaces]
        visits: PerHost[Reachability] = fleet_facts[Reachability]
        peers: dict[str, dict[str, str]] = {}
        own_addresses: dict[str, set[str]] = {}
        for host, peer in _pairs(connection_partners(list(interfaces))):
            of_peer = target_addresses(interfaces[host], interfaces[peer], ())
            of_host = target_addresses(interfaces[peer], interfaces[host], ())
            if {*of_peer, *of_host} <= {visits[entry].address for entry in (host, peer) if entry in visits}:
                continue
            for caller, called, addresses in ((host, peer, of_peer), (peer, host, of_host)):
                peers.setdefault(caller, {}).update(dict.fromkeys(addresses, called))
                own_addresses.setdefault(called, set()).update(addresses)
        port = FIRST_PORT + int.from_bytes(os.urandom(4), "big") % PORTS
        keys = tasks_with_keys(peers)
        return {
            host: {
                **keys[host],
                "port": port,
                "own": sorted(own_addresses.get(host, ())),
                "peers": list(called.items()),
                "seconds": SECONDS,
            }
            for host, called in peers.items()
        }

    @classmethod
    def verified(cls, claims: dict[str, Any], host: str, tasks: Mapping[str, Any]) -> dict[str, Any]:
        claimed = claims.get("proven")
        names = {
            address: proven_host(answer, b"address", host, tasks)
            for address, answer in (claimed.items() if isinstance(claimed, dict) else ())
        }
        return {**claims, "proven": {address: name for address, name in names.items() if name}}

    @classmethod
    def read(cls, answer: ProbeAnswer) -> AddressProofs:
        try:
            value = msgspec.convert(answer.json(), cls)
        except msgspec.ValidationError as error:
            raise Unreadable(filled("no answers of other hosts: {0}", error)) from None
        if len(value.proven) > MAX_NEIGHBOURS:
            raise Unreadable(filled("it has answers of {0} addresses", len(value.proven)))
        for address in value.proven:
            plain_address(address)
        return value


def _pairs(partners: Mapping[str, Iterable[str]]) -> list[tuple[str, str]]:
    pairs: dict[frozenset[str], tuple[str, str]] = {}
    for host, others in partners.items():
        for other in others:
            pairs.setdefault(frozenset((host, other)), (host, other))
    return list(pairs.values())


def addresses_proven_elsewhere(proofs: Mapping[str, AddressProofs]) -> dict[str, set[str]]:
    """By host: the addresses at which it alone has answered another host."""
    answers = ((witness, *answer) for witness, fact in proofs.items() for answer in fact.proven.items())
    holders = sets_by_key((address, host) for witness, address, host in answers if host != witness)
    return sets_by_key((next(iter(hosts)), address) for address, hosts in holders.items() if len(hosts) == 1)
