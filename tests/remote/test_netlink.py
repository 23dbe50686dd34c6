"""What is asked of the kernel over netlink: without a byte that it does not know, and so without a line in its log."""

from __future__ import annotations

import _socket
from typing import Any

import pytest

from doctor.facts.hardware_addresses import find_hardware_addresses
from doctor.facts.interfaces import list_interfaces
from doctor.remote.runtime.netlink import netlink_messages

SOL_NETLINK, NETLINK_GET_STRICT_CHK = 270, 12


class StrictSocket(_socket.socket):
    """Of it the kernel refuses a request with bytes that belong to no attribute (since Linux 4.20), as it says in its
    log of others: "netlink: 4 bytes leftover after parsing attributes in process `python3'"."""

    def __init__(self, family: int, *options: int) -> None:
        super().__init__(family, *options)
        if family == _socket.AF_NETLINK:
            self.setsockopt(SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1)


@pytest.fixture
def strict_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_socket, "socket", StrictSocket)


@pytest.mark.usefixtures("strict_kernel")
def test_links_addresses_routes_and_rules_are_asked_for_without_a_byte_too_many() -> None:
    assert list_interfaces({})["links"]  # type: ignore[typeddict-item]


@pytest.mark.usefixtures("strict_kernel")
def test_neighbours_are_asked_for_without_a_byte_too_many() -> None:
    arguments: Any = {"asked": "here", "here": {"targets": [], "seconds": 0.0}}
    assert find_hardware_addresses(arguments)["neighbours"] == {}


@pytest.mark.usefixtures("strict_kernel")
def test_the_strict_kernel_refuses_four_bytes_too_many() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        list(netlink_messages(0, 30, bytes(16)))
