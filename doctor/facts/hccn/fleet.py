"""The NPUs of the whole fleet side by side: what most of them have, who differs, whose ports the job needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from doctor.analysis.majority import most_common_value
from doctor.engine.check import Skip
from doctor.engine.fact import Unreadable
from doctor.engine.grouping import lists_by_key
from doctor.engine.result import Finding
from doctor.engine.texts import filled
from doctor.facts.hccn.device_addresses import DetectAddresses
from doctor.facts.hccn.super_pod import SuperPodId
from doctor.facts.npu import NpuProduct
from doctor.job import LaunchConfig, limit_items

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Npu = tuple[str, int]
"""Host and physical id."""


class HasNpus(Protocol[T_co]):
    """A fact with one value per NPU, by physical id."""

    @property
    def by_npu(self) -> Mapping[int, T_co]: ...


def flatten_by_npu(facts: Mapping[str, HasNpus[T]]) -> dict[Npu, T]:
    """The values of all NPUs of all hosts."""
    return {(host, npu): value for host, fact in facts.items() for npu, value in sorted(fact.by_npu.items())}


def watchers(detect: DetectAddresses | None, addresses: Iterable[object]) -> list[int]:
    """The NPUs of a host that keep pinging one of these addresses: their health is that of its NPU."""
    watched = {str(address) for address in addresses if address}
    return [npu for npu, address in detect.by_npu.items() if str(address) in watched] if detect else []


def group_by_host(values: Mapping[Npu, T]) -> Iterator[tuple[str, T, list[int]]]:
    """Host, value, and the NPUs of that host that have it."""
    groups = lists_by_key(((host, value), npu) for (host, npu), value in values.items())
    for (host, value), npus in groups.items():
        yield host, value, npus


def format_npus(npus: Iterable[Npu], limit: int = 8) -> list[str]:
    """NPUs in words, for a message; not more than ``limit``."""
    return limit_items((filled("NPU {0} of {1}", npu, host) for host, npu in npus), limit)


def differing_npus(values: Mapping[Npu, T], template: str, **more: Any) -> Iterator[Finding]:
    """A finding for each host and value that is not the commonest among all NPUs; for a tie one that blames all.

    The template may name ``npus``, ``observed``, ``expected``, ``count`` (NPUs that have ``expected``) and ``total``.
    Raises: Skip when there is nothing to compare.
    """
    if len(values) < 2:
        raise Skip("a single NPU cannot be compared")
    expected = most_common_value(values.values())
    if expected is None:
        yield tie_finding(values, **more)
        return
    count = sum(value == expected for value in values.values())
    for host, observed, npus in group_by_host({npu: value for npu, value in values.items() if value != expected}):
        yield Finding(
            template,
            hosts=[host],
            npu=npus[0],
            npus=npus,
            observed=observed,
            expected=expected,
            count=count,
            total=len(values),
            **more,
        )


def tie_finding(values: Mapping[Npu, T], **more: Any) -> Finding:
    """The finding for NPUs that differ while no value has a majority: it blames them all."""
    groups = lists_by_key((str(value), host_npu) for host_npu, value in values.items())
    hosts = list(dict.fromkeys(host for host, _ in values))
    group_texts = {value: " + ".join(format_npus(npus, 3)) for value, npus in sorted(groups.items())[:8]}
    if len(groups) > len(group_texts):
        group_texts["others"] = filled("{0} more values", len(groups) - len(group_texts))
    first = next(iter(values))[1]
    return Finding(
        "the NPUs differ, and no value has a majority: {groups}", hosts=hosts, npu=first, groups=group_texts, **more
    )


Use = dict[str, bool | None]
"""By host, whether the job sends anything through the NPUs' own ports; None: unknown."""


def families(launch: LaunchConfig, products: Mapping[str, NpuProduct]) -> dict[str, str]:
    """The product family of each host: as the user states, else as the host reports."""
    return {host: launch.product or product.family for host, product in products.items()}


def port_use(
    hosts: Iterable[str],
    launch: LaunchConfig,
    products: Mapping[str, NpuProduct],
    reach: Mapping[str, object],
    pods: Mapping[str, SuperPodId] | None,
) -> Use:
    """Which of ``hosts`` need their NPUs' ports for a job on the whole fleet; ``reach`` has all hosts of the fleet.

    Hosts that were reached and have no NPU, such as a login host, are no part of the job; others that are not among
    ``products`` may have some.
    """
    family = families(launch, products)
    count = sum(host in family or getattr(state, "failure", "not read") != "" for host, state in reach.items())
    return {host: _host_uses_ports(family[host], count, pods or {}, launch) for host in hosts if host in family}


def address_use(
    hosts: Iterable[str],
    launch: LaunchConfig,
    products: Mapping[str, NpuProduct],
    reach: Mapping[str, object],
    pods: Mapping[str, SuperPodId] | None,
) -> Use:
    """Which of ``hosts`` need device IPs: those that use the ports, and on A1 every host, one alone too."""
    use = port_use(hosts, launch, products, reach, pods)
    family = families(launch, products)
    return {host: True if family[host] == "A1" else used for host, used in use.items()}


def require_port_use(use: Use, doubtful: Iterable[str], fault: str) -> None:
    """Ends a check of the ports: ``doubtful`` are the hosts with a fault that only counts where ports are used.

    Raises: Unreadable when that is not known, Skip when no host uses them.
    """
    lost = [host for host in doubtful if use.get(host, False) is None]
    if lost:
        raise Unreadable(
            filled("{0} on {1}: its effect is unknown without super pod ids", fault, ", ".join(limit_items(lost, 3)))
        )
    if use and all(used is False for used in use.values()):
        raise Skip("a job on these hosts does not use the NPUs' network ports")


def _host_uses_ports(family: str, hosts: int, pods: Mapping[str, SuperPodId], launch: LaunchConfig) -> bool | None:
    """A host has links of its own inside, A3 those of the super pod; the ports are for what lies beyond."""
    if hosts == 1:
        return False
    if family in ("A1", "A2") or launch.env.get("HCCL_INTER_HCCS_DISABLE", "").upper() == "TRUE":
        return True
    if len({pod.id for pod in pods.values()}) > 1:
        return True
    return None if len(pods) < hosts else False
