"""Which host answers at a MASTER_ADDR that none of them has."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from hypothesis import given

from doctor.engine.fact import PerHost
from doctor.facts.address_proofs import proven_host
from doctor.facts.interfaces import Interfaces
from doctor.facts.master_trial import MasterTrial, try_master
from doctor.facts.names import HostNames, resolve_names
from doctor.remote.runtime.keyed_hash import keyed_hash
from tests.checks.network import interfaces, named
from tests.facts.answers import answered
from tests.facts.garbage import JSON, as_answer, runs_on_python_3_6, value_of

VIRTUAL = "10.96.7.7"
TASKS = {
    host: {"host": host, "key": "ab" * 32, "own_key": f"{host}{host}" * 32, "nonce": f"{host}1" * 16} for host in "ab"
}


def planned(**masters: str) -> dict[str, Any]:
    """The tasks of hosts a, b, ... at 10.0.0.1, ..., of which each has an address for the name ``vip``."""
    names = {host: named(host, f"10.0.0.{at}", vip=masters[host]) for at, host in enumerate(masters, 1)}
    fleet = {host: interfaces(eth0=f"10.0.0.{at}/24") for at, host in enumerate(masters, 1)}
    return MasterTrial.plan({Interfaces: PerHost(fleet), HostNames: PerHost(names)})


def test_an_address_of_the_fleet_is_not_tried() -> None:
    assert planned(a="10.0.0.1", b="10.0.0.1") == {}
    assert planned(a="127.0.0.1", b="10.0.0.1") == {}
    assert planned(a="10.0.0.1") == {}
    assert planned(a=VIRTUAL)["a"]["is_alone"]


def test_all_listen_and_those_call_to_whom_it_is_an_address_of_none() -> None:
    plan = planned(a="127.0.0.1", b=VIRTUAL, c=VIRTUAL)
    assert {host: task["addresses"] for host, task in plan.items()} == {
        "a": {},
        "b": {"vip": [VIRTUAL]},
        "c": {"vip": [VIRTUAL]},
    }
    assert {str(task["callers"]) for task in plan.values()} == {"{'vip': 2}"}
    assert len({task["key"] for task in plan.values()}) == 1
    assert len({task[name] for task in plan.values() for name in ("own_key", "nonce")}) == 6
    assert planned(a=VIRTUAL, b=VIRTUAL)["a"]["key"] != plan["a"]["key"]


def test_a_literal_address_is_among_the_names() -> None:
    names = resolve_names({"hosts": [], "master_addr": VIRTUAL})["names"]
    assert names[VIRTUAL] == {"addresses": [VIRTUAL]}


def free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


def tried(port: int, seconds: float = 4.0, **parameters: Any) -> dict[str, Any]:
    """What the record keeps of a host's trial; the keys of the hosts a and b are those of `TASKS`."""
    host = parameters.get("host", "a")
    task = {"callers": {"vip": 1}, "seconds": seconds, "addresses": {}, "is_alone": False, **TASKS[host]}
    arguments = {"asked": "MasterTrial", "MasterTrial": {**task, **parameters}, "master_addr": "vip", "ports": [port]}
    return MasterTrial.verified(try_master(arguments), host, TASKS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keys", "reached"),
    [
        ({}, "a"),
        ({"key": "cd" * 32}, ""),  # a stranger
        ({"own_key": "cc" * 32}, ""),  # a host of the run in the name of another one
    ],
)
def test_who_has_the_keys_is_reached(keys: dict[str, str], reached: str) -> None:
    port = free_port()
    listener = threading.Thread(target=lambda: tried(port, **keys))
    listener.start()
    while True:  # until it listens
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
    answer = tried(port, 1.5, host="b", addresses={"vip": ["127.0.0.1"]})
    listener.join()
    assert (answer["reached"], answer["accepted"]) == (reached, True)


def test_the_own_host_may_be_the_one_that_is_reached() -> None:
    """As where rank 0's host translates the address to its own."""
    assert tried(free_port(), addresses={"vip": ["127.0.0.1"]})["reached"] == "a"


