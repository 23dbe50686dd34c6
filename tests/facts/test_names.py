"""Host names and what they mean on a host."""

from __future__ import annotations

import _socket
import socket
import threading
import time
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import pytest
from hypothesis import given

from doctor.engine.fact import Unreadable
from doctor.facts.names import HostNames, NameResolution, resolve_names
from tests.facts.answers import answered
from tests.facts.garbage import JSON, runs_on_python_3_6

HOSTS = {"own": "10.0.0.1", "b": "10.0.0.2"}


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Answers from HOSTS; the names that were looked up."""
    requested: list[str] = []

    def getaddrinfo(query: bytes, *rest: object) -> list[Any]:
        name = query.decode()
        requested.append(name)
        if name not in HOSTS:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (HOSTS[name], 0))]

    monkeypatch.setattr(_socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(_socket, "gethostname", lambda: "own")
    return requested


@pytest.fixture
def dead_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A resolver that never answers, and a clock on which the time for it is over at once."""
    released = threading.Event()
    clock = chain([0.0, 0.0, 7.999], repeat(1000.0))
    monkeypatch.setattr(_socket, "getaddrinfo", lambda *_: released.wait() and [])
    monkeypatch.setattr(_socket, "gethostname", lambda: "own")
    monkeypatch.setattr(time, "time", lambda: next(clock))
    yield
    released.set()


def test_own_name_and_the_fleets(resolver: list[str]) -> None:
    host_names = answered(HostNames, resolve_names({"hosts": ["b", "lost", "10.0.0.9", "fd00::9", "b"]}))
    assert host_names == HostNames(
        own="own",
        names={
            "own": NameResolution(("10.0.0.1",), bindable=""),
            "b": NameResolution(("10.0.0.2",)),
            "lost": NameResolution(error="Name or service not known"),
        },
        fleet=2,
        machine=host_names.machine,
    )
    assert len(host_names.machine) == 16
    assert host_names.machine == answered(HostNames, resolve_names({"hosts": []})).machine


def test_an_address_is_never_looked_up(resolver: list[str]) -> None:
    resolve_names({"hosts": ["10.0.0.9", "fd00::9", "fe80::1%eth0"], "master_addr": "10.0.0.9"})
    assert resolver == ["own"]


def test_the_master_is_looked_up_too(resolver: list[str]) -> None:
    assert "m" in answered(HostNames, resolve_names({"hosts": ["b"], "master_addr": "m"})).names


def test_of_a_large_fleet_a_part(resolver: list[str]) -> None:
    host_names = answered(HostNames, resolve_names({"hosts": [f"n{number}" for number in range(1000)]}))
    assert (len(resolver), host_names.fleet) == (129, 1000)


@pytest.mark.usefixtures("dead_server")
def test_a_dead_name_server_costs_a_reason_and_no_more() -> None:
    host_names = answered(HostNames, resolve_names({"hosts": [f"n{number}" for number in range(40)]}))
    assert len(host_names.names) == 41
    assert {meaning.error for meaning in host_names.names.values()} == {"no answer in 8 s"}


class TestIsMaster:
    NAMES = HostNames(
        own="n1.example",
        names={
            "n1.example": NameResolution(("10.0.0.1",)),
            "m": NameResolution(("10.0.0.1",)),
            "l6": NameResolution(("::1",)),
        },
        fleet=2,
    )
    ADDRESSES = ("127.0.0.1", "::1", "10.0.0.1", "fd00::1")

    @pytest.mark.parametrize("master", ["n1", "N1.other", "m", "10.0.0.1", "fd00:0:0::1"])
    def test_by_name_by_address_and_by_look_up(self, master: str) -> None:
        assert self.NAMES.is_master(master, self.ADDRESSES)

    @pytest.mark.parametrize("master", ["n2", "10.0.0.2", "127.0.0.1", "10", "::1", "l6"])
    def test_another(self, master: str) -> None:
        assert not self.NAMES.is_master(master, self.ADDRESSES)


@pytest.mark.parametrize(
    "observed",
    [
        {"own": "", "names": {"": {"addresses": ["10.0.0.1"]}}, "fleet": 0},
        {"own": "a", "names": {}, "fleet": 0},
        {"own": "a", "names": {"a": {}}, "fleet": 0},
        {"own": "a", "names": {"a": {"addresses": ["here"]}}, "fleet": 0},
    ],
)
def test_malformed_output_is_unreadable(observed: object) -> None:
    assert isinstance(answered(HostNames, observed), Unreadable)


@given(JSON)
def test_anything_else(value: object) -> None:
    assert isinstance(answered(HostNames, value), Unreadable)


def test_the_source_that_is_sent() -> None:
    assert runs_on_python_3_6(resolve_names)


def test_the_address_that_gloo_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first in the resolver's order that is the host's own; else 127.0.0.1, as PyTorch does."""

    def resolves_to(*addresses: str) -> str:
        answers = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]
        monkeypatch.setattr(_socket, "getaddrinfo", lambda *_: answers)
        host_names = answered(HostNames, resolve_names({}))
        assert isinstance(host_names, HostNames)
        return host_names.bindable_address

    assert resolves_to("203.0.113.9", "127.0.1.1") == "127.0.1.1"
    assert resolves_to("127.0.0.2", "127.0.0.1") == "127.0.0.2"
    assert resolves_to("203.0.113.9") == "127.0.0.1"


def test_the_address_that_gloo_takes_without_an_answer() -> None:
    lost = HostNames(own="n", names={"n": NameResolution(error="Name or service not known")}, fleet=1)
    assert lost.bindable_address == "127.0.0.1"
    late = HostNames(own="n", names={"n": NameResolution(error="no answer in 8 s")}, fleet=1)
    assert late.bindable_address == ""
