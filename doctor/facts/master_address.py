"""Which host MASTER_ADDR leads each host to, and whether the agents of torchrun find one another by host names. Pure.

Source of the names, with ``--rdzv-backend c10d``: PyTorch, torch/distributed/elastic/rendezvous:
``_matches_machine_hostname`` (utils.py), by which an agent takes itself for the host of the endpoint, and
``RendezvousStoreInfo.build`` (api.py) with ``_RendezvousState`` in dynamic_rendezvous.py: the agent whose host has the
first name in the order of the alphabet is rank 0, and announces it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from doctor.engine.addresses import is_localhost
from doctor.engine.grouping import sets_by_key
from doctor.engine.texts import filled
from doctor.facts.interfaces import Interfaces
from doctor.facts.master_trial import MasterTrial
from doctor.facts.names import (
    NO_ANSWER,
    HostNames,
    NameResolution,
    is_address,
    is_loopback,
    listed_host,
    normalize_host,
    short_name,
)
from doctor.job import LaunchConfig, limit_items


class MasterMeaning(msgspec.Struct, frozen=True):
    """What MASTER_ADDR means on one host."""

    master: str
    """The value on this host."""
    addresses: tuple[str, ...]
    owners: frozenset[str]
    """The hosts that it may lead to, as far as they are of the fleet."""
    is_loopback: bool
    has_route: bool
    """False: the host has no route to any of the addresses."""
    is_own_name: bool
    """It is the host's own name, and not localhost."""

    @staticmethod
    def usual_owner(meanings: Mapping[str, MasterMeaning]) -> str:
        """The host that most hosts come to; empty where none comes to exactly one."""
        abroad = (meaning for meaning in meanings.values() if not meaning.is_loopback)
        votes = Counter(next(iter(m.owners)) for m in abroad if len(m.owners) == 1)
        return max(votes, key=lambda owner: votes[owner], default="")

    @staticmethod
    def wrong(meanings: Mapping[str, MasterMeaning], is_elsewhere: bool = False) -> dict[tuple[str, str], list[str]]:
        """The hosts that do not come to the master, by reason and value; ``is_elsewhere``: it may be none of these."""
        master = MasterMeaning.usual_owner(meanings)
        result: dict[tuple[str, str], list[str]] = defaultdict(list)
        for host, meaning in meanings.items():
            reason = _reason(host, meaning, master, is_elsewhere)
            if reason:
                result[reason, meaning.master].append(host)
        return result


def _reason(host: str, meaning: MasterMeaning, master: str, is_elsewhere: bool) -> str:
    literal = is_address(meaning.master) or is_localhost(meaning.master)
    prefix = "" if literal else filled("resolves to {0} and ", ", ".join(limit_items(list(meaning.addresses), 3)))
    if meaning.is_loopback:
        if host == master or meaning.is_own_name:
            return ""
        return "leads every host to itself" if literal else filled("{0}leads the host to itself", prefix)
    if not meaning.owners and not is_elsewhere:
        return filled("{0}is the address of none of these hosts", prefix)
    if len(meaning.owners) > 1:
        return filled("{0}is an address of {1}", prefix, ", ".join(limit_items(sorted(meaning.owners), 3)))
    if master and master not in meaning.owners:
        return filled("{0}leads to {1}; on other hosts to {2}", prefix, next(iter(meaning.owners)), master)
    if not meaning.has_route:
        return filled("{0}is in a network that the host has no route to", prefix)
    return ""


def master_meanings(
    names: Mapping[str, HostNames],
    interfaces: Mapping[str, Interfaces],
    launch: LaunchConfig,
    trials: Mapping[str, MasterTrial] | None = None,
) -> dict[str, MasterMeaning]:
    """What each host's MASTER_ADDR leads to; a host that cannot resolve it, or has none, is left out.

    An address of no host may be translated on the way: it leads to the host that answered there in the trial.
    """
    held_addresses = ((entry.address, host) for host, each in interfaces.items() for entry in each.addresses)
    owners = sets_by_key((normalize_host(each), host) for each, host in held_addresses if not is_loopback(each))
    result = {}
    for host in interfaces:
        master = launch.master_of(host)
        addresses = _addresses(master, names.get(host))
        if addresses:
            outer = [address for address in addresses if not is_loopback(address)]
            held = _owners(outer, owners)
            reached = trials[host].reached if outer and not held and trials and host in trials else ""
            routes = [interfaces[host].leads_to(address) for address in outer]
            result[host] = MasterMeaning(
                master,
                addresses,
                frozenset([reached]) if reached in interfaces else held,
                is_loopback=not outer,
                has_route=reached in interfaces or not (outer and all(leads is False for leads in routes)),
                is_own_name=host in names
                and short_name(names[host].own) == short_name(master)
                and not is_localhost(master),
            )
    return result


