"""Which link bytes do not get through on, from the ranks' sockets and from connection attempts between hosts. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from doctor.engine.addresses import means_own_host
from doctor.engine.grouping import lists_by_key
from doctor.engine.pairwise_blame import blame, partners
from doctor.engine.texts import filled
from doctor.facts.interfaces import SendingDelay

Socket = tuple[int, str, int, int, int]
"""Rank, its peer's address and port, unacknowledged bytes, retransmits."""
Door = tuple[int, str, int]
"""Rank, and the address and port that it listens on."""
Probe = tuple[str, int, str, float]
Link = tuple[str, str]
Halted = tuple[dict[str, str], dict[Link, str]]
UNTRIED = "untried"
"""What a host could not try says nothing of the other one."""
UNANSWERED = (UNTRIED, "dropped", "no-route")
REFUSALS = {
    "EACCES": "a route prohibits it",
    "EHOSTUNREACH": "a route says that it is unreachable",
    "EINVAL": "a route drops it",
    "ENETDOWN": "the interface is down",
    "ENETUNREACH": "there is no route",
    "EPERM": "a firewall rule for outgoing packets",
}
"""Why a host sends nothing, by the error number of its own kernel (ip-route(8): prohibit, unreachable, blackhole)."""
MIN_RETRANSMITS = 2
"""Of the same bytes, one after the other: one alone passes on a busy host that answers late."""
SMALL = 536
"""Bytes that every way carries in one packet (RFC 1122, 4.2.2.6)."""
MAX_PROBED_HOSTS = 32
"""That are probed in all pairs."""


class AddressOwners:
    """The owner of each address. An address that several hosts have, such as a bridge's, has no owner."""

    def __init__(self, hosts: Mapping[str, Iterable[str]]) -> None:
        owners = lists_by_key((address, host) for host, addresses in hosts.items() for address in set(addresses))
        self._holders = owners
        self._owner = {address: names[0] for address, names in owners.items() if len(names) == 1}

    def addresses(self, host: str) -> list[str]:
        """Those that are this host's alone, without loopback ones."""
        return sorted(
            address
            for address, owner in self._owner.items()
            if owner == host and not address.startswith(("127.", "fe80:")) and address != "::1"
        )

    def other_holder(self, address: str, owner: str) -> str:
        """The one host beside its owner that has this address as well; empty where none has, or several have it."""
        holders = self._holders.get(address, [])
        others = [host for host in holders if host != owner]
        return others[0] if len(others) == 1 and owner in holders and not means_own_host(address) else ""

    def taken(self, now: AddressOwners) -> list[tuple[str, str, str]]:
        """(holder, address, owner): addresses that were one host's alone and that another host has as well by now."""
        rows = [(now.other_holder(address, owner), address, owner) for address, owner in sorted(self._owner.items())]
        return [row for row in rows if row[0] and not row[1].startswith("fe80:")]

    def host(self, address: str, asker: str) -> str:
        """The host that ``asker`` reaches at this address; the address itself where its owner is not known."""
        if means_own_host(address):
            return asker
        return self._owner.get(address, address)


def is_answer(result: str) -> bool:
    """Whether an attempt to connect shows that packets go there and come back: a refusal of the other side does."""
    return result not in UNANSWERED and result not in REFUSALS


def refusing_hosts(
    probes: Mapping[str, Sequence[Probe]], sockets: Mapping[str, Sequence[Socket]], addresses: AddressOwners
) -> dict[str, str]:
    """By host whose own kernel sends nothing to an address that it has a connection with: what it says of itself.

    Where most of those that tried a host say so, as where a routing daemon has withdrawn its address, none is named.
    """
    tried: dict[str, set[str]] = defaultdict(set)
    refusing: dict[str, dict[str, str]] = defaultdict(dict)
    for host, rows in probes.items():
        connected = {peer for _, peer, *_ in sockets.get(host, ())}
        for address, _, result, _ in rows:
            target = addresses.host(address, host)
            if result == UNTRIED or target == host:
                continue
            tried[target].add(host)
            reason = REFUSALS.get(result, "")
            if reason and address in connected:
                text = "{0} itself refuses to send to {1}: {2}"
                refusing[target][host] = filled(text, host, address, reason)
    return {
        host: text
        for target, texts in sorted(refusing.items())
        if len(texts) == 1 or 2 * len(texts) <= len(tried[target])
        for host, text in texts.items()
    }


