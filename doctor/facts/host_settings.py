"""Settings of a host that change how fast it is: clock frequency, memory pages, clock source, swap, kernel."""

from __future__ import annotations

import re

import msgspec

from doctor.engine.fact import Absent, Fact, Output, ProbeAnswer, Unreadable, read, unusable_reason
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.facts.gpu import GpuCards, GpuInventory
from doctor.facts.limits import RdmaAdapters
from doctor.facts.npu import NpuInventory

SERVER_GPUS = 4
"""A host with so many GPUs is a server, with any product: our own limit, without a vendor's source."""

_GOVERNORS = "/sys/devices/system/cpu/cpufreq/policy*0/scaling_governor"
_DRIVER = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"
_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
_BALANCING = "/proc/sys/kernel/numa_balancing"
_NODES = "/sys/devices/system/node/possible"
_CLOCK = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_CLOCKS = "/sys/devices/system/clocksource/clocksource0/available_clocksource"
_SWAPS = "/proc/swaps"
_COMMAND_LINE = "/proc/cmdline"
_KERNEL = "/proc/sys/kernel/osrelease"
_HUGE_PAGES = "/proc/sys/vm/nr_hugepages"
_CHASSIS = "/sys/class/dmi/id/chassis_type"
_FORMS = {
    "scaling_governor": r"[\w-]+",
    "enabled": r"[\w ]*\[\w+\][\w ]*",
    "numa_balancing": r"[0-9]{1,18}",
    "possible": r"[0-9,-]+",
    "current_clocksource": r"[\w.-]+",
    "nr_hugepages": r"[0-9]{1,18}",
    "duplex": "full|half|unknown",
}
"""By the name of a file that the kernel has, what stands in it; with anything else it is not understood.

Source: Linux, Documentation/ABI, and networking/ethtool (duplex).
"""
PORTABLE = frozenset(("8", "9", "10", "11", "14", "30", "31", "32"))
"""Types of chassis that run on a battery: laptops, tablets (SMBIOS 3.7, table 17)."""
_TUNING_WORD = re.compile(
    r"(iommu|iommu\.(passthrough|strict|forcedac)|intel_iommu|amd_iommu|arm-smmu(-v3)?\.disable_bypass|smmu\.bypassdev"
    r"|pci|isolcpus|nohz_full|rcu_nocbs|mitigations|kpti|(default_)?hugepages(z)?|transparent_hugepage|init_on_alloc"
    r"|numa_balancing|clocksource|tsc|(processor|intel_idle)\.max_cstate|cpuidle\.off|intel_pstate|amd_pstate|idle"
    r"|nosmt)(=|$)"
)
"""Words of the kernel's command line that change performance, and not those that name this host's disks."""


