"""Kernel settings of a host: as they are now, and as its files will set them at the next start."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase

import msgspec

from doctor.engine.check import once_per_fleet
from doctor.engine.fact import Absent, Fact, ProbeAnswer, Unreadable, read, unusable_reason
from doctor.engine.texts import beginning, filled
from doctor.facts.gpu import GpuCards
from doctor.facts.npu import NpuInventory
from doctor.job import LaunchConfig

SOMAXCONN = "net.core.somaxconn"
SYN_BACKLOG = "net.ipv4.tcp_max_syn_backlog"
SYNCOOKIES = "net.ipv4.tcp_syncookies"
RESERVED_PORTS = "net.ipv4.ip_local_reserved_ports"
PORT_RANGE = "net.ipv4.ip_local_port_range"
CHECKED_KEYS = (SOMAXCONN, PORT_RANGE, RESERVED_PORTS, SYN_BACKLOG)
"""The settings that the checks of this program judge, and that a file may set."""


def sysctl_path(key: str) -> str:
    """Where the kernel shows a setting.

    >>> sysctl_path("net.core.somaxconn")
    '/proc/sys/net/core/somaxconn'
    """
    return "/proc/sys/" + key.replace(".", "/")


def read_number(answer: ProbeAnswer, path: str) -> int:
    """The one number in a file. Raises: Absent, Unreadable."""
    text = answer.text(path).strip()
    if not re.fullmatch(r"[0-9]{1,19}", text, re.ASCII):
        raise Unreadable(filled("{0}: {1}, expected a number", path, f"{beginning(text, 40)!r}"))
    return int(text)


class ListenQueues(Fact, frozen=True):
    """How many TCP connections may wait on one listening socket, in the job's network namespace.

    Raw output, from ``/proc/sys/net/core/somaxconn``::

        4096

    Raw output, from ``/proc/sys/net/ipv4/tcp_max_syn_backlog``::

        2048

    Raw output, from ``/proc/sys/net/ipv4/tcp_syncookies``::

        1
    """

    probe = read(sysctl_path(SOMAXCONN), sysctl_path(SYN_BACKLOG), sysctl_path(SYNCOOKIES), job=True)

    somaxconn: int
    """Connections that are made and not yet accepted."""
    syn_backlog: int
    """Connections whose handshake is not complete."""
    syncookies: int
    """0: never; 1: when the queue is full; 2: always."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> ListenQueues:
        return cls(
            somaxconn=read_number(answer, sysctl_path(SOMAXCONN)),
            syn_backlog=read_number(answer, sysctl_path(SYN_BACKLOG)),
            syncookies=read_number(answer, sysctl_path(SYNCOOKIES)),
        )


DEFAULT_RANKS_PER_HOST = 8
"""Taken for a host whose devices are not known."""
CONNECTIONS_PER_RANK = 4
MIN_QUEUE = 256


@once_per_fleet
def expected_connections(
    launch: LaunchConfig,
    hosts: Iterable[str],
    npus: Mapping[str, NpuInventory] | None,
    gpus: Mapping[str, GpuCards] | None,
) -> tuple[int, int]:
    """The number of ranks, and of connections that one host may have to take at once when the job starts.

    Every rank connects several times to the host of rank 0: to the store (two or three clients a process) and to the
    root of each communication group. Hence four connections a rank, and never fewer than 256: twice the limit of
    kernels before 5.4, which was raised because it had "caused numerous problems". No host counts for more devices
    than a second one has: what one says of itself raises no limit on the others.
    """
    devices = {host: cards.pci for host, cards in (gpus or {}).items()}
    devices |= {host: len(inventory.devices) for host, inventory in (npus or {}).items()}
    most = sorted(devices.values())[-2:][:1]
    devices = {host: min(count, *most) for host, count in devices.items()}
    ranks_per_host = launch.ranks_per_host
    ranks = launch.world_size or sum(
        (ranks_per_host.get(host) if isinstance(ranks_per_host, Mapping) else ranks_per_host)
        or devices.get(host)
        or DEFAULT_RANKS_PER_HOST
        for host in hosts
    )
    return ranks, max(MIN_QUEUE, CONNECTIONS_PER_RANK * ranks)


