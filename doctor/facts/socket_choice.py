"""The address that each communication library takes on a host, by its own rule, from the job's variables. Pure.

The rules are those of the libraries' sources: c10d ``init.cpp`` and ``ProcessGroupGloo.cpp`` with Gloo's
``transport/tcp/device.cc``; NCCL ``misc/socket.cc`` and ``os/linux.cc``; HCCL ``sal.cc``; MindSpore
``abstract_node.cc`` (MS_WORKER_IP).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from doctor.engine.texts import filled
from doctor.facts.interfaces import Interfaces, LinkAddress, usable_names
from doctor.facts.names import HostNames, is_address, is_loopback
from doctor.job.variables import (
    GLOO_INTERFACE,
    HCCL_ADDRESS,
    HCCL_INTERFACE,
    MINDSPORE_ADDRESS,
    NCCL_INTERFACE,
    OPENMPI_INTERFACES,
    TENSORPIPE_INTERFACE,
)

MAX_NCCL_INTERFACES = 16
_SETTINGS = {
    "Gloo": GLOO_INTERFACE,
    "NCCL": NCCL_INTERFACE,
    "HCCL": HCCL_INTERFACE,
    "TensorPipe": TENSORPIPE_INTERFACE,
    "MindSpore": MINDSPORE_ADDRESS,
    "Open MPI": OPENMPI_INTERFACES[0],
}


class SocketChoice(msgspec.Struct, frozen=True):
    """What one library takes on one host: an address, or the problem for which it takes none."""

    library: str
    variable: str = ""
    """The variable that decides; empty where the library's own rule does."""
    value: str = ""
    address: str = ""
    interface: str = ""
    problem: str = ""
    """Why the library ends on this host, in words; empty where it takes an address."""
    expected: str = ""

    @property
    def is_of_rpc(self) -> bool:
        """Torch's RPC alone takes it, which a job of collectives does not start."""
        return self.library == "TensorPipe"

    @property
    def source(self) -> str:
        """``GLOO_SOCKET_IFNAME=eth0``, or the rule in words."""
        if self.variable:
            return f"{self.variable}={self.value}"
        return "the host's own name" if self.library == "Gloo" else filled("{0}'s default", self.library)

    @property
    def setting(self) -> str:
        """The variable with which the library's interface is set."""
        return _SETTINGS[self.library]

    @property
    def is_loopback(self) -> bool:
        """The address leads every host to itself."""
        return bool(self.address) and is_loopback(self.address)


def gloo_choices(environ: Mapping[str, str], interfaces: Interfaces, names: HostNames | None) -> list[SocketChoice]:
    """Gloo's devices: one for each name in its variable, else the address of the host's own name.

    Empty where the host's own name could not be looked up.
    """
    value = environ.get(GLOO_INTERFACE, "")
    if len(value) > 1:
        return [exact_choice("Gloo", GLOO_INTERFACE, value, name, interfaces) for name in _gloo_names(value)]
    address = names.bindable_address if names else ""
    if not address:
        return []
    holder = interfaces.holder(address)
    return [SocketChoice("Gloo", address=address, interface=holder.interface if holder else "lo")]


def _gloo_names(value: str) -> list[str]:
    names = value.split(",")
    return names if names[-1] else names[:-1]


def absent_names(variable: str, value: str, links: Collection[str]) -> list[str]:
    """The names in a value of Gloo's, NCCL's or HCCL's variable that a host lacks, so that the library ends there.

    ``links``: the host's interfaces. A value that excludes interfaces names none.

    >>> [absent_names(name, "=eth0,eth9", ["eth0"]) for name in (GLOO_INTERFACE, NCCL_INTERFACE)]
    [['=eth0', 'eth9'], []]
    >>> absent_names(NCCL_INTERFACE, "ib,eth9", ["eth0"]), absent_names(GLOO_INTERFACE, "eth0:1", ["eth0"])
    (['ib', 'eth9'], [])
    """
    if len(value) < 2:
        return []
    if variable == GLOO_INTERFACE:  # an address may have a label of its own behind the name
        return [name for name in _gloo_names(value) if name.partition(":")[0] not in links]
    is_exact = variable == HCCL_INTERFACE
    if value.startswith("^") or any(_is_taken(value, link, exact_prefix=is_exact) for link in links):
        return []
    return value.removeprefix("=").split(",")