def by_host(
    hosts: Mapping[str, str], replies: Mapping[str, tuple[Sequence[Socket], Sequence[Door]]]
) -> tuple[dict[str, list[Socket]], dict[str, list[Door]]]:
    """The sockets and open ports that agents reported, combined for each host (agent -> host)."""
    sockets_by_host: dict[str, list[Socket]] = defaultdict(list)
    ports_by_host: dict[str, list[Door]] = defaultdict(list)
    for name, (sockets, listening) in replies.items():
        sockets_by_host[hosts[name]] += sockets
        ports_by_host[hosts[name]] += listening
    return sockets_by_host, ports_by_host


def stuck_links(
    sockets: Mapping[str, Sequence[Socket]], addresses: AddressOwners, within: bool = False
) -> dict[Link, tuple[int, int]]:
    """(from, to) -> most unacknowledged bytes, retransmits, of resending sockets: between hosts, or ``within`` one."""
    stuck: dict[Link, tuple[int, int]] = {}
    for host, rows in sockets.items():
        for _, peer, _, unacked, again in rows:
            other = addresses.host(peer, host)
            if again >= MIN_RETRANSMITS and unacked and (other == host) == within:
                before = stuck.get((host, other), (0, 0))
                stuck[host, other] = (max(before[0], unacked), max(before[1], again))
    return stuck


def stuck_within(
    sockets: Mapping[str, Sequence[Socket]], addresses: AddressOwners, stuck: Iterable[Link]
) -> dict[str, str]:
    """The one host that resends what its own ranks have for each other, if it is an end of all these links: in words.

    No network lies between them. Empty where there is no such host, or several.
    """
    hosts = [source for source, _ in stuck_links(sockets, addresses, within=True)]
    text = "{0} sends again what its own ranks have for each other, too, where no network lies between"
    return {host: filled(text, host) for host in hosts if len(hosts) == 1 and all(host in link for link in stuck)}


def targets(
    listening: Mapping[str, Sequence[Door]], addresses: AddressOwners, concerned: Sequence[str]
) -> dict[str, list[tuple[str, int]]]:
    """What each host is to connect to: one port of every other host that its ranks listen on for data, and of its own
    where it has several ranks.
    """
    endpoints: dict[str, tuple[str, int]] = {}
    within = {host for host, rows in listening.items() if len({rank for rank, _, _ in rows}) > 1}
    for host, rows in sorted(listening.items()):
        local_endpoints = [(address, port) for _, address, port in rows if addresses.host(address, "") == host]
        if local_endpoints:
            endpoints[host] = local_endpoints[0]
    probed_hosts = [
        host for host in (concerned if len(endpoints) > MAX_PROBED_HOSTS else endpoints) if host in endpoints
    ][:MAX_PROBED_HOSTS]
    return {
        host: [endpoints[other] for other in probed_hosts if other != host or host in within] for host in probed_hosts
    }