class LiveSettings(Fact, frozen=True):
    """The judged kernel settings as they are on the host itself, not as a container sees them.

    Raw output, from ``/proc/sys/net/ipv4/ip_local_port_range``::

        32768   60999
    """

    probe = read(*(sysctl_path(key) for key in CHECKED_KEYS), limit=1 << 20)

    values: dict[str, str]
    """By key; white space made single. A setting that the kernel does not have is left out."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> LiveSettings:
        values = {}
        for key in CHECKED_KEYS:
            output = answer.get(sysctl_path(key))
            if output is not None and output.ended != "absent":
                values[key] = " ".join(answer.text(sysctl_path(key)).split())
        if not values:
            raise Absent("/proc/sys does not show the host's kernel settings")
        return cls(values=values)


def may_be_default(key: str, value: str) -> bool:
    """A kernel may start with this value when no file sets the key.

    somaxconn is 128 before Linux 5.4 and 4096 since; tcp_max_syn_backlog grows with memory, by powers of two, from
    128 to 4096; no port is reserved; local ports are 32768 to 60999 (61000 before Linux 4.2).
    """
    defaults = {
        SOMAXCONN: {"128", "4096"},
        SYN_BACKLOG: {str(2**power) for power in range(7, 13)},
        RESERVED_PORTS: {""},
        PORT_RANGE: {"32768 60999", "32768 61000"},
    }
    return value in defaults[key]


class KernelSetting(msgspec.Struct, frozen=True):
    """One line of a file that is read at boot."""

    key: str
    """With dots; may be a glob."""
    value: str
    path: str


MAIN_FILE = "/etc/sysctl.conf"


def configuration_folders(name: str) -> tuple[str, ...]:
    """Where programs look for files of settings; a file hides those of the same name in the folders after its own.

    >>> configuration_folders("sysctl.d")[:3]
    ('/etc/sysctl.d', '/run/sysctl.d', '/usr/local/lib/sysctl.d')
    """
    return tuple(f"{place}/{name}" for place in ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"))


SYSCTL_FOLDERS = configuration_folders("sysctl.d")


class SysctlFiles(Fact, frozen=True):
    """What the files of sysctl set when the host starts.

    Files are applied in the order of their names, without regard to their folders; ``/etc/sysctl.conf`` comes last with
    ``sysctl --system``, and is not read at all by systemd, unless a link in ``/etc/sysctl.d`` leads to it.

    Raw output, from ``/etc/sysctl.d/99-cluster.conf``::

        # queues of the job
        net.core.somaxconn = 4096
        -net.core.*
    """

    probe = read(
        *(f"{folder}/*.conf" for folder in SYSCTL_FOLDERS), MAIN_FILE, "/proc/1/comm", root=True, limit=1 << 18
    )

    settings: tuple[KernelSetting, ...]
    """In the order in which they are applied."""
    ignored: tuple[KernelSetting, ...]
    """Lines of ``/etc/sysctl.conf`` on a host where nothing reads that file."""
    excluded: tuple[str, ...] = ()
    """Keys that nothing sets: their last line is such as ``-net.ipv4.conf.all.rp_filter``."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> SysctlFiles:
        files = {path: _file_text(answer, path) for path in answer if path.endswith(".conf")}
        chosen = {path: parse_sysctl(files[path], path) for path in _effective_paths(files)}
        main = parse_sysctl(files.get(MAIN_FILE, ""), MAIN_FILE)
        init = answer["/proc/1/comm"].out.strip() if "/proc/1/comm" in answer else ""
        if init != "systemd":
            chosen[MAIN_FILE], main = main, ()
        lines = [line for group in chosen.values() for line in group]
        excluded = {key for key, line in {line.key.lstrip("-"): line for line in lines}.items() if line.key[0] == "-"}
        return cls(
            settings=tuple(line for line in lines if line.key.lstrip("-") not in excluded),
            ignored=tuple(line for line in main if line.key[0] != "-"),
            excluded=tuple(sorted(excluded)),
        )

    def boot_setting(self, key: str) -> KernelSetting | None:
        """What is set in the end: the last line that names the key, else the last glob that fits."""
        named = [line for line in self.settings if line.key == key]
        globs = [line for line in self.settings if key not in self.excluded and fnmatchcase(key, line.key)]
        fitting = named or globs
        return fitting[-1] if fitting else None


def _effective_paths(files: Iterable[str]) -> list[str]:
    by_name: dict[str, str] = {}
    for folder in SYSCTL_FOLDERS:
        for path in sorted(files):
            if posixpath.dirname(path) == folder:
                by_name.setdefault(posixpath.basename(path), path)
    return [by_name[name] for name in sorted(by_name)]


def _file_text(answer: ProbeAnswer, path: str) -> str:
    """A file's text; empty for a link that leads nowhere. Raises: Unreadable."""
    output = answer[path]
    if output.ended == "absent":
        return ""
    why = unusable_reason(output)
    if why:
        raise Unreadable(filled("{0}: {1}; it can be read as root, with --sudo", path, why))
    return output.out


def parse_sysctl(text: str, path: str) -> tuple[KernelSetting, ...]:
    """The settings in a file; a line ``-key`` without a value keeps its minus and excludes the key from globs."""
    settings = []
    for line in text.splitlines():
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        key, equals, value = line.partition("=")
        if equals:
            key = key.removeprefix("-")
        key = key.strip().replace("/", ".")
        if key and (equals or key[0] == "-"):
            settings.append(KernelSetting(key, " ".join(value.split()), path))
    return tuple(settings)


class Conntrack(Fact, frozen=True):
    """How full the kernel's table of tracked connections is.

    Raw output, from ``/proc/sys/net/netfilter/nf_conntrack_count``::

        12

    Raw output, from ``/proc/sys/net/netfilter/nf_conntrack_max``::

        262144

    Raw output, from ``/proc/sys/net/netfilter/nf_conntrack_buckets``::

        262144
    """

    probe = read(
        "/proc/sys/net/netfilter/nf_conntrack_count",
        "/proc/sys/net/netfilter/nf_conntrack_max",
        "/proc/sys/net/netfilter/nf_conntrack_buckets",
    )

    count: int
    maximum: int
    buckets: int | None = None
    """Lists that the entries are kept in; None where it is not known."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> Conntrack:
        count, most = (read_number(answer, path) for path in cls.probe.paths[:2])
        with suppress(Absent):
            return cls(count=count, maximum=most, buckets=read_number(answer, cls.probe.paths[2]))
        return cls(count=count, maximum=most)