def tensorpipe_choice(environ: Mapping[str, str], interfaces: Interfaces) -> list[SocketChoice]:
    """The interface of torch's RPC, where its variable is set."""
    value = environ.get(TENSORPIPE_INTERFACE, "")
    return [exact_choice("TensorPipe", TENSORPIPE_INTERFACE, value, value, interfaces)] if value else []


def exact_choice(library: str, variable: str, value: str, name: str, interfaces: Interfaces) -> SocketChoice:
    """A library that compares whole names takes the first address of that name."""
    entry = next((address for address in interfaces.addresses if address.label == name), None)
    if entry:
        return SocketChoice(library, variable, value, entry.address, entry.interface)
    problem, expected = _explain_name(name, interfaces)
    return SocketChoice(library, variable, value, problem=problem, expected=expected)


def _explain_name(name: str, interfaces: Interfaces) -> tuple[str, str]:
    expected = usable_names(interfaces)
    link = interfaces.link(name)
    if link:
        state = "" if link.is_up else ", and is down"
        return filled("interface {0} has no address{1}", name, state), expected
    if not name:
        return "there is an empty name in the list", expected
    if is_address(name):
        return "it is an address, not an interface name", expected
    if name[0] in "^=":
        return filled("{0} is NCCL's and HCCL's notation; this library compares whole names", name[0]), expected
    if name != name.strip():
        return filled("there is a space in {0}", f"{name!r}"), expected
    return filled("there is no interface {0}", name), expected


def nccl_choice(environ: Mapping[str, str], interfaces: Interfaces) -> SocketChoice:
    """NCCL's first interface: prefixes, ``=`` for whole names, ``^`` for all others; else ib, others, docker, lo."""
    value, family = environ.get(NCCL_INTERFACE, ""), _nccl_family(environ)
    usable = _usable_by_nccl(interfaces, family)
    if len(value) > 1:
        entry = _first_match(value, usable, exact_prefix=False)
        if entry:
            return SocketChoice("NCCL", NCCL_INTERFACE, value, entry.address, entry.interface)
        return _no_match("NCCL", NCCL_INTERFACE, value, interfaces, _family_words(family))
    for rule in ("ib", "^docker,lo,virbr", "docker", "lo", "virbr"):
        entry = _first_match(rule, usable, exact_prefix=False)
        if entry:
            return SocketChoice("NCCL", address=entry.address, interface=entry.interface)
    problem = filled("no interface is running{0}", _family_words(family))
    return SocketChoice("NCCL", problem=problem, expected="an interface with a carrier and an address")


def _nccl_family(environ: Mapping[str, str]) -> bool | None:
    """Whether it is IPv6; None: either."""
    return {"AF_INET": False, "AF_INET6": True}.get(environ.get("NCCL_SOCKET_FAMILY", ""))


def _usable_by_nccl(interfaces: Interfaces, family: bool | None) -> list[LinkAddress]:
    usable = [entry for entry in _running(interfaces) if family in (None, entry.is_ipv6)]
    return [entry for entry in usable if not (entry.is_ipv6 and is_loopback(entry.address))]


def nccl_choices(environ: Mapping[str, str], interfaces: Interfaces) -> list[SocketChoice]:
    """All interfaces over which NCCL's sockets send: those that its variable takes, up to 16, each once; else none.

    The first is that of `nccl_choice`. Source: ``ncclFindInterfaces`` and ``findInterfaces`` in NCCL's misc/socket.cc.
    """
    value = environ.get(NCCL_INTERFACE, "")
    by_interface: dict[str, LinkAddress] = {}
    for entry in _usable_by_nccl(interfaces, _nccl_family(environ)) if len(value) > 1 else ():
        if _is_taken(value, entry.label, exact_prefix=False):
            by_interface.setdefault(entry.interface, entry)
    entries = list(by_interface.values())[:MAX_NCCL_INTERFACES]
    return [SocketChoice("NCCL", NCCL_INTERFACE, value, entry.address, entry.interface) for entry in entries]


