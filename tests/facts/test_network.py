"""The host's own addresses, from the kernel."""

from __future__ import annotations

import pytest
from hypothesis import given

from doctor.engine.fact import Unreadable
from doctor.facts.network import HostAddresses, InterfaceAddress, list_addresses
from tests.facts.answers import answered
from tests.facts.garbage import JSON, runs_on_python_3_6

RAW_ADDRESSES = [["lo", "127.0.0.1", 8], ["eth0", "10.0.0.1", 24], ["eth0", "fe80::1", 64], ["eth0", "fd00::1", 64]]


def test_addresses_with_their_interfaces() -> None:
    host_addresses = answered(HostAddresses, RAW_ADDRESSES)
    assert host_addresses.interfaces[1] == InterfaceAddress("eth0", "10.0.0.1", 24)
    assert host_addresses.addresses == ("127.0.0.1", "10.0.0.1", "fe80::1", "fd00::1")


def test_the_facts_of_this_machine_are_read() -> None:
    host_addresses = answered(HostAddresses, list_addresses({}))
    assert InterfaceAddress("lo", "127.0.0.1", 8) in host_addresses.interfaces


@pytest.mark.parametrize("observed", [[], [["lo", "localhost", 8]], [["lo", "127.0.0.1", 99]]])
def test_malformed_output_is_unreadable(observed: list[list[object]]) -> None:
    assert isinstance(answered(HostAddresses, observed), Unreadable)


@given(JSON)
def test_anything_else(value: object) -> None:
    assert isinstance(answered(HostAddresses, value), Unreadable)


def test_the_source_that_is_sent() -> None:
    assert runs_on_python_3_6(list_addresses)