class HostSettings(Fact, frozen=True):
    """What a host's kernel is set to. A file that the kernel does not have gives an empty value.

    Raw output, from ``/sys/devices/system/cpu/cpufreq/policy0/scaling_governor``::

        performance

    Raw output, from ``/sys/kernel/mm/transparent_hugepage/enabled``::

        always [madvise] never

    Raw output, from ``/sys/devices/system/clocksource/clocksource0/current_clocksource``::

        tsc

    Raw output, from ``/proc/sys/kernel/osrelease``::

        5.15.0-1053-nvidia

    Raw output, from ``/proc/swaps``::

        Filename				Type		Size		Used		Priority
    """

    probe = read(
        _GOVERNORS,
        _DRIVER,
        _PAGES,
        _BALANCING,
        _NODES,
        _CLOCK,
        _CLOCKS,
        _SWAPS,
        _COMMAND_LINE,
        _KERNEL,
        _HUGE_PAGES,
        _CHASSIS,
    )

    governors: tuple[str, ...]
    """Of every tenth CPU, each once, sorted; empty where the kernel sets no frequency, as in a virtual machine."""
    frequency_driver: str
    huge_pages: str
    """Transparent huge pages: always, madvise or never."""
    reserved_huge_pages: int | None
    numa_balancing: int | None
    numa_nodes: int
    clock_source: str
    clock_sources: tuple[str, ...]
    swap_devices: tuple[str, ...]
    command_line: tuple[str, ...]
    """Only words that change performance."""
    kernel: str
    is_portable: bool
    """A laptop or tablet."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> HostSettings:
        kernel = _line(answer, _KERNEL)
        if not kernel:
            raise Unreadable(filled("{0}: no version", _KERNEL))
        governors = {_line(answer, path) for path in answer if path.endswith("/scaling_governor")}
        swaps = [line.split() for line in _lines(answer, _SWAPS)[1:]]
        chosen = re.search(r"\[(\w+)\]", _line(answer, _PAGES))
        command_line = _line(answer, _COMMAND_LINE).split()
        return cls(
            governors=tuple(sorted(governors - {""})),
            frequency_driver=_line(answer, _DRIVER),
            huge_pages=chosen[1] if chosen else "",
            reserved_huge_pages=_number(_line(answer, _HUGE_PAGES)),
            numa_balancing=_number(_line(answer, _BALANCING)),
            numa_nodes=count_listed(_line(answer, _NODES)),
            clock_source=_line(answer, _CLOCK),
            clock_sources=tuple(_line(answer, _CLOCKS).split()),
            swap_devices=tuple(fields[0] for fields in swaps if fields),
            command_line=tuple(sorted(word for word in command_line if _TUNING_WORD.match(word))),
            kernel=kernel,
            is_portable=_line(answer, _CHASSIS) in PORTABLE,
            unread={
                path: why
                for path, output in answer.items()
                if (why := unusable_reason(output) if _has_failed(output) else _misread(path, output))
            },
        )


def is_training_server(
    npus: NpuInventory | None, gpus: GpuCards | None, inventory: GpuInventory | None, adapters: RdmaAdapters | None
) -> bool:
    """Whether the vendors' tuning guides for servers apply: NPUs, RDMA adapters, or GPUs of a data centre.

    GPUs count where nvidia-smi does not say what they are, and in numbers that no desktop has.
    """
    if npus or adapters:
        return True
    if not gpus or not gpus.pci:
        return False
    listed = inventory.gpus if inventory else ()
    return gpus.pci >= SERVER_GPUS or not listed or any(gpu.is_data_center for gpu in listed)


def _has_failed(output: Output) -> bool:
    """There is such a file, and it could not be read; its exit status says nothing."""
    return output.cut or output.ended in ("error", "timeout")


def _misread(path: str, output: Output) -> str:
    """What stands in a file in place of what the kernel writes there; empty where that does, or there is none."""
    text = output.out.strip()
    form = _FORMS.get(path.rpartition("/")[2], ".*")
    if output.ended != "exited" or re.fullmatch(form, text, re.ASCII | re.DOTALL):
        return ""
    return filled("not understood: {0}", strip_control_chars(text, 40) or "empty")


def _lines(answer: ProbeAnswer, path: str) -> list[str]:
    output = answer.get(path)
    return output.out.splitlines() if output is not None and output.ended == "exited" else []


def _line(answer: ProbeAnswer, path: str) -> str:
    """The first line of a file; empty where there is none."""
    lines = _lines(answer, path)
    return lines[0].strip() if lines else ""


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text, re.ASCII) else None


def count_listed(text: str) -> int:
    """How many numbers a list such as ``0-1,4`` has.

    >>> count_listed("0-1,4"), count_listed("")
    (3, 0)
    """
    total = 0
    for part in text.split(","):
        ends = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part, re.ASCII)
        if ends:
            total += int(ends[2] or ends[1]) - int(ends[1]) + 1
    return total


class NetworkCard(msgspec.Struct, frozen=True):
    """The link of one network card."""

    megabits: int
    duplex: str
    product: str = ""
    """The PCI number of its kind, as 0x101d."""


class NetworkCards(Fact, frozen=True):
    """The speeds of the host's physical network cards that have a link.

    Raw output, from ``/sys/class/net/ens1f0np0/device/net/ens1f0np0/speed``::

        100000

    Raw output, from ``/sys/class/net/ens1f0np0/device/net/ens1f0np0/duplex``::

        full

    Raw output, from ``/sys/class/net/ens1f0np0/device/device``::

        0x101d
    """

    probe = read(*("/sys/class/net/*/device/" + name for name in ("net/*/speed", "net/*/duplex", "device")))

    cards: dict[str, NetworkCard]
    """By interface."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NetworkCards:
        cards, unread = {}, {}
        for path in answer:
            interface = path.split("/")[4]
            text = _line(answer, path) if path.endswith("/speed") else ""
            if answer[path].cut or answer[path].ended == "timeout":
                unread[interface] = unusable_reason(answer[path])
            speed = _number(text)
            if text and speed is None and text != "-1":  # of a card without a link
                unread[interface] = filled("not a speed: {0}", strip_control_chars(text, 40))
            if why := _misread(path, answer[path]):
                unread[interface] = why
            if speed and interface == path.split("/")[7]:
                others = path[: -len("speed")] + "duplex", f"/sys/class/net/{interface}/device/device"
                for other in others:
                    if other in answer and _has_failed(answer[other]):  # of a card with a link
                        unread[interface] = unusable_reason(answer[other])
                cards[interface] = NetworkCard(speed, *(_line(answer, other) for other in others))
        if not cards and not unread:
            raise Absent("no physical network card with a link")
        return cls(cards=cards, unread=unread)


LINK_STATUS, LACP_GROUP, BOND_MODE, LINK_SPEED = "MII Status", "Aggregator ID", "Bonding Mode", "Speed"
"""Labels of /proc/net/bonding."""


class Bonds(Fact, frozen=True):
    """The bonds of network cards, and the state of their members.

    Raw output, from ``/proc/net/bonding/bond0``::

        Bonding Mode: IEEE 802.3ad Dynamic link aggregation
        MII Status: up
        Active Aggregator Info:
            Aggregator ID: 1

        Slave Interface: ens1f0np0
        MII Status: up
        Speed: 25000 Mbps
        Aggregator ID: 1
    """

    probe = read("/proc/net/bonding/*", job=True)

    bonds: dict[str, dict[str, dict[str, str]]]
    """By bond and member the rows of the file; those of the bond itself under the empty name."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> Bonds:
        bonds, unread = {}, {}
        for path, output in answer.items():
            name = path.rpartition("/")[2]
            parts = (
                [""] if _has_failed(output) or output.cut else re.split(r"(?m)^Slave Interface: ", f"\n{output.out}")
            )
            bonds[name] = {part.partition("\n")[0].strip()[:64]: _bond_rows(part) for part in parts}
            if not all(rows.get(LINK_STATUS) and rows.get(LACP_GROUP, "-") for rows in bonds[name].values()):
                unread[name] = unusable_reason(output) if parts == [""] else "it shows no status of a member"
        if not answer:
            raise Absent("the host has no bond of network cards")
        return cls(bonds={name: rows for name, rows in bonds.items() if name not in unread}, unread=unread)


def _bond_rows(text: str) -> dict[str, str]:
    """By label; without the details of LACP, which repeat labels."""
    rows = (line.strip().partition(":") for line in text.partition("details actor lacp pdu")[0].splitlines())
    return {label: strip_control_chars(value.strip(), 80) for label, colon, value in rows if colon}