def failed_links(
    probes: Mapping[str, Sequence[Probe]], addresses: AddressOwners
) -> tuple[tuple[Link, ...], tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The links that connection attempts failed on, the hosts that explain two or more of them alone, and the parts
    of a fleet that is cut, which name no host. A host that does not reach itself, and that all others reach, is a link
    to itself, and named.
    """
    pairs = [
        (host, addresses.host(address, host), is_answer(result))
        for host, rows in probes.items()
        for address, _, result, _ in rows
        if result != UNTRIED
    ]
    ends = [((source,), (target,), worked) for source, target, worked in pairs if source != target]
    tried, (suspects, cuts) = partners(ends), blame(ends)
    refused = lists_by_key((target, source) for source, target, worked in pairs if not worked)
    failed = tuple(
        sorted((source, target) for target, sources in refused.items() for source in sources if source != target)
    )
    silent = {end[0] for end, others in suspects.items() if 1 < len(others) == len(tried[end])}
    own_hosts = {host for host, sources in refused.items() if set(sources) == {host}}
    return (
        (*failed, *((host, host) for host in sorted(own_hosts))),
        tuple(sorted(silent | own_hosts)),
        tuple(tuple(end[0] for end in part) for cut in cuts[:1] for part in cut.parts),
    )


def held_back(delays: Mapping[str, Iterable[SendingDelay]], host_count: int, links: Iterable[Link]) -> dict[str, str]:
    """By host whose queueing discipline holds back what it sends: what it does.

    Empty where more than half of the hosts have one, and where a link that bytes do not get through on has none at
    either end.
    """
    texts = {
        host: filled("{0} on {1} of {2} {3}", row.kind, row.interface, host, row.deeds)
        for host, rows in delays.items()
        for row in rows
        if row.holds_back
    }
    explains = all(not texts.keys().isdisjoint(ends) for ends in links)
    return texts if explains and 2 * len(texts) <= host_count else {}


def halted_by(
    reports: Iterable[tuple[str, Iterable[tuple[str, bool]], Iterable[str]]], addresses: AddressOwners, host_count: int
) -> Halted:
    """How hosts refuse to send what they have for a peer with room, but where that is more than half of the hosts; and
    how links carry nothing, (from, to), as the peer announces no room and its ranks have read all that came.

    ``reports``: of each agent its host, the peers of such connections and whether they have room, and the peers whose
    bytes its ranks have not read. A rank that does not read is no fault of its host's network. Who takes the room
    away is one of the two ends, or stands between them.
    """
    rows = [(host, list(halted), list(unread)) for host, halted, unread in reports]
    hosts, links = dict[str, str](), dict[Link, str]()
    behind = {(addresses.host(address, host), host) for host, _, unread in rows for address in unread}
    answering = {host for host, *_ in rows}
    for host, halted, _ in sorted(rows):
        for address, has_room in halted:
            peer = addresses.host(address, host)
            if has_room:
                text = "{0} does not send what it has for {1}: a rule for outgoing packets on {0} refuses it"
                hosts[host] = filled(text, host, peer)
            elif peer in answering - {host} and (host, peer) not in behind:
                text = "{0} announces no room to {1} (TCP window 0), and its ranks have read all that came from there"
                links[host, peer] = filled(text, peer, host)
    return hosts if 2 * len(hosts) <= host_count else {}, links


def sentences(
    stuck: Mapping[Link, tuple[int, int]], failed: Sequence[Link], cut: Sequence[str], probed: bool
) -> tuple[str, ...]:
    """The evidence in plain words."""
    stuck_texts = (
        filled("{0} to {1}: {2} bytes unacknowledged, sent again {3} times", source, target, unacked, again)
        for (source, target), (unacked, again) in sorted(stuck.items())
    )
    failed_texts = (
        filled("{0} to {1}: a new connection gets no answer", source, target)
        for source, target in failed
        if source != target
    )
    cut_texts = (
        filled("{0}: a connection to its own address gets no answer", host)
        if (host, host) in failed
        else filled("{0}: no other host gets an answer from it", host)
        for host in cut
    )
    texts = [*stuck_texts, *failed_texts, *cut_texts]
    if probed and stuck and not failed:
        large = min(unacked for unacked, _ in stuck.values()) > SMALL
        texts.append(
            "new connections are answered while large segments are not: small packets pass and large ones are lost, "
            "as with an MTU that some device on the way does not carry"
            if large
            else "new connections are answered while small packets of those that stand are lost, too: as with a rule "
            "that follows connections, by their bytes or their state, or a link that was cut for seconds"
        )
    return tuple(texts)
