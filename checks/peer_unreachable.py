import errno
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping

import msgspec

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.analysis.refused_routes import REFUSED_BY_ROUTE
from doctor.engine.fact import Unreadable
from doctor.engine.grouping import sets_by_key
from doctor.engine.pairwise_blame import Cut, blame, partners
from doctor.facts.firewall import FirewallRules
from doctor.facts.firewall.blocked_hosts import HostFirewalls
from doctor.facts.gpu import GpuCards
from doctor.facts.hardware_addresses import HardwareAddresses, cards_seen_elsewhere
from doctor.facts.interfaces import Interfaces, prefix_remedy, same_address
from doctor.facts.master_address import MasterMeaning, master_meanings
from doctor.facts.names import HostNames
from doctor.facts.network import HostAddresses
from doctor.facts.npu import NpuInventory
from doctor.facts.peer_connections import PeerConnection, PeerConnections
from doctor.facts.ports import Listeners, ReservedPorts
from doctor.facts.socket_peers import FleetSockets, fleet_sockets
from doctor.facts.visit import Reachability
from doctor.job import LaunchConfig
from doctor.net.matrix import ARP_SILENT

ALONE = "only one host: there is no other to connect to"
TRIED: dict[str, tuple[str, ...]] = {"net-unreachable": (), "net-port-blocked": (), "net-answered-by-other": ()}
NO_ANSWER = "no answer"
CAUSES = {"duplicate-address": ("peers=pair",), "interface-unreachable": ()}
CARDS = ("hardware",)
TO_ALL = (
    "What {0} sends to one host arrives, and what it sends to all does not. A VXLAN tunnel of {0} must list each other "
    "host (`bridge fdb show | grep ^00:00:00:00:00:00`); as root `bridge fdb append 00:00:00:00:00:00 dev <interface> "
    "dst <address of the host>` adds one. Else a rule of {0} (`nft list ruleset`) or a switch filters ARP."
)
REFUSED_BY_KERNEL = frozenset(map(os.strerror, (errno.EHOSTUNREACH, errno.EACCES, errno.EINVAL)))
"""As the kernel says it of its own routes: unreachable, prohibit and blackhole (ip-route(8), "Route types")."""
SHARED_CARD = (
    "A switch sends what is for both to one of them. On {0}, `ip -o link | grep -iF {2}` shows the interface, and "
    "`ethtool -P <interface>` the address that its card was made with. Where another one is set, delete the line that "
    "sets it: `grep -rniF {2} /etc/netplan /etc/network /etc/NetworkManager /etc/systemd/network /etc/sysconfig "
    "2>/dev/null` prints it with its file. A virtual machine that was copied from {1} gets another one from its host. "
    "If that of {0} is its own, the same on {1}."
)
MOST_REFUSED = 64
"""Addresses in one command."""
Pair = tuple[str, str]
"""The host that opens a connection, and the one that it goes to."""


