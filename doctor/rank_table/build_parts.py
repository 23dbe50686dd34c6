"""What a rank table is made of, out of the hosts' facts: NPUs, family, super pods, addresses, names. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import IPv4Address, ip_address
from typing import TypeVar, cast

import msgspec

from doctor.engine.fact import Absent, Fact, Unreadable
from doctor.engine.sanitize import plain
from doctor.facts.hccn import DeviceAddresses, SuperDevices, SuperPod
from doctor.facts.hccn.fleet import address_use
from doctor.facts.network import HostAddresses
from doctor.facts.npu import NpuInventory, NpuProduct
from doctor.hosts.nodeset import InventoryError, valid
from doctor.job import Launch, family, few

F = TypeVar("F", bound=Fact)
Look = Callable[[str, type[Fact]], "Fact | Absent"]
"""A fact of a host, or why there is none: `doctor.engine.evaluate.Book.look`."""

Npus = Mapping[str, tuple[int, ...]]
"""By host, the physical ids that are to be in the table."""


class Against(msgspec.Struct, frozen=True):
    """What stands against making a table, in one line."""

    text: str
    wrong: bool = False
    """It is known that this is not as it must be; else it could not be told."""
    host: str = ""


class NotMade(Exception):
    """Why there is no table."""

    def __init__(self, against: Sequence[Against]) -> None:
        super().__init__("; ".join(one.text for one in against))
        self.against = tuple(against)

    @property
    def wrong(self) -> bool:
        return any(one.wrong for one in self.against)


class Pod(msgspec.Struct, frozen=True):
    """A host's super pod, and the SDIDs of its NPUs."""

    pod: SuperPod
    sdids: dict[int, int]


class Finder:
    """Looks facts up, and keeps what stands against the table, each line once."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self._against: dict[Against, None] = {}

    def get(self, host: str, fact: type[F], *, optional: bool = False) -> F | None:
        """The fact; None, and a line that says why, when it could not be read. ``optional``: it may be absent."""
        found = self.look(host, fact)
        if not isinstance(found, Absent):
            return cast(F, found)
        if not optional or isinstance(found, Unreadable):
            self.note(host, str(found))
        return None

    def note(self, host: str, text: str, *, wrong: bool = False) -> None:
        self._against[Against(plain(f"{host}: {text}" if host else text, 400), wrong, host)] = None

    def settle(self) -> None:
        """Raises: NotMade, when anything stands against the table so far."""
        if self._against:
            raise NotMade(list(self._against))


def npus_of(finder: Finder, hosts: Sequence[str], devices: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """All NPUs of each host that could be read, which must be those that the others have; or the chosen ones."""
    chosen: dict[str, tuple[int, ...]] = {}
    groups: dict[tuple[int, ...], list[str]] = {}
    for host in hosts:
        found = _inventory(finder, host)
        if not found:
            continue
        if lost := _lost(found, devices):
            more = "" if devices else " (npu-missing); --devices chooses among the others"
            finder.note(host, f"NPU {_listed(lost)} has no device file{more}", wrong=True)
        chosen[host] = tuple(sorted(devices or found.devices))
        groups.setdefault(chosen[host], []).append(host)
    if len(groups) > 1:
        said = "; ".join(f"{', '.join(few(who, 3))}: NPU {_listed(npus)}" for npus, who in sorted(groups.items()))
        finder.note("", f"the hosts have different NPUs ({said}); --devices chooses those that all have", wrong=True)
    return chosen


def _inventory(finder: Finder, host: str) -> NpuInventory | None:
    found = finder.look(host, NpuInventory)
    if isinstance(found, NpuInventory) and found.devices:
        return found
    why = str(found) if isinstance(found, Absent) else "no NPU has a device file"
    finder.note(host, why, wrong=not isinstance(found, Unreadable))
    return None


def _lost(found: NpuInventory, devices: Sequence[int]) -> list[int]:
    """NPUs that are chosen, or that must be there when all are, and have no device file."""
    last = max((found.pci_count, *(number + 1 for number in found.devices)))
    return sorted(set(devices or range(last)) - set(found.devices))


def family_of(finder: Finder, hosts: Iterable[str], launch: Launch) -> str:
    """A1, A2 or A3. Raises: NotMade."""
    products: dict[str, NpuProduct] = {}
    if not launch.product:
        products = {host: found for host in hosts if (found := finder.get(host, NpuProduct))}
        if not products:
            finder.settle()
    try:
        product = family(launch, products)
    except Unreadable as why:
        finder.note("", str(why), wrong=True)
        product = ""
    if product not in ("", "A1", "A2", "A3"):
        finder.note("", f"the NPUs are of the family {product}; expected A1, A2 or A3", wrong=True)
    if product not in ("A1", "A2", "A3"):
        finder.settle()
    return product


def pods_of(finder: Finder, npus: Npus) -> dict[str, Pod]:
    """The super pod of each host, and the SDIDs of its NPUs."""
    pods = {}
    for host, wanted in npus.items():
        pod, devices = finder.get(host, SuperPod), finder.get(host, SuperDevices)
        if not pod or not devices:
            continue
        for npu in wanted:
            if npu not in devices.by_npu:
                finder.note(host, f"NPU {npu}: {devices.unread.get(f'NPU {npu}', 'npu-smi does not list it')}")
            elif _of_another(devices.by_npu[npu].sdid, npu):
                finder.note(host, f"NPU {npu}: its SDID {devices.by_npu[npu].sdid} is that of another device")
        known = {npu: one for npu, one in devices.by_npu.items() if npu in wanted}
        said = sorted({pod.id, *(one.pod for one in known.values())})
        if len(said) > 1:
            finder.note(host, f"npu-smi names several super pods: {', '.join(few(said))}; expected one a host")
            continue
        pods[host] = Pod(pod, {npu: one.sdid for npu, one in known.items()})
    return pods


def _of_another(sdid: int, npu: int) -> bool:
    """The number follows the hardware's coding, and says another device."""
    chip, die, device = sdid >> 18 & 15, sdid >> 16 & 3, sdid & 0xFFFF
    return sdid >= 1 << 16 and device == 2 * chip + die and device != npu


