"""How many of the links between hosts a run has tried: said beside the verdict, which holds for those alone. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from doctor.engine.evaluate import FactCache
from doctor.engine.fact import Fact
from doctor.engine.grouping import sets_by_key
from doctor.engine.record import HostRecord
from doctor.engine.texts import filled
from doctor.facts.hccn.device_addresses import DeviceAddresses, VnicAddresses
from doctor.facts.hccn.pings import DevicePings, HccsPings
from doctor.facts.hccn.super_pod import SuperPodId
from doctor.facts.npu import NpuInventory
from doctor.facts.smoke.further_stages import SmokePairs
from doctor.smoke.model import SmokeRun

Link = frozenset[Any]
"""Both ends."""


def link_coverage(records: Mapping[str, HostRecord], smoke: SmokeRun | None = None) -> tuple[str, ...]:
    """One line for each kind of link that the run has tried some of; none for what it has not tried at all.

    A link is two hosts, or the NPUs of one number on two hosts, whichever of them began.
    """
    cache = FactCache(records)
    lines: list[str] = []
    if _has(records, DevicePings):
        lines += _line("NPU pings", "links between NPUs of the same number", *_pinged_links(cache))
    if _has(records, HccsPings):
        lines += _line("HCCS pings", "links between NPUs of the same number in a super pod", *_hccs_links(cache))
    if smoke is not None and _has(records, SmokePairs):
        lines += _line("smoke pairs, before the training", "pairs of hosts", *_exchanged_pairs(cache, smoke))
    return tuple(lines)


def _has(records: Mapping[str, HostRecord], fact: type[Fact]) -> bool:
    return any(fact.output_name() in record.outputs for record in records.values())


def _line(kind: str, links: str, tried: Mapping[Link, bool], count: int) -> Iterator[str]:
    """``tried``: with whether packets of it were lost."""
    if tried and count:
        lost = sum(tried.values())
        outcome = filled("{0} of these lost packets", lost) if lost else "none of these failed"
        if count == 1:
            only = "{0}: tried the only link, it lost packets" if lost else "{0}: tried the only link, it did not fail"
            yield filled(only, kind)
        elif len(tried) == count:
            yield filled("{0}: tried all {1} {2}, {3}", kind, count, links, outcome)
        else:
            yield filled("{0}: tried {1} of {2} {3}, {4}", kind, len(tried), count, links, outcome)


def _pairs_of(ends: Iterable[tuple[Hashable, str]]) -> int:
    """Pairs of hosts with an end of the same kind, over all kinds."""
    return sum(len(hosts) * (len(hosts) - 1) // 2 for hosts in sets_by_key(ends).values())


def _pinged_links(cache: FactCache) -> tuple[dict[Link, bool], int]:
    holders: dict[tuple[str, int], list[str]] = defaultdict(list)
    """The hosts by address and number of the NPU: two by a fault, and then it is not known which of them answered."""
    for host, addresses in cache.fleet(DeviceAddresses).items():
        for npu, interface in addresses.by_npu.items():
            holders[str(interface.ip), npu].append(host)
    tried: dict[Link, bool] = defaultdict(bool)
    for host, tests_of_host in cache.fleet(DevicePings).items():
        for ping in tests_of_host.pings:
            for target in holders.get((ping.address, ping.npu), ()):
                if len(holders[ping.address, ping.npu]) == 1 and host != target:
                    tried[frozenset({(ping.npu, host), (ping.npu, target)})] |= ping.received < ping.sent
    ends = {(npu, host) for (_, npu), hosts in holders.items() for host in hosts}
    return {link: lost for link, lost in tried.items() if link <= ends}, _pairs_of(ends | _expected_ends(cache))


def _expected_ends(cache: FactCache) -> set[tuple[int, str]]:
    """The NPUs that are there, with an address or without; of a host that did not answer those that others have."""
    installed = cache.fleet(NpuInventory).items()
    ends = {(npu, host) for host, inventory in installed if not inventory.inference for npu in inventory.devices}
    silent = [host for host, record in cache.records.items() if record.visit.failure]
    return ends | {(npu, host) for npu, _ in ends for host in silent}


def _hccs_links(cache: FactCache) -> tuple[dict[Link, bool], int]:
    pods = {host: pod.id for host, pod in cache.fleet(SuperPodId).items()}
    ends = {
        (pods[host], str(vnic.address.ip)): ((pods[host], npu), host)
        for host, vnics in cache.fleet(VnicAddresses).items()
        if host in pods
        for npu, vnic in vnics.by_npu.items()
    }
    tried: dict[Link, bool] = defaultdict(bool)
    for host, tests_of_host in cache.fleet(HccsPings).items():
        for ping in tests_of_host.pings if host in pods else ():
            if (pods[host], ping.address) in ends:
                link = frozenset({((pods[host], ping.npu), host), ends[pods[host], ping.address]})
                tried[link] |= ping.received < ping.sent
    return tried, _pairs_of(ends.values())


def _exchanged_pairs(cache: FactCache, smoke: SmokeRun) -> tuple[dict[Link, bool], int]:
    plan = smoke.plan
    tried: dict[Link, bool] = {}
    for tests_of_host in cache.fleet(SmokePairs).values():
        for exchange in tests_of_host.pairs:
            ranks = (exchange.rank, exchange.peer)
            hosts = {plan.host_of(rank) for rank in ranks if 0 <= rank < plan.world}
            if len(hosts) > 1:
                tried[frozenset(hosts)] = False
    count = len(plan.ranks_by_host)
    return tried, count * (count - 1) // 2