def test_where_nothing_answers_nobody_is_reached() -> None:
    answer = tried(free_port(), 0.5, addresses={"vip": ["192.0.2.1"]})
    assert (answer["reached"], answer["accepted"], answer["listened"]) == ("", False, True)


def test_one_host_ends_where_it_is_refused() -> None:
    with socket.socket() as holder, socket.socket(socket.AF_INET6) as other:
        holder.bind(("0.0.0.0", 0))  # and listens not
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        other.bind(("::", holder.getsockname()[1]))
        begin = time.monotonic()
        answer = tried(holder.getsockname()[1], 30.0, addresses={"vip": ["127.0.0.1"]}, is_alone=True)
    assert (answer["reached"], answer["accepted"], answer["refused"]) == ("", False, True)
    assert time.monotonic() - begin < 20


def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as holder, socket.socket(socket.AF_INET6) as other:
        holder.bind(("0.0.0.0", 0))
        holder.listen()
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        other.bind(("::", holder.getsockname()[1]))
        other.listen()
        answer = tried(holder.getsockname()[1], 0.5, addresses={"vip": ["127.0.0.1"]})
    assert (answer["reached"], answer["accepted"], answer["listened"]) == ("", True, False)


def test_a_flood_of_open_connections_does_not_hide_who_answers() -> None:
    """The host has fewer open files than there are connections: an honest host is still answered."""
    port, code = free_port(), "import sys; from tests.facts.test_master_trial import tried; tried(int(sys.argv[1]))"
    limited = ["bash", "-c", 'ulimit -n 320; exec "$0" -c "$1" "$2"', sys.executable, code, str(port)]
    with contextlib.ExitStack() as kept, subprocess.Popen(limited) as listener:
        end = time.monotonic() + 20
        opened = 0
        while opened < 400 and time.monotonic() < end:
            with contextlib.suppress(OSError):
                kept.enter_context(socket.create_connection(("127.0.0.1", port), 1))
                opened += 1
        answer = tried(port, 2.0, host="b", addresses={"vip": ["127.0.0.1"]})
    assert (answer["reached"], listener.returncode) == ("a", 0)


def test_another_master_costs_nothing() -> None:
    assert tried(free_port(), callers={"others": 1})["needed"] is False


def test_the_answer_is_read() -> None:
    fact = answered(MasterTrial, {"reached": "a", "accepted": True, "listened": False, "longest": 1.2})
    assert (fact.reached, fact.listened, fact.is_busy, fact.needed) == ("a", False, True, True)
    assert not answered(MasterTrial, {"needed": False}).needed


def test_what_a_caller_reports_is_verified() -> None:
    own, nonce = bytes.fromhex(TASKS["a"]["own_key"]), bytes.fromhex(TASKS["b"]["nonce"])
    proof = keyed_hash(own, b"master", nonce, b"a")[:16].hex()  # type: ignore[no-untyped-call]
    assert proven_host(["a", proof], b"master", "b", TASKS) == "a"
    assert proven_host(["b", proof], b"master", "b", TASKS) == ""
    assert proven_host(["a", proof], b"master", "a", TASKS) == ""  # of a call of another host
    assert proven_host(["a", proof], b"address", "b", TASKS) == ""  # of another trial
    for said in ("a", "", None, ["a", proof[:8]], ["a", "z" * 32], ["c", proof], ["a", ""], ["a", proof, ""]):
        assert proven_host(said, b"master", "b", TASKS) == ""


@given(JSON)
def test_a_report_that_makes_no_sense_proves_nothing(value: Any) -> None:
    assert MasterTrial.verified({"reached": value}, "b", TASKS) == {"reached": ""}


@given(JSON)
def test_an_answer_that_makes_no_sense_is_unreadable(value: Any) -> None:
    value_of(MasterTrial, as_answer(value))


def test_the_function_runs_on_old_python() -> None:
    assert runs_on_python_3_6(try_master)
