"""What of a host's facts is a setting or a version: it stays as it is until somebody changes it.

Counters, free space, processes, times and what a host measures are none. One table, by which runs are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from doctor.engine.addresses import means_own_host
from doctor.engine.evaluate import FactCache
from doctor.engine.fact import Absent, Fact, Unreadable
from doctor.engine.grouping import lists_by_key
from doctor.engine.sanitize import number_ranges
from doctor.engine.texts import filled
from doctor.facts.control_group import ControlGroup
from doctor.facts.firewall import FirewallRules
from doctor.facts.gpu import GpuCards, GpuInventory
from doctor.facts.hccn.link_state import DeviceFec, DeviceMtu
from doctor.facts.hccn.traffic import TlsSwitches
from doctor.facts.host_settings import HostSettings, NetworkCards
from doctor.facts.host_state import STATE_CATEGORIES, HostState
from doctor.facts.interfaces import Interfaces, Link
from doctor.facts.job_snapshot import JobSnapshot
from doctor.facts.kernel import LiveSettings
from doctor.facts.limits import ResourceLimits
from doctor.facts.memory import HostMemory, SharedMemory
from doctor.facts.mounts import Mount, MountTable
from doctor.facts.names import HostNames
from doctor.facts.nic_rings import NicRings
from doctor.facts.python_env import PythonEnv
from doctor.facts.snapshot import CATEGORIES, FILES, HostSnapshot
from doctor.facts.versions import CannVersion, NpuVersions

Values = Mapping[str, str]
"""By name."""
UNREAD = "not read"
"""A name whose value says what else belongs to a category, and was not read: no name of one run alone is compared."""


class SettingSource(NamedTuple):
    """One category of settings, and the fact that it is read from."""

    category: str
    fact: type[Fact]
    values: Callable[[Any], Values | None]
    names: str = ""
    """How the names of its values begin; empty: as those of no other source of the category."""


def _system(fact: HostSettings) -> Values:
    named = {
        "kernel": fact.kernel,
        "CPU governor": ", ".join(fact.governors),
        "CPU frequency driver": fact.frequency_driver,
        "transparent huge pages": fact.huge_pages,
        "clock source": fact.clock_source,
        "swap devices": ", ".join(sorted(fact.swap_devices)),
        "kernel command line": " ".join(fact.command_line),
    }
    return {name: value for name, value in named.items() if value}


def _limits(fact: ResourceLimits) -> Values:
    limits = {"open files": fact.nofile, "locked memory": fact.memlock, "processes": fact.nproc, **fact.others}
    return {
        name: " ".join("unlimited" if value is None else str(value) for value in (limit.soft, limit.hard))
        for name, limit in limits.items()
    }


def _mounts(fact: MountTable) -> Values:
    mounts = {mount.target: _mount(mount) for mount in (*fact.disks, *fact.mounts)}
    return {filled("options of {0}", name) if name == "/dev/shm" else name: text for name, text in mounts.items()}


def _mount(mount: Mount) -> str:
    """Without what differs at each mount: descriptors and process numbers (autofs, FUSE)."""
    passed_over = ("fd=", "pgrp=", "pipe_ino=", "timeout=", *(("size=",) if mount.target == "/dev/shm" else ()))
    options = [word for word in mount.options if not word.startswith(passed_over)]
    return f"{mount.source} {mount.kind} {','.join(sorted(options))}"


def _npu_versions(fact: NpuVersions) -> Values:
    return {"NPU driver": fact.driver, **({"NPU firmware": fact.firmware} if fact.firmware else {})}


def _interfaces(fact: Interfaces) -> Values:
    interfaces = [link for link in fact.links if not link.is_loopback and not link.is_container_bridge]
    names, addresses, routes = {link.name for link in interfaces}, dict[str, list[str]](), dict[str, list[str]]()
    for address in fact.addresses:
        if not address.is_ipv6:  # those change by themselves
            addresses.setdefault(address.interface, []).append(f"{address.address}/{address.prefix}")
    for route in fact.routes or ():
        network = f"{route.network}/{route.prefix}"
        if route.interface in names and ":" not in network and network not in fact.networks_of(route.interface):
            routes.setdefault(filled("route {0}", network) if route.prefix else "default route", []).append(
                route.interface
            )
    values = {
        **{link.name: ", ".join((*_state(link), *addresses.get(link.name, ()))) for link in interfaces},
        **{f"{delay.interface} {delay.kind}": delay.deeds for delay in fact.delays if delay.interface in names},
        **_loopback(fact),
    }
    if fact.has_rules:
        values["policy rules"] = "given"
    return {**values, **{name: ", ".join(sorted(where)) for name, where in routes.items()}}


def _state(link: Link) -> tuple[str, str]:
    return f"mtu {link.mtu}", "up" if link.is_up else "down"


def _loopback(fact: Interfaces) -> Values:
    """What the loopback interface has beside what every host's has: addresses of services that several hosts offer."""
    own = [link for link in fact.links if link.is_loopback and (link.mtu, link.is_up) != (65536, True)]
    values = {link.name: ", ".join(_state(link)) for link in own}
    names = {link.name for link in fact.links if link.is_loopback}
    more = [
        f"{address.address}/{address.prefix}"
        for address in fact.addresses
        if address.interface in names and not means_own_host(address.address)
    ]
    return values | ({"loopback addresses": ", ".join(more)} if more else {})


