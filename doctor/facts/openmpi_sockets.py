"""Between which addresses Open MPI's own messages go over TCP, by its own rules. Pure.

Sources: Open MPI 4.1, ``opal/mca/btl/tcp`` (``btl_tcp_component.c``: which interfaces; ``btl_tcp_proc.c``: which of
them is paired with which of the peer's, and which connection is accepted; ``btl_tcp_endpoint.c``: the address that a
connection starts from) and ``opal/mca/if``; Open MPI 5.0, the same files and ``opal/mca/reachable/weighted``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

import msgspec

from doctor.engine.texts import filled
from doctor.facts.interfaces import Interfaces, LinkAddress, usable_names
from doctor.facts.names import is_loopback
from doctor.facts.socket_choice import SocketChoice, exact_choice
from doctor.job.variables import OPENMPI_EXCLUDED, OPENMPI_INTERFACES, OPENMPI_TRANSPORTS

DEFAULT_EXCLUDED = "127.0.0.1/8,sppp"
_INCLUDED, _DAEMONS = OPENMPI_INTERFACES
_PASSED_OVER = ("vir",)
"""How the names of interfaces begin that its daemons never take (``oob_tcp_component.c``)."""
_PRIVATE = [ipaddress.IPv4Network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16")]
"""The default of ``opal_net_private_ipv4``. Loopback is public to it."""
_MOST_EXACT = 8
"""Up to so many interfaces of a host, Open MPI 4.1 tries every assignment; with more, it takes the best pair first."""


class Build(msgspec.Struct, frozen=True):
    """What decides of Open MPI's rules, and is not known of a host."""

    release: int
    """4 for 4.1, and 5."""
    has_ipv6: bool
    """Built with ``--enable-ipv6``, as Debian's package is; the default is without."""

    @property
    def label(self) -> str:
        release = "4.1" if self.release == 4 else "5"
        return (
            filled("Open MPI {0} with IPv6", release) if self.has_ipv6 else filled("Open MPI {0} without IPv6", release)
        )


BUILDS = tuple(Build(release, has_ipv6) for release in (4, 5) for has_ipv6 in (False, True))


class TcpModule(msgspec.Struct, frozen=True):
    """An interface over which Open MPI sends."""

    interface: str
    entries: tuple[LinkAddress, ...]
    """Its addresses, in the order in which Open MPI lists them: IPv6 first."""


class TcpModules(msgspec.Struct, frozen=True):
    """All of one host."""

    created: tuple[TcpModule, ...]
    """In the order in which they are made and announced: that of the list, where one is given."""
    listed: tuple[TcpModule, ...]
    """In the kernel's order."""


class Connection(msgspec.Struct, frozen=True):
    """From which address to which one a module connects."""

    module: TcpModule
    source: str
    """Empty where the kernel chooses it."""
    peer: LinkAddress
    problem: str = ""
    """Why it cannot even start."""


def openmpi_choices(environ: Mapping[str, str], interfaces: Interfaces) -> list[SocketChoice]:
    """What the variables with Open MPI's interfaces lead to: a problem that ends it, or the one address that is left.

    Which of several interfaces takes part is decided by `dead_connections`. The daemons go on without interfaces of
    their list that do not exist, as long as one is left; a daemon without one ends, on any host.
    """
    choices = []
    for variable in OPENMPI_INTERFACES:
        value = environ.get(variable, "")
        listed = [name for name in value.split(",") if name]
        named = [name for name in listed if "/" not in name]
        passed_over = _PASSED_OVER if variable == _DAEMONS else ()
        absent = [name for name in named if name.startswith(passed_over) or not _addresses(interfaces, name)]
        is_dead = absent if variable == _INCLUDED else absent == listed
        if value and is_dead:
            name = absent[0]
            problem = (
                filled("interface {0} has no address", name)
                if interfaces.link(name)
                else filled("there is no interface {0}", name)
            )
            if name.startswith(passed_over) and interfaces.link(name):
                problem = filled("Open MPI's daemons pass over {0}, as all interfaces whose names begin with vir", name)
            expected = usable_names(interfaces)
            choices.append(SocketChoice("Open MPI", variable, value, problem=problem, expected=expected))
        elif len(named) == 1 and named == listed and (variable == _DAEMONS or _is_plain(interfaces, value)):
            choices.append(exact_choice("Open MPI", variable, value, value, interfaces))
    excluded = environ.get(OPENMPI_EXCLUDED, DEFAULT_EXCLUDED)
    if environ.get(_INCLUDED) and excluded != DEFAULT_EXCLUDED:
        problem = filled("{0} is set as well, and Open MPI takes one of the two alone", OPENMPI_EXCLUDED)
        choices = [choice for choice in choices if choice.variable != _INCLUDED]
        choices.append(SocketChoice("Open MPI", _INCLUDED, environ[_INCLUDED], problem=problem, expected="one of them"))
    return choices


