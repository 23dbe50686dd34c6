"""Reserved ports and listening programs in a line."""

from __future__ import annotations

from doctor.facts.names import HostNames, NameResolution
from doctor.facts.network import HostAddresses, InterfaceAddress
from doctor.facts.ports import Listeners, ListeningSocket, ReservedPorts, parse_ports
from doctor.job import PortRange


def reserved(text: str, first: int = 32768, last: int = 60999) -> ReservedPorts:
    return ReservedPorts(reserved=parse_ports(text), ephemeral=PortRange(first, last))


def taken(*ports: int, pid: int = 77, command: str = "python train.py", listening: bool = True) -> Listeners:
    return Listeners(
        sockets=tuple(ListeningSocket(port, "0.0.0.0", listening, "ann", pid, command if pid else "") for port in ports)
    )


def known_as(name: str, address: str) -> tuple[HostNames, HostAddresses]:
    """A host with this name and address, which it can look up."""
    names = HostNames(own=name, names={name: NameResolution((address,))}, fleet=2)
    return names, HostAddresses(
        interfaces=(InterfaceAddress("lo", "127.0.0.1", 8), InterfaceAddress("eth0", address, 24))
    )