def _of_each(setting: str, values: Mapping[str, object]) -> dict[str, str]:
    """One setting of each interface."""
    return {f"{name} {setting}": str(value) for name, value in values.items()}


def _cards(fact: Interfaces) -> Values | None:
    """None: of a run that did not read them."""
    links = [link for link in fact.links if not link.is_container_bridge]
    values = {f"{link.name} {name}": value for link in links for name, value in (link.driver or {}).items()}
    return values or None


def _firewall(fact: FirewallRules) -> Values | None:
    """By chain what it does; without chains that the software of containers writes anew all the time."""
    if fact.unread:
        return None
    return {
        f"{table.tool} {table.family} {table.name} {chain.name}": "; ".join(
            (*([f"policy {chain.policy}"] if chain.hook else []), *(rule.text for rule in chain.rules))
        )
        for table in fact.tables
        for chain in table.chains
        if not chain.name.startswith(_WRITTEN_ANEW)
    }


_WRITTEN_ANEW = ("KUBE-", "CNI-", "cali-", "CILIUM", "DOCKER", "FLANNEL", "NETAVARK", "f2b-", "nv_", "dv_")
"""Chains of Kubernetes, its networks, Docker, podman and fail2ban."""


def _control_group(fact: ControlGroup) -> Values:
    bounds = {
        "memory limit": str(min((bound.limit for bound in fact.memory), default="")),
        "CPU quota": "" if fact.quota is None else f"{fact.quota:g}",
    }
    values = {"CPUs": str(fact.online_cpus), "CPUs of a process": str(fact.allowed_cpus), **bounds}
    return {name: value for name, value in values.items() if value}


def _process_limit(fact: ControlGroup) -> Values:
    return {} if fact.processes is None else {"processes of the control group": str(fact.processes)}


def _names(fact: HostNames) -> Values:
    """By name its addresses, and what the host calls itself. Of a name that had no answer nothing is known."""
    meanings = {name: ", ".join(sorted(meaning.addresses)) for name, meaning in fact.names.items()}
    return {UNREAD: "others", "own name": fact.own, **{name: text for name, text in meanings.items() if text}}


def _python(fact: PythonEnv) -> Values:
    packages = {name.replace("_", "-").lower(): version for name, version in fact.packages.items()}
    return {"interpreter": f"{fact.path} {fact.version}", **packages}


def _alike(values: Mapping[int, object]) -> str:
    """One setting of each device: what all have, else by value the devices."""
    devices = lists_by_key((str(value), device) for device, value in sorted(values.items()))
    parts = (filled("{0} ({1})", value, number_ranges(those)) for value, those in devices.items())
    return "".join(devices) if len(devices) == 1 else ", ".join(parts)


def _gpus(fact: GpuInventory) -> Values:
    """Of all GPUs each setting that an operator chooses. What the driver could not read is not known to be gone."""
    values = {UNREAD: "others"} if any(gpu.failed or gpu.strange for gpu in fact.gpus) else {}
    for field in ("name", "persistence", "mig", "compute_mode", "ecc_mode", "power_limit", "vbios"):
        by_gpu = {gpu.index: value for gpu in fact.gpus if (value := getattr(gpu, field)) not in (None, "")}
        values |= {"GPU " + field.replace("_", " "): _alike(by_gpu)} if by_gpu else {}
    return values


def _of_category(category: str) -> Callable[[HostSnapshot | HostState], Values | None]:
    return lambda fact: fact.values.get(category)