def _addresses(interfaces: Interfaces, name: str) -> list[LinkAddress]:
    """What Open MPI lists of an interface: nothing of one that is down."""
    return [
        entry
        for entry in interfaces.addresses
        if entry.label == name and (link := interfaces.link(entry.interface)) and link.is_up and not entry.is_link_local
    ]


def _is_plain(interfaces: Interfaces, name: str) -> bool:
    """Every build takes the same address of it."""
    return len({entry.is_ipv6 for entry in _addresses(interfaces, name)}) == 1


def tcp_modules(environ: Mapping[str, str], interfaces: Interfaces, build: Build) -> TcpModules | None:
    """The interfaces of one host over which Open MPI sends; None where ``btl`` or ``pml`` leaves TCP out."""
    transports, engine = (environ.get(name, "") for name in OPENMPI_TRANSPORTS)
    methods = transports.lstrip("^").split(",")
    without_tcp = transports and ("tcp" in methods) == transports.startswith("^")
    if without_tcp or engine not in ("", "ob1"):
        return None
    listed = _listed(interfaces, build)
    included = [name for name in _resolved(environ.get(_INCLUDED, ""), listed) if name in listed]
    if included:
        created = [listed[name] for name in dict.fromkeys(included)]
        return TcpModules(tuple(created), tuple(module for module in listed.values() if module in created))
    excluded = _resolved(environ.get(OPENMPI_EXCLUDED, DEFAULT_EXCLUDED), listed)
    remaining = tuple(module for name, module in listed.items() if not name.startswith(tuple(excluded)))
    return TcpModules(remaining, remaining)


def _listed(interfaces: Interfaces, build: Build) -> dict[str, TcpModule]:
    entries: dict[str, list[LinkAddress]] = {}
    for entry in sorted(interfaces.addresses, key=lambda entry: not entry.is_ipv6):
        link = interfaces.link(entry.interface)
        is_global = not (entry.is_link_local or is_loopback(entry.address))
        if link and link.is_up and (not entry.is_ipv6 or (build.has_ipv6 and is_global)):
            entries.setdefault(entry.interface, []).append(entry)
    most = 1 if build.release == 5 else None
    return {name: TcpModule(name, tuple(rest[:most])) for name, rest in entries.items()}


def _resolved(value: str, listed: Mapping[str, TcpModule]) -> list[str]:
    """Names of a list; of a network, the names of the interfaces with an IPv4 address in it."""
    names: list[str] = []
    for word in filter(None, value.split(",")):
        if word[0].isalpha():
            names.append(word)
            continue
        try:
            network = ipaddress.IPv4Network(word, strict=False)
        except ValueError:  # Open MPI warns of it, and goes on
            continue
        names += [name for name, module in listed.items() if any(_is_in(entry, network) for entry in module.entries)]
    return names


def _is_in(entry: LinkAddress, network: ipaddress.IPv4Network) -> bool:
    return not entry.is_ipv6 and ipaddress.IPv4Address(entry.address) in network


def connections(mine: TcpModules, theirs: TcpModules, build: Build) -> list[Connection]:
    """Which address of a peer each module of a host connects to."""
    local = mine.listed if build.release == 4 else mine.created
    weights = [[_best(module, peer, build) for peer in theirs.created] for module in local]
    pairs = _assign([[weight for weight, _ in row] for row in weights])
    targets = {i: entry for i, j in pairs.items() if (entry := weights[i][j][1])}
    if build.release == 5:
        return [_start(local[i], entry) for i, entry in targets.items()]
    # 4.1 gives its first module the first pair, even if that belongs to another interface.
    ordered = [targets[i] for i in sorted(targets)]
    return [_start(module, entry) for module, entry in zip(mine.created, ordered, strict=False)]


def _start(module: TcpModule, peer: LinkAddress) -> Connection:
    """A module starts from its first address; where that is of the other family, from an address that is unset."""
    first = module.entries[0]
    if first.is_ipv6 == peer.is_ipv6:
        return Connection(module, first.address, peer)
    problem = (
        filled("{0} has no address to connect to {1} from", module.interface, peer.address) if peer.is_ipv6 else ""
    )
    return Connection(module, "", peer, problem)


def _best(module: TcpModule, peer: TcpModule, build: Build) -> tuple[int, LinkAddress | None]:
    """How well two interfaces fit, and the peer's address; IPv4 before IPv6."""
    for is_ipv6 in (False, True):
        mine = [entry for entry in module.entries if entry.is_ipv6 == is_ipv6][-1:]
        theirs = [entry for entry in peer.entries if entry.is_ipv6 == is_ipv6][-1:]
        for entry, other in zip(mine, theirs, strict=True) if mine and theirs else ():
            return _weight(entry, other, build), other
    return 0, None


