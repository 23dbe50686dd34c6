"""Kernel settings and modules as a host has them when it has started: what files set, else what the kernel begins with.

Where neither tells, the value is unknown: what was set by hand is lost.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import msgspec

from doctor.engine.fact import Unreadable
from doctor.engine.quantities import GIB
from doctor.engine.texts import beginning, filled
from doctor.facts.boot.files import TEMPORARY_FOLDERS, BootFiles
from doctor.facts.gpu import GpuCards
from doctor.facts.host_settings import HostSettings
from doctor.facts.kernel import (
    PORT_RANGE,
    RESERVED_PORTS,
    SOMAXCONN,
    SYN_BACKLOG,
    SYNCOOKIES,
    Conntrack,
    ListenQueues,
    SysctlFiles,
)
from doctor.facts.memory import HostMemory, MemoryCommitment
from doctor.facts.neighbour_table import DEFAULT_LIMIT, GC_THRESH3, NeighbourTable
from doctor.facts.ports import ReservedPorts, parse_ports
from doctor.job import PortRange

CONNTRACK_MAX = "net.netfilter.nf_conntrack_max"
BALANCING = "kernel.numa_balancing"
OVERCOMMIT = "vm.overcommit_memory"
SYSCTL_SERVICE = "systemd-sysctl"


def set_at_boot(key: str, settings: SysctlFiles, files: BootFiles) -> str | None:
    """The value that a file sets, or None. Raises: Unreadable where something else that is run at boot may set it."""
    other = files.names_setting(key)
    if other:
        raise Unreadable(filled("{0} names {1} and is run at boot; what it sets is not computed", other, key))
    if files.init == "systemd" and files.is_masked(SYSCTL_SERVICE):
        return None
    line = settings.boot_setting(key)
    return line.value if line else None


def _number(key: str, settings: SysctlFiles, files: BootFiles, default: int | None) -> int:
    """Raises: Unreadable."""
    value = set_at_boot(key, settings, files)
    if value is None and default is not None:
        return default
    if value is None:
        raise Unreadable(filled("no file sets {0}, and what this kernel starts with is not known", key))
    if not re.fullmatch(r"[0-9]{1,19}", value, re.ASCII):
        raise Unreadable(filled("a file sets {0} to {1}, expected a number", key, f"{beginning(value, 40)!r}"))
    return int(value)


def default_syn_backlog(memory: HostMemory) -> int | None:
    """What the kernel begins with: a 128th of the slots of its table of connections; each 128 KiB of memory give one.

    Rounded up to a power of two, at most 512 * 1024 slots, and never below 128 (Linux, tcp_init and tcp_sk_init). The
    kernel counts some memory more than it shows; None where that could make the next power of two.
    """
    queues = {max(128, _slots(round(memory.total * share)) // 128) for share in (1.0, 1.08)}
    return queues.pop() if len(queues) == 1 else None


def _slots(total: int) -> int:
    count = max(1, total >> 17)
    return int(min(512 * 1024, 1 << (count - 1).bit_length()))


def listen_queues(settings: SysctlFiles, files: BootFiles, memory: HostMemory) -> ListenQueues:
    """For somaxconn 4096 since Linux 5.4, 128 before; for syncookies 1. Raises: Unreadable."""
    return ListenQueues(
        somaxconn=_number(SOMAXCONN, settings, files, 4096 if files.kernel >= (5, 4) else 128),
        syn_backlog=_number(SYN_BACKLOG, settings, files, default_syn_backlog(memory)),
        syncookies=_number(SYNCOOKIES, settings, files, 1),
    )


def reserved_ports(settings: SysctlFiles, files: BootFiles) -> ReservedPorts:
    """No port is reserved, and local ports are 32768 to 60999, where no file sets them. Raises: Unreadable."""
    reserved = set_at_boot(RESERVED_PORTS, settings, files) or ""
    ends = (set_at_boot(PORT_RANGE, settings, files) or "32768 60999").split()
    try:
        (ephemeral,) = parse_ports("-".join(ends)) if len(ends) == 2 else (PortRange(1, 0),)
        if ephemeral.first > ephemeral.last:
            raise ValueError(filled("{0} of {1}", PORT_RANGE, f"{beginning(' '.join(ends), 40)!r}"))
        return ReservedPorts(reserved=parse_ports(reserved), ephemeral=ephemeral)
    except ValueError as error:
        raise Unreadable(filled("a file sets ports that the kernel refuses: {0}", error)) from None


def memory_commitment(settings: SysctlFiles, files: BootFiles, now: MemoryCommitment) -> MemoryCommitment:
    """Mode 0 where no file sets it; the limit is that of now. Raises: Unreadable."""
    return msgspec.structs.replace(now, mode=_number(OVERCOMMIT, settings, files, 0))


def neighbour_table(settings: SysctlFiles, files: BootFiles, now: NeighbourTable) -> NeighbourTable:
    """1024 entries where no file sets them (Linux, net/ipv4/arp.c), and none was refused. Raises: Unreadable."""
    if now.limit is None:
        return now
    return NeighbourTable(limit=_number(GC_THRESH3, settings, files, DEFAULT_LIMIT), overflows=0)


def numa_balancing(settings: SysctlFiles, files: BootFiles, now: HostSettings) -> HostSettings:
    """Off on one node; on several the kernel's own configuration decides where no file does. Raises: Unreadable."""
    if now.numa_balancing is None:
        return now
    options = files.text("/proc/cmdline").split()
    default = 0 if now.numa_nodes <= 1 or "numa_balancing=disable" in options else None
    default = 1 if "numa_balancing=enable" in options else default
    return msgspec.structs.replace(now, numa_balancing=_number(BALANCING, settings, files, default))