def addresses_of(
    finder: Finder, hosts: Sequence[str], npus: Npus, launch: Launch, product: str, pods: Mapping[str, Pod]
) -> dict[str, dict[int, str]]:
    """The device addresses: of all NPUs, or of none, where not all have one and the job does without.

    ``hosts`` are all of the job's, also those that could not be read.
    """
    products = {host: NpuProduct(family=product, evidence="") for host in npus}  # type: ignore[arg-type]
    reach = dict.fromkeys(hosts)
    use = address_use(npus, launch, products, reach, {host: one.pod for host, one in pods.items()})
    found: dict[str, dict[int, str]] = {}
    for host, wanted in npus.items():
        needed = use[host] is True
        seen = finder.get(host, DeviceAddresses, optional=not needed)
        if seen:
            found[host] = _of_host(finder, host, wanted, seen, needed)
    whole = all(len(found.get(host, ())) == len(wanted) for host, wanted in npus.items())
    return found if whole else {}


def _of_host(finder: Finder, host: str, wanted: Iterable[int], seen: DeviceAddresses, needed: bool) -> dict[int, str]:
    """The addresses that there are. Noted are NPUs that did not tell, and those that need one and have none."""
    found = {}
    for npu in wanted:
        if npu in seen.by_npu:
            found[npu] = str(seen.by_npu[npu].ip)
        elif npu not in seen.unset:
            finder.note(host, f"NPU {npu}: {seen.unread.get(f'NPU {npu}', 'hccn_tool did not tell its address')}")
        elif needed:
            finder.note(host, f"NPU {npu} has no device IP; expected one (device-ip-unset)", wrong=True)
    return found


def ips_of(finder: Finder, hosts: Iterable[str]) -> dict[str, str]:
    """The IPv4 address of each host that has just one which no other host has, or is named by it; else nothing."""
    own = {host: _ipv4(found) for host in hosts if (found := finder.get(host, HostAddresses))}
    owners: dict[str, int] = {}
    for ip in (ip for ips in own.values() for ip in ips):
        owners[ip] = owners.get(ip, 0) + 1
    ips = {}
    for host, mine in own.items():
        usable = [ip for ip in mine if owners[ip] == 1]
        ips[host] = host if host in usable else usable[0] if len(usable) == 1 else ""
    return ips


def _ipv4(found: HostAddresses) -> set[str]:
    """The addresses by which another host may find this one."""
    seen = {ip_address(text.partition("%")[0]) for text in found.addresses}
    return {str(ip) for ip in seen if isinstance(ip, IPv4Address) and not _is_own(ip)}


def _is_own(ip: IPv4Address) -> bool:
    return ip.is_loopback or ip.is_link_local or ip.is_unspecified or ip.is_multicast


def server_id(finder: Finder, host: str, ip: str, names: Mapping[str, str]) -> str:
    """The host's name in the inventory; where that means every host to itself, its address or its own name."""
    if host.lower() != "localhost" and not host.startswith("127.") and host != "::1":
        return host
    try:
        return ip or valid(names.get(host, ""), "the host's own name")
    except InventoryError:
        finder.note(
            host, "which host this is cannot be told: it has no single address and no name; expected HOSTS to name it"
        )
        return ""


def _listed(npus: Iterable[int]) -> str:
    return ", ".join(few(npus, 16))
