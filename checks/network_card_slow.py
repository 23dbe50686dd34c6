from collections.abc import Iterator, Mapping

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import differing, slower_sibling
from doctor.engine.grouping import lists_by_key
from doctor.facts.host_settings import BOND_MODE, LACP_GROUP, LINK_SPEED, LINK_STATUS, Bonds, NetworkCards

BACKUP = "active-backup"
"""The mode in which one member carries all packets, and the others wait."""
FAST = 25000
"""Mbit/s: of slower cards one port may be the host's way to its management network."""
Place = tuple[str, str]


@check(severity=WARNING, area="connectivity")
def network_card_slow(cards: PerHost[NetworkCards], bonds: PerHost[Bonds] | None) -> Iterator[Finding]:
    """Every network card has the speed that it has on other hosts, both ways at once, and a bond all its members.

    ## Why it matters
    A card that negotiated 1 in place of 25 Gbit/s loads data and starts jobs more slowly, and with Gloo or TCP slows
    every collective. With half duplex it collides. A bond that has lost a member goes on at a part of its speed, and
    the next cable that fails ends the job.

    ## What to do
    On {host}: `ethtool {interface}`, of a bond `cat /proc/net/bonding/*`. Check the cable or transceiver and the
    settings of the switch port; both ends must negotiate, or have the same speed set. With LACP (802.3ad) the ports of
    the switch must be in one group for all members of the bond.

    ## Source
    `speed` (Mbit/s) and `duplex` of /sys/class/net/NAME (Linux ABI, sysfs-class-net), of cards with a link; the
    majority of hosts with a card of that name is the norm. The one slower port among four or more of one kind of card
    on a host is a finding as well, from 25 Gbit/s on; two of them are meant so. /proc/net/bonding
    (drivers/net/bonding/bond_procfs.c of Linux): the status of each member, its speed where all members carry packets,
    and its aggregator.
    """
    named: set[Place] = set()
    for finding in (*_unlike_others(cards), *_of_bonds(bonds or {})):
        named.update((host, finding.values["interface"]) for host in finding.hosts)
        yield finding
    kinds = lists_by_key(
        (card.product, ((host, name), card.megabits))
        for host, own in cards.items()
        for name, card in own.cards.items()
        if card.product
    )
    template = "{interface} has {observed} Mbit/s; {count} of {total} ports of its kind have {expected} Mbit/s"
    for ports in kinds.values():
        for finding in slower_sibling(dict(ports), template, "interface"):
            is_fast = finding.values["expected"] >= FAST
            if is_fast and (finding.hosts[0], finding.values["interface"]) not in named:
                yield finding


def _unlike_others(cards: PerHost[NetworkCards]) -> Iterator[Finding]:
    for name in sorted({name for own in cards.values() for name in own.cards}):
        speeds = {host: f"{own.cards[name].megabits} Mbit/s" for host, own in cards.items() if name in own.cards}
        for host, own in cards.items():
            if name in own.cards and own.cards[name].duplex == "half":
                template = "{interface} is {observed}; expected {expected}"
                yield Finding(template, hosts=[host], interface=name, observed="half duplex", expected="full duplex")
        if len(speeds) > 2:
            template = "{interface} has {observed}; {count} of {total} hosts have {expected}"
            yield from differing(speeds, template, interface=name)


def _of_bonds(bonds: Mapping[str, Bonds]) -> Iterator[Finding]:
    """Members that carry nothing, and those that are slower than the others of a bond whose members all carry."""
    for host, own in bonds.items():
        for bond, rows in own.bonds.items():
            members = {member: state for member, state in rows.items() if member}
            speeds = {member: _speed(state) for member, state in members.items() if state[LINK_STATUS] == "up"}
            active = rows[""].get(LACP_GROUP, "")
            for member, state in members.items():
                values = {"hosts": [host], "interface": member, "bond": bond}
                if member not in speeds:
                    template = "{interface}, a member of {bond}, has the link status {observed}; expected {expected}"
                    yield Finding(template, observed=state[LINK_STATUS], expected="up", **values)
                elif active and state.get(LACP_GROUP, active) != active:
                    template = "{interface} carries no packets of {bond}: its LACP group is {observed}, not {expected}"
                    yield Finding(template, observed=state[LACP_GROUP], expected=active, **values)
                elif 0 < speeds[member] < max(speeds.values()) and BACKUP not in rows[""].get(BOND_MODE, ""):
                    template = "{interface} has {observed} Mbit/s; another member of {bond} has {expected} Mbit/s"
                    yield Finding(template, observed=speeds[member], expected=max(speeds.values()), **values)


def _speed(member: Mapping[str, str]) -> int:
    """Mbit/s; 0 where it is not known."""
    number = member.get(LINK_SPEED, "").partition(" ")[0]
    return int(number[:9]) if number.isdecimal() else 0