def connection_table(settings: SysctlFiles, files: BootFiles, memory: HostMemory, now: Conntrack) -> Conntrack:
    """The table's size; its entries are those of now.

    A file of sysctl counts only where the module is loaded before, by a file. Else it is the kernel's: 262144 entries
    above 4 GiB of memory, eight times ``hashsize`` where modprobe.d gives one (Linux, nf_conntrack_init_start).
    Raises: Unreadable.
    """
    hash_sizes = [
        int(match[1])
        for fields in files.modprobe_lines("options")
        if fields[1] == "nf_conntrack"
        for option in fields[2:]
        if (match := re.fullmatch(r"hashsize=([0-9]{1,9})", option, re.A))
    ]
    default = 8 * hash_sizes[-1] if hash_sizes else 262144 if memory.total > 4.5 * GIB else None
    is_module = re.search(r"^nf_conntrack ", files.text("/proc/modules"), re.M)
    if is_module and "nf_conntrack" not in files.modules():
        if set_at_boot(CONNTRACK_MAX, settings, files) is not None:
            raise Unreadable(filled("a file sets {0}, and none loads nf_conntrack before it is read", CONNTRACK_MAX))
        if default is None:
            raise Unreadable(filled("no file sets {0}, and what this kernel starts with is not known", CONNTRACK_MAX))
        return msgspec.structs.replace(now, maximum=default)
    return msgspec.structs.replace(now, maximum=_number(CONNTRACK_MAX, settings, files, default))


_WRITES = re.compile(r"(?:w|f(?=[!=~^$-]*\+))[+!=~^$-]*\s+(\S+)\s+\S+\s+\S+\s+\S+\s+\S+\s+(\S+)\s*", re.ASCII)
"""A line of tmpfiles.d that writes a file: type, path, mode, user, group, age, argument."""


def frequency_governors(files: BootFiles, now: HostSettings) -> HostSettings:
    """The governors that a file of tmpfiles.d or the kernel's command line sets. Raises: Unreadable.

    Of lines for the same path the first counts, of paths that fit the last (systemd-tmpfiles 252, measured).
    """
    if not now.governors:
        return now
    chosen = next(
        (word.partition("=")[2] for word in files.text("/proc/cmdline").split() if word.startswith("cpufreq.default_")),
        "",
    )
    if files.init == "systemd" or files.starts("systemd-tmpfiles-setup"):
        lines = [line for text in files.folder(*TEMPORARY_FOLDERS).values() for line in text.splitlines()]
        written = dict[str, str]()
        for match in filter(None, (_WRITES.fullmatch(line.strip()) for line in lines)):
            written.setdefault(match[1], match[2])
        policy = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
        chosen = next((value for path, value in reversed(written.items()) if fnmatchcase(policy, path)), chosen)
    if not chosen:
        raise Unreadable("no file sets the governor, and what this kernel starts with is not known")
    return msgspec.structs.replace(now, governors=(chosen,))


def peer_memory(files: BootFiles, now: GpuCards) -> GpuCards:
    """nvidia-peermem is loaded where a file says so. Raises: Unreadable."""
    if now.peermem is None:
        return now
    return msgspec.structs.replace(now, peermem=bool({"nvidia_peermem", "nv_peer_mem"} & files.modules()))