@check(severity=ERROR, area="connectivity", single_host=ALONE, follows_from=CAUSES, explained_by=TRIED, advisory=CARDS)
def peer_unreachable(
    connections: PerHost[PeerConnections],
    interfaces: PerHost[Interfaces],
    names: PerHost[HostNames],
    hardware: PerHost[HardwareAddresses] | None,
    rules: PerHost[FirewallRules] | None,
    addresses: PerHost[HostAddresses],
    reserved: PerHost[ReservedPorts],
    listeners: PerHost[Listeners],
    npus: PerHost[NpuInventory] | None,
    gpus: PerHost[GpuCards] | None,
    visits: PerHost[Reachability],
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """Every host reaches the others over TCP, at the addresses that the job takes.

    ## Why it matters
    SSH works, and the job hangs. Ranks wait until a timeout of minutes, and the message names those that waited. A
    security group, a switch or a router may pass port 22 alone. Or a route or an entry of the ARP table is wrong, or
    packets come back another way.

    ## What to do
    {remedy}

    From {first}: `ip route get {address}`, `ip neigh show {address}` (PERMANENT: an entry written by hand, which `ip
    neigh flush to {address} nud permanent` deletes), `ping -c 3 {address}`; then `python3 -c "import socket;
    socket.create_connection(('{address}', {port}), 5)"`, which must end with "Connection refused" at once. In a cloud,
    allow all TCP ports between the hosts of the job in their security group; for ports alone, those of `sysctl
    net.ipv4.ip_local_port_range`. Another network is chosen with GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME or
    HCCL_SOCKET_IFNAME.

    ## Source
    Each host opens connections to two ports of the others, chosen from what their kernels give to programs
    (`ip_local_port_range`), and waits 5 s: connected and refused show that packets go both ways. What has no answer is
    tried once more; it is unknown where one of the two hosts did not run for a second or more, or where the kernel had
    no room for a neighbour. Measured beside a job of Gloo. In a fleet of more than 9 hosts each tries those 1, 2, 4, 8,
    ... places on in the list. What the host's own firewall stops is reported by firewall-blocks-job; a firewall between
    the hosts that refuses instead of dropping is not seen. Each host asks its own network for the others anew (ARP,
    five times in a second, as root): without an answer it reaches them as long as its kernel knows them from their own
    packets. Where no part that hangs together holds more than half of the hosts, no host is to blame: the finding names
    all parts. A hardware address that two hosts have is named where neither reaches the other, and where SSH did not
    reach one of them, and two others find both there. This verdict can be wrong where the hosts that are checked do not
    work together in one job.
    """
    if len(interfaces) < 2:
        raise Skip(ALONE)
    yield from _cards_of_unreached(visits, interfaces, hardware or {})
    owners = _owners(interfaces, fleet_sockets(interfaces, names, launch, npus, gpus))
    owners.update(_master_owners(master_meanings(names, interfaces, launch)))
    pairs = _pairs(connections, owners)
    _add_unanswered(pairs, owners, hardware or {})
    untried = _untried(connections, owners)
    if not pairs and not untried:
        raise Skip(
            "no address that the job takes could be tried: it is in no network of the other hosts, nor known to them"
        )
    firewalls = HostFirewalls(rules or {}, addresses, names, reserved, listeners, npus or {}, launch)
    failed = {pair: ones for pair, tried in pairs.items() if (ones := [one for one in tried if not one.answered])}
    silent = {pair for pair in failed if _resets_may_be_stopped(failed[pair], pair, firewalls)}
    busy = {pair for pair in failed if any(connections[end].is_busy for end in pair if end in connections)}
    busy = {pair for pair in busy if all(one.end == NO_ANSWER for one in failed[pair])}
    silent |= busy
    failed = {pair: ones for pair, ones in failed.items() if pair not in silent}
    pairs = {pair: tried for pair, tried in pairs.items() if pair not in silent}
    stopped = {host for host in {end for pair in failed for end in pair} if firewalls.stops_job(host)}
    ends = [((host,), (peer,), (host, peer) not in failed) for host, peer in pairs]
    tried_with = {host: others for (host,), others in partners(ends).items()}
    culprits, divided = _culprits(ends, failed)
    for host, others in culprits.items():
        lost = {
            pair: ones
            for pair, ones in failed.items()
            if host in pair and set(pair) & set(others) and not stopped & set(pair)
        }
        if not lost:
            continue  # firewall-blocks-job reports it
        (source, _), ones = min(lost.items(), key=lambda item: (not item[1][0].is_own, item[0]))
        if ones[0].end == ARP_SILENT and source != host:
            continue  # it answers all but this one
        other, card = _shared_card(host, failed, pairs, hardware or {})
        yield Finding(
            "it and {other} have one hardware address, {card}; no TCP connections between it and {lost} of {tried} "
            "hosts: {peers}"
            if card
            else "no answer comes when it asks all (ARP) for the hardware addresses of {lost} of {tried} hosts: "
            "{peers}; it reaches them as long as they have called it before"
            if ones[0].end == ARP_SILENT
            else "no TCP connections between it and {lost} of {tried} hosts: {peers}",
            hosts=[host],
            **({"other": other, "card": card} if card else {}),
            lost=len(others),
            tried=len(tried_with[host]),
            peers=others,
            first=source,
            address=ones[0].address,
            port=ones[0].port,
            observed=filled("{0}, from {1} to {2}, port {3}", ones[0].end, source, ones[0].address, ones[0].port),
            expected="connected or refused",
            remedy=(filled(SHARED_CARD, host, other, card) if card else "")
            or (filled(TO_ALL, source) if ones[0].end == ARP_SILENT else "")
            or (prefix_remedy(host, interfaces) if any(one.is_own for one in ones) else "")
            or (filled(REFUSED_BY_ROUTE, source, " ".join(_refused(source, lost))) if _refused(source, lost) else ""),
        )
    for cut in divided:
        crossing = [(source, target) for (source,), (target,) in cut.failed if not stopped & {source, target}]
        for source, target in crossing[:1]:
            first = failed[source, target][0]
            yield Finding(
                "TCP connections fail between {between}; none of them holds more than half of {count} hosts",
                hosts=cut.hosts,
                **cut.values,
                first=source,
                address=first.address,
                port=first.port,
                observed=filled("{0}, from {1} to {2}, port {3}", first.end, source, first.address, first.port),
                expected="connected or refused",
                remedy="",
            )
    if busy and not failed:
        source, target = min(busy)
        raise Unreadable(
            filled("no answer from {0} to {1}; one of them did not run for a second or more", source, target)
        )
    if untried and not failed:
        raise Unreadable(filled("{0} has not tried all connections to other hosts: {1}", *untried))
    if silent and not failed:
        source, target = min(silent)
        raise Unreadable(
            filled(
                "no answer from {0} to {1}, where a rule of one of them may stop the refusals of ports on "
                "which nothing listens; doctor net tries it with listeners",
                source,
                target,
            )
        )


def _untried(connections: Mapping[str, PeerConnections], owners: Mapping[str, str]) -> tuple[str, str] | None:
    """A host that could not try all that count, and why."""
    untried = (
        (host, one.why_untried)
        for host, own in connections.items()
        for one in own.connections
        if one.why_untried and owners.get(one.address, host) != host
    )
    return min(untried, default=None)


def _refused(source: str, lost: Mapping[Pair, list[PeerConnection]]) -> list[str]:
    """The addresses to which this host's routes refuse to send."""
    trials = [one for (host, _), ones in lost.items() if host == source for one in ones]
    return sorted({one.address for one in trials if one.end in REFUSED_BY_KERNEL})[:MOST_REFUSED]


def _shared_card(
    host: str,
    failed: Mapping[Pair, list[PeerConnection]],
    tried: Mapping[Pair, object],
    hardware: Mapping[str, HardwareAddresses],
) -> tuple[str, str]:
    """Another host with a hardware address of this one, and the address; empty texts where there is none.

    Not one reaches the other: bridges of one name, and containers behind one card (ipvlan), share an address soundly.
    """
    for card in hardware[host].local if host in hardware else ():
        owners = [peer for peer, other in hardware.items() if peer != host and card in other.local]
        ways = [pair for peer in owners for pair in ((host, peer), (peer, host)) if pair in tried]
        if len(owners) == 1 and ways and all(pair in failed for pair in ways):
            return owners[0], card
    return "", ""


def _cards_of_unreached(
    visits: Mapping[str, Reachability], interfaces: Mapping[str, Interfaces], hardware: Mapping[str, HardwareAddresses]
) -> Iterator[Finding]:
    """Hosts at whose card two others find a host that SSH did not reach, and no third one.

    A host that answers for others (proxy_arp), has the address itself, or shares the card of its containers is none.
    """
    silent = {visit.address: host for host, visit in visits.items() if host not in interfaces and visit.address}
    for host, by_card in cards_seen_elsewhere(hardware).items():
        entry = interfaces[host].holder(visits[host].address) if host in interfaces and host in visits else None
        link = interfaces[host].link(entry.interface) if entry else None
        if not entry or not link or "vlan" in link.kind or {"all", link.name} & {*hardware[host].proxies}:
            continue
        for card, witnesses in by_card.items():
            others = [address for address in witnesses if not interfaces[host].holder(address)]
            least = min(len(witnesses.get(address, ())) for address in (entry.address, *others))
            if len(others) == 1 and others[0] in silent and least > 1:
                other, found_by = silent[others[0]], sorted(witnesses[others[0]])
                yield Finding(
                    "{holder} and {other} have one hardware address, {card}: {witnesses} find both there; SSH did not "
                    "reach {other}",
                    hosts=[host, other],
                    holder=host,
                    other=other,
                    card=card,
                    witnesses=found_by,
                    first=found_by[0],
                    address=others[0],
                    port=22,
                    remedy=filled(SHARED_CARD, host, other, card),
                )


def _resets_may_be_stopped(ones: list[PeerConnection], pair: Pair, firewalls: HostFirewalls) -> bool:
    """Whether no answer is no evidence: a refusal is a reset, which a rule of either host may stop."""
    source, target = pair
    return all(one.end == NO_ANSWER for one in ones) and (
        firewalls.may_stop_resets(target, outgoing=True) or firewalls.may_stop_resets(source, outgoing=False)
    )


def _culprits(
    ends: list[tuple[tuple[str], tuple[str], bool]], failed: Mapping[Pair, list[PeerConnection]]
) -> tuple[dict[str, list[str]], list[Cut[tuple[str]]]]:
    """The hosts that failures gather at, each with those that it could not talk to; and where the fleet is cut.

    One whose own kernel refuses is the culprit, and the failures that it explains do not count against others; of two
    that failed only with each other, either may be.
    """
    own: dict[str, list[str]] = defaultdict(list)
    for (host, peer), ones in sorted(failed.items()):
        if any(one.is_own for one in ones) and host not in own.get(peer, ()):
            own[host].append(peer)
    explained = {frozenset((host, peer)) for host, peers in own.items() for peer in peers}
    rest = [end for end in ends if {*end[0], *end[1]} not in explained]
    suspects, cuts = blame(rest)
    blamed = {host: [other for (other,) in others] for (host,), others in suspects.items()}
    for host, others in list(blamed.items()):
        if len(others) == 1 and not any(others[0] in peers for one, peers in blamed.items() if one != host):
            blamed.setdefault(others[0], [host])
    culprits = {host: sorted({*own.get(host, ()), *blamed.get(host, ())}) for host in sorted({*own, *blamed})}
    return culprits, cuts


def _pairs(connections: Mapping[str, PeerConnections], owners: Mapping[str, str]) -> dict[Pair, list[PeerConnection]]:
    """The attempts that count, by the two hosts."""
    pairs: dict[Pair, list[PeerConnection]] = {}
    for host, own in connections.items():
        for connection in own.connections:
            peer = owners.get(connection.address)
            if peer and peer != host and connection.answered is not None:
                pairs.setdefault((host, peer), []).append(connection)
    return pairs


def _add_unanswered(
    pairs: dict[Pair, list[PeerConnection]], owners: Mapping[str, str], hardware: Mapping[str, HardwareAddresses]
) -> None:
    """Counts as failed what works only as long as the kernel knows the other host by what that one has sent."""
    for host, fact in hardware.items():
        for address in fact.unanswered:
            if tried := pairs.get((host, owners.get(address, ""))):
                tried[:] = [
                    msgspec.structs.replace(one, end=ARP_SILENT) if one.address == address and one.answered else one
                    for one in tried
                ]


def _master_owners(meanings: Mapping[str, MasterMeaning]) -> dict[str, str]:
    """The host of MASTER_ADDR, by the one address that it means."""
    return {
        meaning.addresses[0]: next(iter(meaning.owners))
        for meaning in meanings.values()
        if len(meaning.addresses) == 1 and len(meaning.owners) == 1
    }


def _owners(interfaces: Mapping[str, Interfaces], fleet: FleetSockets) -> dict[str, str]:
    """The host of each address that the job takes, and that it alone has; where no library's rule is known, of all."""
    holders = sets_by_key((entry.address, host) for host, own in interfaces.items() for entry in own.addresses)
    taken = [
        (choice.address, host)
        for choices in fleet.choices
        for host, choice in choices.items()
        if choice.address and not (choice.is_loopback or choice.is_of_rpc)
    ]
    if not taken:
        taken = [(entry.address, host) for host, own in interfaces.items() for entry in own.addresses]
    return {
        entry.address: host
        for address, host in taken
        for entry in interfaces[host].addresses
        if len(holders[entry.address]) == 1 and same_address(entry.address, address)
    }
