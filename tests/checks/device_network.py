"""Fleets of NPU hosts as typed facts of their network ports, and the way to put them before a check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_address, ip_interface
from typing import Any

from doctor.engine.catalog import bundled_folder, load_check
from doctor.engine.fact import PerHost
from doctor.engine.result import Finding
from doctor.facts.hccn.device_addresses import DetectAddresses, DeviceAddresses, DeviceGateways, HccnConf
from doctor.facts.hccn.link_state import DeviceLinks
from doctor.facts.hccn.super_pod import SuperPodId
from doctor.facts.npu import NpuProduct
from doctor.facts.visit import Reachability
from doctor.job import LaunchConfig

HOSTS = ("h1", "h2", "h3", "h4")
Hosts = tuple[str, ...]


def run_check(name: str, **facts: Any) -> list[Finding]:
    """What the check finds; it is given those of ``facts`` that it asks for. Raises what the check raises."""
    check = load_check(bundled_folder("checks") / f"{name}.py")
    return list(check.function(**{need.parameter: facts.get(need.parameter) for need in check.needs}))


def per(hosts: Hosts, fact: Any) -> PerHost[Any]:
    """The same fact on every host."""
    return PerHost(dict.fromkeys(hosts, fact))


def product(family: str) -> NpuProduct:
    return NpuProduct(family=family, evidence="")  # type: ignore[arg-type]


def fleet(family: str = "A2", hosts: Hosts = HOSTS, pods: int = 1, **env: str) -> dict[str, Any]:
    """What a check asks of a fleet beside its own facts."""
    placed = {host: SuperPodId(id=number % pods, server_index=number, size=4) for number, host in enumerate(hosts)}
    return {
        "products": per(hosts, product(family)),
        "reach": per(hosts, Reachability(failure="", text="", hint="")),
        "pods": PerHost(placed) if family == "A3" else None,
        "launch": LaunchConfig(env=env),
    }


def _plan(hosts: Hosts, npus: int, address: Callable[[int, int], str]) -> PerHost[DeviceAddresses]:
    return PerHost(
        {
            host: DeviceAddresses(by_npu={npu: ip_interface(address(number, npu)) for npu in range(npus)})
            for number, host in enumerate(hosts)
        }
    )


def a1(hosts: Hosts = HOSTS, npus: int = 8) -> PerHost[DeviceAddresses]:
    """SMP mode: 0/4, 1/5, 2/6, 3/7 share a segment, which is the same on all hosts."""
    return _plan(hosts, npus, lambda host, npu: f"10.0.{npu % 4}.{2 * host + npu // 4 + 1}/24")


def a2(hosts: Hosts = HOSTS, npus: int = 8) -> PerHost[DeviceAddresses]:
    """All in one segment."""
    return _plan(hosts, npus, lambda host, npu: f"29.1.{host}.{npu + 10}/16")


def rails(hosts: Hosts = HOSTS, npus: int = 8) -> PerHost[DeviceAddresses]:
    """A segment for each position."""
    return _plan(hosts, npus, lambda host, npu: f"172.16.{npu}.{host + 1}/24")


def moved(addresses: PerHost[DeviceAddresses], changes: Mapping[tuple[str, int], str]) -> PerHost[DeviceAddresses]:
    """Some NPUs at other addresses; an empty one takes the address away."""
    result = dict(addresses)
    for (host, npu), text in changes.items():
        interfaces, unset = dict(result[host].by_npu), result[host].unset
        interfaces.pop(npu, None)
        if text:
            interfaces[npu] = ip_interface(text)
        else:
            unset = (*unset, npu)
        result[host] = DeviceAddresses(by_npu=interfaces, unset=unset)
    return PerHost(result)


def gateways(addresses: PerHost[DeviceAddresses]) -> PerHost[DeviceGateways]:
    """The last usable address of each NPU's own segment."""
    return PerHost(
        {
            host: DeviceGateways(by_npu={npu: interface.network[-2] for npu, interface in address.by_npu.items()})
            for host, address in addresses.items()
        }
    )


def watching(address: str, npus: int = 8) -> DetectAddresses:
    return DetectAddresses(by_npu={npu: ip_address(address) for npu in range(npus)})


def links(down: tuple[int, ...] = (), npus: int = 8) -> DeviceLinks:
    return DeviceLinks(by_npu={npu: "DOWN" if npu in down else "UP" for npu in range(npus)})


def written(device_addresses: DeviceAddresses, **more: str) -> HccnConf:
    """The file that fits one host's addresses, with more settings for every NPU."""
    return HccnConf(
        by_npu={
            npu: {"address": str(interface.ip), "netmask": str(interface.netmask), **more}
            for npu, interface in device_addresses.by_npu.items()
        }
    )
