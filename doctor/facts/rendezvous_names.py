"""Whether the agents of torchrun find one another by host names: ``--rdzv-backend c10d``. Pure.

Source: PyTorch, torch/distributed/elastic/rendezvous: ``_matches_machine_hostname`` (utils.py), by which an agent takes
itself for the host of the endpoint, and ``RendezvousStoreInfo.build`` (api.py) with ``_RendezvousState`` in
dynamic_rendezvous.py: the agent whose host has the first name in the order of the alphabet is rank 0, and announces it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from doctor.engine.addresses import is_localhost
from doctor.engine.texts import filled
from doctor.facts.master_address import MasterMeaning
from doctor.facts.names import NO_ANSWER, HostNames, NameResolution, is_address, is_loopback, normalize_host
from doctor.job import LaunchConfig, limit_items

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