SOURCES: tuple[SettingSource, ...] = (
    SettingSource("python", JobSnapshot, lambda fact: fact.packages),
    SettingSource("python", PythonEnv, _python),
    SettingSource("libraries", JobSnapshot, lambda fact: fact.libraries),
    SettingSource("sources", JobSnapshot, lambda fact: fact.sources),
    SettingSource("drivers", NpuVersions, _npu_versions, "NPU"),
    SettingSource("drivers", CannVersion, lambda fact: {"CANN": fact.version}, "CANN"),
    SettingSource("drivers", GpuCards, lambda fact: {"GPU driver": fact.driver} if fact.driver else {}, "GPU"),
    SettingSource("devices", GpuCards, lambda fact: {"GPUs": str(fact.pci)}, "GPUs"),
    SettingSource("devices", GpuInventory, _gpus, "GPU "),
    SettingSource("devices", TlsSwitches, lambda fact: {"NPU TLS switch": _alike(fact.by_npu)}, "NPU TLS"),
    SettingSource("devices", DeviceMtu, lambda fact: {"NPU MTU": _alike(fact.by_npu)}, "NPU MTU"),
    SettingSource("devices", DeviceFec, lambda fact: {"NPU FEC": _alike(fact.by_npu)}, "NPU FEC"),
    SettingSource("system", HostSettings, _system),
    SettingSource("system", HostMemory, lambda fact: {"memory": filled("{0} GiB", fact.total >> 30)}),
    SettingSource("system", ControlGroup, _control_group),
    SettingSource("limits", ControlGroup, _process_limit),
    SettingSource("names", HostNames, _names),
    SettingSource("interfaces", Interfaces, _interfaces),
    SettingSource("cards", Interfaces, _cards),
    SettingSource(
        "cards", NicRings, lambda fact: _of_each("ring", {name: fact.rings[name].current for name in fact.rings})
    ),
    SettingSource(
        "cards", NetworkCards, lambda fact: _of_each("speed", {name: fact.cards[name].megabits for name in fact.cards})
    ),
    SettingSource("firewall", FirewallRules, _firewall),
    SettingSource("mounts", MountTable, _mounts),
    SettingSource("mounts", SharedMemory, lambda fact: {"/dev/shm": f"size={fact.size}"} if fact.there else {}),
    SettingSource("limits", ResourceLimits, _limits),
    SettingSource("sysctl", LiveSettings, lambda fact: fact.values),
    *(SettingSource(category, HostSnapshot, _of_category(category)) for category in (*CATEGORIES, FILES)),
    *(SettingSource(category, HostState, _of_category(category)) for category in STATE_CATEGORIES),
)
"""Of several sources of one category all are read; a name that two have must have one value in both."""

READ_FOR_CHANGES: tuple[type[Fact], ...] = tuple(
    dict.fromkeys(source.fact for source in SOURCES if source.category != "devices")
)
"""What a run reads that is to be compared with later ones. The settings of devices come from slow tools: only where a
check reads them, too."""


def settings_of(host: str, facts: FactCache) -> dict[str, dict[str, Values]]:
    """What is known of one host: by fact and category, values by name.

    A fact that the host cannot have is empty: its values are not there. One that was not read is left out.
    """
    settings: dict[str, dict[str, Values]] = {}
    for source in SOURCES:
        if source.fact.output_name() not in facts.records[host].outputs:
            continue
        value = facts.get(host, source.fact)
        if isinstance(value, Unreadable):
            continue
        values = {} if isinstance(value, Absent) else source.values(value)
        if values is not None:
            settings.setdefault(source.fact.__name__, {})[source.category] = values
    return settings


def unread_reason(host: str, categories: Collection[str], facts: FactCache) -> str:
    """Why settings of these categories were not read from a host; empty where it was not asked for them."""
    sources = (source for source in SOURCES if source.category in categories)
    values = (
        facts.get(host, source.fact) for source in sources if source.fact.output_name() in facts.records[host].outputs
    )
    return next((str(value) for value in values if isinstance(value, Unreadable)), "")


def reading_facts(category: str, name: str) -> frozenset[type[Fact]]:
    """The facts that one setting is read from, those that hold everything left out."""
    return frozenset(
        source.fact
        for source in SOURCES
        if source.category == category and source.fact not in (HostSnapshot, HostState, JobSnapshot)
        if name.startswith(source.names)
    )
