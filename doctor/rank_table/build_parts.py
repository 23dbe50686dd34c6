"""What a rank table is made of, out of the hosts' facts: NPUs, family, super pods, addresses, names. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import IPv4Interface, IPv4Network, IPv6Interface, IPv6Network, ip_network
from typing import TypeVar, cast

import msgspec

from doctor.engine.addresses import means_own_host
from doctor.engine.fact import Absent, Fact, Unreadable
from doctor.engine.grouping import sets_by_key
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.facts.hccn.device_addresses import DeviceAddresses
from doctor.facts.hccn.fleet import address_use
from doctor.facts.hccn.super_pod import SuperDevices, SuperPodId
from doctor.facts.network import HostAddresses, is_external
from doctor.facts.npu import NpuInventory, NpuProduct
from doctor.hosts.nodeset import InventoryError, validate_host
from doctor.job import LaunchConfig, limit_items, product_family

F = TypeVar("F", bound=Fact)
FactLookup = Callable[[str, type[Fact]], "Fact | Absent"]
"""A fact of a host, or why there is none: `doctor.engine.evaluate.FactCache.get`."""

Npus = Mapping[str, tuple[int, ...]]
"""By host, the physical ids that are to be in the table."""


class BuildProblem(msgspec.Struct, frozen=True):
    """One reason why no table can be built, in one line."""

    text: str
    wrong: bool = False
    """True: this is certainly wrong. False: it could not be determined."""
    host: str = ""


class RankTableBuildError(Exception):
    """Why there is no table."""

    def __init__(self, problems: Sequence[BuildProblem]) -> None:
        super().__init__(joined("; ", (problem.text for problem in problems)))
        self.problems = tuple(problems)

    @property
    def wrong(self) -> bool:
        return any(problem.wrong for problem in self.problems)


class HostSuperPod(msgspec.Struct, frozen=True):
    """A host's super pod, and the SDIDs of its NPUs."""

    super_pod: SuperPodId
    sdids: dict[int, int]


class FactFinder:
    """Looks facts up, and keeps what stands against the table, each line once."""

    def __init__(self, lookup: FactLookup) -> None:
        self.lookup = lookup
        self._problems: dict[BuildProblem, None] = {}

    def get(self, host: str, fact: type[F], *, optional: bool = False) -> F | None:
        """The fact; None, and a line with the reason, when it could not be read. ``optional``: it may be absent."""
        value = self.lookup(host, fact)
        if not isinstance(value, Absent):
            return cast(F, value)
        if not optional or isinstance(value, Unreadable):
            self.add_problem(host, str(value))
        return None

    def add_problem(self, host: str, text: str, *, wrong: bool = False) -> None:
        self._problems[
            BuildProblem(strip_control_chars(filled("{0}: {1}", host, text) if host else text, 400), wrong, host)
        ] = None

    def raise_problems(self) -> None:
        """Raises: NotMade, when anything stands against the table so far."""
        if self._problems:
            raise RankTableBuildError(list(self._problems))