def _weight(entry: LinkAddress, other: LinkAddress, build: Build) -> int:
    public = [entry.is_ipv6 or not any(_is_in(address, network) for network in _PRIVATE) for address in (entry, other)]
    same = _same_network(entry, other)
    if all(public):
        return 100 if same else 90
    if build.release == 5 and any(public):
        return 0
    return 80 if same else 50


def _same_network(entry: LinkAddress, other: LinkAddress) -> bool:
    """IPv6 networks of other than 64 bits are never one to Open MPI."""
    if entry.is_ipv6 and entry.prefix != 64:
        return False
    network = ipaddress.ip_network(f"{entry.address}/{entry.prefix}", strict=False)
    return ipaddress.ip_address(other.address) in network


def _assign(weights: Sequence[Sequence[int]]) -> dict[int, int]:
    """The peer's interface of each local one: the most pairs, of these the greatest sum, of these the first."""
    size = max(len(weights), max(map(len, weights), default=0))
    padded = tuple((*row, *[0] * (size - len(row))) for row in weights)
    padded += tuple((0,) * size for _ in range(size - len(weights)))
    if size > _MOST_EXACT:
        return _greedy(weights)

    @cache
    def best(peer: int, used: int) -> tuple[int, int]:
        if peer == size:
            return 0, 0
        sums = []
        for i in range(size):
            if not used >> i & 1:
                pairs, total = best(peer + 1, used | 1 << i)
                sums.append((pairs + (padded[i][peer] > 0), total + padded[i][peer]))
        return max(sums)

    assigned, used = {}, 0
    for peer in range(size):
        for i in range(size):
            if used >> i & 1:
                continue
            pairs, total = best(peer + 1, used | 1 << i)
            if (pairs + (padded[i][peer] > 0), total + padded[i][peer]) == best(peer, used):
                used |= 1 << i
                if padded[i][peer]:
                    assigned[i] = peer
                break
    return assigned


def _greedy(weights: Sequence[Sequence[int]]) -> dict[int, int]:
    pairs = sorted((-weight, i, j) for i, row in enumerate(weights) for j, weight in enumerate(row) if weight)
    assigned: dict[int, int] = {}
    for _, i, j in pairs:
        if i not in assigned and j not in assigned.values():
            assigned[i] = j
    return assigned


class DeadConnection(msgspec.Struct, frozen=True):
    """A connection that Open MPI makes, and that does not come about."""

    interface: str
    reason: str
    is_certain: bool
    """False where the peer's own connection can take its place, if that comes first."""


def dead_connections(
    mine: TcpModules, interfaces: Interfaces, theirs: TcpModules, others: Interfaces, peer: str, build: Build
) -> Iterator[DeadConnection]:
    """What of a host's connections to a peer fails, and why."""
    back = connections(theirs, mine, build)
    forth = connections(mine, theirs, build)
    if not forth:
        yield DeadConnection(
            "no interface", filled("its variables leave none that fits one of {0}", peer), is_certain=True
        )
    for connection in forth:
        reason = _obstacle(connection, interfaces, others, peer, {entry.peer.address for entry in back})
        if not reason:
            continue
        # The peer's connection from the address that this one leads to is taken for it.
        helps = any(
            other.source == connection.peer.address
            and not _obstacle(other, others, interfaces, "", {entry.peer.address for entry in forth})
            for other in back
        )
        yield DeadConnection(connection.module.interface, reason, is_certain=not helps)


def _obstacle(
    connection: Connection, interfaces: Interfaces, others: Interfaces, peer: str, accepted: Iterable[str]
) -> str:
    """Why a connection fails; empty where it does not, or where only policy routing knows."""
    target, entry = connection.peer.address, connection.module.entries[0]
    if connection.problem:
        return connection.problem
    if interfaces.holder(target):
        return (
            "each host would connect to itself"
            if is_loopback(target)
            else filled("several hosts have the address {0}", target)
        )
    if interfaces.leads_to(target) is False:
        if _same_network(entry, connection.peer) and not has_carrier(interfaces, connection.module.interface):
            return "it has no carrier"
        return filled(
            "it is paired with {0} of {1}, whose {2} no route leads to", connection.peer.interface, peer, target
        )
    if connection.source and (others.holder(connection.source) or others.leads_to(connection.source) is False):
        return filled(
            "it is paired with {0} of {1}, which has no route back to {2}",
            connection.peer.interface,
            peer,
            connection.source,
        )
    if connection.source and connection.source not in accepted:
        return filled(
            "it is paired with {0} of {1}, which expects another address than {2}",
            connection.peer.interface,
            peer,
            connection.source,
        )
    return ""


def has_carrier(interfaces: Interfaces, name: str) -> bool:
    """Whether an interface is connected; one that is not known is taken as connected."""
    link = interfaces.link(name)
    return link is None or link.is_running