def host_of_master(
    hosts: Sequence[str],
    names: Mapping[str, HostNames],
    interfaces: Mapping[str, Interfaces],
    launch: LaunchConfig,
    trials: Mapping[str, MasterTrial] | None = None,
) -> str:
    """The host that MASTER_ADDR is; empty where it is not known, or is none of these.

    That is the one that the list of hosts has by this name, else the one that most hosts come to: a host's own name for
    itself does not make it the master of other hosts.
    """
    listed = listed_host(hosts, launch.master_addr)
    if listed is None:
        return MasterMeaning.usual_owner(master_meanings(names, interfaces, launch, trials))
    return listed


def _owners(addresses: list[str], owners: Mapping[str, set[str]]) -> frozenset[str]:
    """The one host that has an address of these alone; else all that have one."""
    held = [owners[normalize_host(address)] for address in addresses if normalize_host(address) in owners]
    alone = [hosts for hosts in held if len(hosts) == 1]
    return frozenset(alone[0] if alone else set().union(*held))


def _addresses(master: str, names: HostNames | None) -> tuple[str, ...]:
    if is_address(master):
        return (master,)
    if is_localhost(master):
        return ("127.0.0.1",)
    return names.names[master].addresses if names and master in names.names else ()


def undecided_master(
    meanings: Mapping[str, MasterMeaning], trials: Mapping[str, MasterTrial], is_elsewhere: bool = False
) -> str:
    """Why the trials do not show where an address of no host leads; empty: they do, or were not made.

    ``is_elsewhere``: it may be another host's, which must answer.
    """
    callers = [host for host, meaning in meanings.items() if not meaning.owners and not meaning.is_loopback]
    callers = [host for host in callers if host in trials and trials[host].needed]
    for host in callers:
        if is_elsewhere:
            if trials[host].accepted or trials[host].refused or not meanings[host].has_route:
                continue
            return filled("nothing answers at {0}; its host may not run yet, or not be reached", meanings[host].master)
        closed = [other for other, trial in trials.items() if trial.needed and not trial.listened]
        if trials[host].accepted and closed:
            return filled(
                "{0} is the address of none of these hosts; something accepts connections there, and MASTER_PORT "
                "of {1} was taken, so that it may be that host, translated on the way",
                meanings[host].master,
                closed[0],
            )
        if busy := [other for other, trial in trials.items() if trial.needed and trial.is_busy]:
            return filled(
                "{0} is the address of none of these hosts, and may be translated on the way; {1} did not run for a "
                "second or more while that was tried",
                meanings[host].master,
                busy[0],
            )
    return ""


_OWN_HOST = NameResolution(("127.0.0.1",))


def rendezvous_faults(
    names: Mapping[str, HostNames], meanings: Mapping[str, MasterMeaning], launch: LaunchConfig
) -> Iterator[tuple[str, str]]:
    """Host and reason, of those that end the rendezvous.

    Raises: ValueError for an address that is none.
    """
    if launch.store_by_name:
        yield from _not_recognised(names, meanings, launch.master_addr)
    if launch.announces_name:
        yield from _not_found(names, meanings)


def _not_recognised(
    names: Mapping[str, HostNames], meanings: Mapping[str, MasterMeaning], endpoint: str
) -> Iterator[tuple[str, str]]:
    owners = {owner for meaning in meanings.values() for owner in meaning.owners}
    for host, host_names in names.items():
        resolution = host_names.own_resolution
        if endpoint == host_names.own or resolution.error == NO_ANSWER or host not in meanings:
            continue
        if meanings[host].is_loopback and (is_address(endpoint) or endpoint == "localhost"):
            continue
        if resolution.error:
            yield (
                host,
                filled("is not compared: the host's own name {0} has no address, which ends torchrun", host_names.own),
            )
        elif owners == {host} and not _shared(resolution.addresses, meanings[host].addresses):
            listed = ", ".join(limit_items(list(resolution.addresses), 3))
            yield (
                host,
                filled(
                    "is the host's own address, but its name {0} resolves to {1}: torchrun opens no store",
                    host_names.own,
                    listed,
                ),
            )


def _shared(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    return not {normalize_host(address) for address in first}.isdisjoint(map(normalize_host, second))


def _not_found(names: Mapping[str, HostNames], meanings: Mapping[str, MasterMeaning]) -> Iterator[tuple[str, str]]:
    """The hosts that do not come to rank 0 by the name that it announces."""
    if not names or not all(host_names.full for host_names in names.values()):
        return
    first = min(names, key=lambda host: names[host].full)
    announced = names[first].full
    for host, host_names in names.items():
        meaning = _OWN_HOST if is_localhost(announced) else host_names.names.get(announced)
        if host == first or meaning is None or meaning.error == NO_ANSWER or host not in meanings:
            continue
        if reason := _leads_astray(meaning, names[first]):
            yield (
                host,
                filled("is not where the ranks meet: {0} announces itself as {1}, which {2}", first, announced, reason),
            )


def _leads_astray(meaning: NameResolution, first: HostNames) -> str:
    if meaning.error:
        return "has no address here"
    if all(map(is_loopback, meaning.addresses)):
        return "is loopback here"
    return ""