def interface_state(name: str, interfaces: Interfaces) -> str:
    """Why an interface takes no connections, in words; empty where it may take some, or there is none of that name."""
    link = interfaces.link(name)
    if link is None:
        return ""
    if not link.is_up:
        return "is down"
    if not link.is_running:
        return "has no carrier"
    return "" if any(entry.interface == name for entry in interfaces.addresses) else "has no address"


def hccl_choice(environ: Mapping[str, str], interfaces: Interfaces) -> SocketChoice:
    """HCCL's address: HCCL_IF_IP, else the first interface that matches, else the first by name but docker and lo."""
    address, value = environ.get(HCCL_ADDRESS, ""), environ.get(HCCL_INTERFACE, "")
    if address:
        return _own_address("HCCL", HCCL_ADDRESS, address, interfaces)
    ipv6_first = environ.get("HCCL_SOCKET_FAMILY") == "AF_INET6"
    up = [entry for entry in interfaces.addresses if (link := interfaces.link(entry.interface)) and link.is_up]
    for ipv6 in (ipv6_first, not ipv6_first):
        usable = [entry for entry in up if entry.is_ipv6 == ipv6]
        if value:
            match = _first_match(value, usable, exact_prefix=True)
        else:
            match = min(usable, key=lambda entry: (_hccl_class(entry.interface), entry.label), default=None)
        if match:
            return SocketChoice("HCCL", HCCL_INTERFACE if value else "", value, match.address, match.interface)
    if value:
        return _no_match("HCCL", HCCL_INTERFACE, value, interfaces, "")
    return SocketChoice("HCCL", problem="no interface has an address", expected="an interface with an address")


def mindspore_choice(environ: Mapping[str, str], interfaces: Interfaces) -> list[SocketChoice]:
    """The address by which a process of MindSpore's dynamic cluster meets the others, where its variable is set."""
    address = environ.get(MINDSPORE_ADDRESS, "")
    return [_own_address("MindSpore", MINDSPORE_ADDRESS, address, interfaces)] if address else []


def _own_address(library: str, variable: str, address: str, interfaces: Interfaces) -> SocketChoice:
    """A library that binds to the address of a variable."""
    entry = interfaces.holder(address)
    if entry:
        return SocketChoice(library, variable, address, entry.address, entry.interface)
    problem, expected = filled("no interface has the address {0}", address), usable_names(interfaces)
    return SocketChoice(library, variable, address, problem=problem, expected=expected)


def _hccl_class(name: str) -> int:
    return 2 if name.startswith("lo") else 1 if name.startswith("docker") else 0


def _running(interfaces: Interfaces) -> list[LinkAddress]:
    return [entry for entry in interfaces.addresses if (link := interfaces.link(entry.interface)) and link.is_running]


def _first_match(value: str, usable: Iterable[LinkAddress], *, exact_prefix: bool) -> LinkAddress | None:
    return next((entry for entry in usable if _is_taken(value, entry.label, exact_prefix=exact_prefix)), None)


def _is_taken(value: str, name: str, *, exact_prefix: bool) -> bool:
    """``exact_prefix``: HCCL compares ``=NAME`` no further than the interface's own name is long."""
    rest = value.removeprefix("^")
    entries = [word for part in rest.removeprefix("=").split(",") if (word := part.partition(":")[0])]
    if rest.startswith("="):
        matches = any(word == name or (exact_prefix and word.startswith(name)) for word in entries)
    else:
        matches = any(name.startswith(word) for word in entries) or not entries
    return matches != value.startswith("^")


def _no_match(library: str, variable: str, value: str, interfaces: Interfaces, family: str) -> SocketChoice:
    entries = value.lstrip("^=").split(",")
    problem = filled("no interface that is up matches it{0}", family)
    if any(map(is_address, entries)):
        problem = "it is an address, not an interface name"
    elif value.startswith("^"):
        problem = filled("it excludes every interface that is up{0}", family)
    else:
        links = [link for link in interfaces.links if any(link.name.startswith(word) for word in entries)]
        if links:
            state = "is down" if not links[0].is_up else "has no carrier" if not links[0].is_running else ""
            problem = filled("interface {0} {1}", links[0].name, state or filled("has no address{0}", family))
    return SocketChoice(library, variable, value, problem=problem, expected=usable_names(interfaces))


def _family_words(family: bool | None) -> str:
    return "" if family is None else filled(" with an {0} address", "IPv6" if family else "IPv4")