def npus_of(finder: FactFinder, hosts: Sequence[str], devices: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """All NPUs of each host that could be read, which must be those that the others have; or the chosen ones."""
    chosen: dict[str, tuple[int, ...]] = {}
    groups: dict[tuple[int, ...], list[str]] = {}
    for host in hosts:
        inventory = _inventory(finder, host)
        if not inventory:
            continue
        if absent_npus := _npus_without_device_file(inventory, devices):
            more = "" if devices else " (npu-missing); --devices chooses among the others"
            finder.add_problem(
                host, filled("NPU {0} has no device file{1}", _format_npus(absent_npus), more), wrong=True
            )
        chosen[host] = tuple(sorted(devices or inventory.devices))
        groups.setdefault(chosen[host], []).append(host)
    if len(groups) > 1:
        groups_text = joined(
            "; ",
            (f"{', '.join(limit_items(who, 3))}: NPU {_format_npus(npus)}" for npus, who in sorted(groups.items())),
        )
        finder.add_problem(
            "",
            filled("the hosts have different NPUs ({0}); --devices chooses those that all have", groups_text),
            wrong=True,
        )
    return chosen


def _inventory(finder: FactFinder, host: str) -> NpuInventory | None:
    inventory = finder.lookup(host, NpuInventory)
    if isinstance(inventory, NpuInventory) and inventory.devices:
        return inventory
    why = str(inventory) if isinstance(inventory, Absent) else "no NPU has a device file"
    finder.add_problem(host, why, wrong=not isinstance(inventory, Unreadable))
    return None


def _npus_without_device_file(inventory: NpuInventory, devices: Sequence[int]) -> list[int]:
    """NPUs that are chosen, or that must be there when all are, and have no device file."""
    last = max((inventory.pci_count, *(number + 1 for number in inventory.devices)))
    return sorted(set(devices or range(last)) - set(inventory.devices))


def family_of(finder: FactFinder, hosts: Iterable[str], launch: LaunchConfig) -> str:
    """A1, A2 or A3. Raises: NotMade."""
    products: dict[str, NpuProduct] = {}
    if not launch.product:
        products = {host: host_product for host in hosts if (host_product := finder.get(host, NpuProduct))}
        if not products:
            finder.raise_problems()
    try:
        product = product_family(launch, products)
    except Unreadable as why:
        finder.add_problem("", str(why), wrong=True)
        product = ""
    if product not in ("", "A1", "A2", "A3"):
        finder.add_problem("", filled("the NPUs are of the family {0}; expected A1, A2 or A3", product), wrong=True)
    if product not in ("A1", "A2", "A3"):
        finder.raise_problems()
    return product


def pods_of(finder: FactFinder, npus: Npus) -> dict[str, HostSuperPod]:
    """The super pod of each host, and the SDIDs of its NPUs."""
    pods = {}
    for host, chosen_npus in npus.items():
        pod, devices = finder.get(host, SuperPodId), finder.get(host, SuperDevices)
        if not pod or not devices:
            continue
        for npu in chosen_npus:
            if npu not in devices.by_npu:
                finder.add_problem(
                    host, filled("NPU {0}: {1}", npu, devices.unread.get(f"NPU {npu}", "npu-smi does not list it"))
                )
            elif _is_other_device(devices.by_npu[npu].sdid, npu):
                finder.add_problem(
                    host, filled("NPU {0}: its SDID {1} is that of another device", npu, devices.by_npu[npu].sdid)
                )
        chosen_devices = {npu: device for npu, device in devices.by_npu.items() if npu in chosen_npus}
        pod_ids = sorted({pod.id, *(device.super_pod_id for device in chosen_devices.values())})
        if len(pod_ids) > 1:
            finder.add_problem(
                host,
                filled("npu-smi names several super pods: {0}; expected one a host", ", ".join(limit_items(pod_ids))),
            )
            continue
        pods[host] = HostSuperPod(pod, {npu: device.sdid for npu, device in chosen_devices.items()})
    return pods


def _is_other_device(sdid: int, npu: int) -> bool:
    """The number follows the hardware's coding, and means another device."""
    chip, die, device = sdid >> 18 & 15, sdid >> 16 & 3, sdid & 0xFFFF
    return sdid >= 1 << 16 and device == 2 * chip + die and device != npu


def addresses_of(
    finder: FactFinder,
    hosts: Sequence[str],
    npus: Npus,
    launch: LaunchConfig,
    product: str,
    pods: Mapping[str, HostSuperPod],
) -> dict[str, dict[int, str]]:
    """The device addresses: of all NPUs, or of none, where not all have one and the job does without.

    ``hosts`` are all of the job's, also those that could not be read.
    """
    products = {host: NpuProduct(family=product, evidence="") for host in npus}  # type: ignore[arg-type]
    reach = dict.fromkeys(hosts)
    use = address_use(npus, launch, products, reach, {host: pod.super_pod for host, pod in pods.items()})
    addresses: dict[str, dict[int, str]] = {}
    interfaces: dict[str, dict[int, _Interface]] = {}
    for host, chosen_npus in npus.items():
        needed = use[host] is True
        device_addresses = finder.get(host, DeviceAddresses, optional=not needed)
        if device_addresses:
            addresses[host] = _host_addresses(finder, host, chosen_npus, device_addresses, needed)
            interfaces[host] = {npu: device_addresses.by_npu[npu] for npu in addresses[host]}
    if not all(len(addresses.get(host, ())) == len(host_npus) for host, host_npus in npus.items()):
        return {}
    if len(npus) == len(hosts):
        _refuse_unplanned(finder, interfaces)
    return addresses


_Interface = IPv4Interface | IPv6Interface
_Network = IPv4Network | IPv6Network
_PRIVATE = tuple(map(ip_network, ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")))


def _block(interface: _Interface) -> _Network:
    """What one site's plan of addresses is made of: a private range, or the 16 first bits of a public address."""
    private = (block for block in _PRIVATE if interface.version == block.version and interface.ip in block)
    return next(private, ip_network((interface.ip, 16 if interface.version == 4 else 48), strict=False))


def _refuse_unplanned(finder: FactFinder, interfaces: Mapping[str, Mapping[int, _Interface]]) -> None:
    """Notes device addresses in no range that another host of several has one in, too: a stranger may have them."""
    users = sets_by_key((_block(each), host) for host, by_npu in interfaces.items() for each in by_npu.values())
    for host, by_npu in interfaces.items() if len(interfaces) > 1 else ():
        for npu, interface in by_npu.items():
            block = _block(interface)
            if users[block] == {host}:
                text = filled("NPU {0} says device IP {1}; expected one of the other hosts' ranges", npu, interface.ip)
                finder.add_problem(host, filled("{0} (no other has one in {1})", text, block), wrong=True)


def _host_addresses(
    finder: FactFinder, host: str, chosen_npus: Iterable[int], device_addresses: DeviceAddresses, needed: bool
) -> dict[int, str]:
    """The known addresses. Notes list NPUs that did not answer, and those that need one and have none."""
    addresses = {}
    for npu in chosen_npus:
        if npu in device_addresses.by_npu:
            addresses[npu] = str(device_addresses.by_npu[npu].ip)
        elif npu not in device_addresses.unset:
            finder.add_problem(
                host,
                filled(
                    "NPU {0}: {1}",
                    npu,
                    device_addresses.unread.get(f"NPU {npu}", "hccn_tool did not report its address"),
                ),
            )
        elif needed:
            finder.add_problem(
                host, filled("NPU {0} has no device IP; expected one (device-ip-unset)", npu), wrong=True
            )
    return addresses


def ips_of(finder: FactFinder, hosts: Iterable[str]) -> dict[str, str]:
    """The IPv4 address of each host that has just one which no other host has, or is named by it; else nothing."""
    ips_by_host = {host: _ipv4(host_addresses) for host in hosts if (host_addresses := finder.get(host, HostAddresses))}
    owners = Counter(ip for ips in ips_by_host.values() for ip in ips)
    ips = {}
    for host, mine in ips_by_host.items():
        usable = [ip for ip in mine if owners[ip] == 1]
        ips[host] = host if host in usable else usable[0] if len(usable) == 1 else ""
    return ips


def _ipv4(host_addresses: HostAddresses) -> set[str]:
    """The addresses by which another host may find this one."""
    candidates = (entry for entry in host_addresses.interfaces if is_external(entry.interface, entry.address))
    return {entry.address for entry in candidates if ":" not in entry.address}


def server_id(finder: FactFinder, host: str, ip: str, names: Mapping[str, str]) -> str:
    """The host's name in the inventory; where that means every host to itself, its address or its own name."""
    if not means_own_host(host):
        return host
    try:
        return ip or validate_host(names.get(host, ""), "the host's own name")
    except InventoryError:
        finder.add_problem(
            host, "the host cannot be identified: it has no single address and no name; expected its name in HOSTS"
        )
        return ""


def _format_npus(npus: Iterable[int]) -> str:
    return ", ".join(limit_items(npus, 16))
