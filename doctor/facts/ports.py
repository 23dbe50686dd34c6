"""TCP ports of a host: which the kernel leaves alone, and which are taken, by whom."""

from __future__ import annotations

import _socket as socket
import errno
import os
import pwd
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, Unreadable, ask, read
from doctor.engine.secrets import hide_secrets
from doctor.engine.texts import beginning, filled
from doctor.facts.kernel import PORT_RANGE, RESERVED_PORTS, SOMAXCONN, SYN_BACKLOG, SysctlFiles, sysctl_path
from doctor.job import LaunchConfig, PortRange
from doctor.job.variables import TORCH_PORT
from doctor.remote.runtime.netlink import netlink_attributes, netlink_messages
from doctor.remote.runtime.reading import table_address, table_rows


def parse_ports(text: str) -> tuple[PortRange, ...]:
    """Ranges out of ``8080,60000-60031``, merged and in order. Raises: ValueError.

    >>> parse_ports("60016-60031,8080,60000-60015")
    (PortRange(first=8080, last=8080), PortRange(first=60000, last=60031))
    """
    port_ranges = []
    for part in text.replace("\n", ",").split(","):
        if not part.strip():
            continue
        match = re.fullmatch(r"\s*([0-9]{1,5})(?:-([0-9]{1,5}))?\s*", part, re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last <= 65535:
            raise ValueError(filled("{0} is neither a port nor a port range", f"{beginning(part.strip(), 40)!r}"))
        port_ranges.append(PortRange(first, last))
    return merge_ranges(port_ranges)


def merge_ranges(ranges: Iterable[PortRange]) -> tuple[PortRange, ...]:
    """The same ports in as few ranges as possible, in order."""
    result: list[PortRange] = []
    for port_range in sorted(ranges):
        if result and port_range.first <= result[-1].last + 1:
            result[-1] = PortRange(result[-1].first, max(result[-1].last, port_range.last))
        else:
            result.append(port_range)
    return tuple(result)


def format_ports(ranges: Iterable[PortRange]) -> str:
    """The way the kernel writes them: ``8080,60000-60031``; "none" for no port."""
    texts = [
        str(port_range.first) if port_range.first == port_range.last else f"{port_range.first}-{port_range.last}"
        for port_range in ranges
    ]
    return ",".join(texts) or "none"


def contains_port(ranges: Iterable[PortRange], port: int) -> bool:
    """Whether one of the ranges contains the port."""
    return any(port_range.first <= port <= port_range.last for port_range in ranges)


FIRST_PORT = 1024
"""Lower ones are for services: root alone may open them (ip(7), "privileged ports")."""
LOCAL_PORTS = 1024
"""Ports that a host of a job should be able to assign; the kernel's own range has 28232."""
LOCAL_PORTS_PER_RANK = 2
"""Of Gloo: a rank with two groups lives with two (measured), since connections to different places share one."""
LOCAL_PORTS_OF_LAUNCHER = 2
"""Of torchrun's agent: with it one rank needs four, two ranks six (measured with 2.13 on two hosts, and DDP)."""
PORT_RANGES = (PortRange(32768, 60999), PortRange(32768, 65535), PortRange(10000, 28999))
"""The kernel's default, and others that hold neither 29500, torchrun's, nor those of Kubernetes's services."""


def count_local_ports(ephemeral: PortRange, reserved: Iterable[PortRange]) -> int:
    """The ports that the kernel may assign.

    >>> count_local_ports(PortRange(32768, 60999), [PortRange(8080, 8080), PortRange(60000, 60031)])
    28200
    """
    kept = sum(max(0, min(span.last, ephemeral.last) - max(span.first, ephemeral.first) + 1) for span in reserved)
    return ephemeral.last - ephemeral.first + 1 - kept


def faulty_settings(values: Mapping[str, str], connections: int) -> set[str]:
    """The kernel settings that checks find too small for a job with so many ``connections`` to one host.

    >>> sorted(faulty_settings({"net.core.somaxconn": "128", "net.ipv4.ip_local_port_range": "40000 40003"}, 256))
    ['net.core.somaxconn', 'net.ipv4.ip_local_port_range']
    """
    queues = {key: values.get(key, "") for key in (SOMAXCONN, SYN_BACKLOG)}
    faulty = {key for key, value in queues.items() if value.isdecimal() and int(value) < connections}
    try:
        (ephemeral,) = parse_ports(values.get(PORT_RANGE, "").replace(" ", "-"))
        reserved = parse_ports(values.get(RESERVED_PORTS, ""))
    except ValueError:
        return faulty
    if count_local_ports(ephemeral, reserved) < LOCAL_PORTS:
        narrow = count_local_ports(ephemeral, ()) < LOCAL_PORTS
        faulty.add(PORT_RANGE if narrow else RESERVED_PORTS)
    return faulty


class ReservedPorts(Fact, frozen=True):
    """Local ports that the kernel hands to outgoing connections, and those among them that it must leave alone.

    Raw output, from ``/proc/sys/net/ipv4/ip_local_reserved_ports``::

        8080,60000-60031

    Raw output, from ``/proc/sys/net/ipv4/ip_local_port_range``::

        32768   60999
    """

    probe = read(sysctl_path(RESERVED_PORTS), sysctl_path(PORT_RANGE), job=True, limit=1 << 20)

    reserved: tuple[PortRange, ...]
    ephemeral: PortRange

    @classmethod
    def read(cls, answer: ProbeAnswer) -> ReservedPorts:
        reserved, path = answer.text(sysctl_path(RESERVED_PORTS)), sysctl_path(PORT_RANGE)
        ends = answer.text(path).split()
        try:
            (ephemeral,) = parse_ports("-".join(ends)) if len(ends) == 2 else ()
        except ValueError:
            raise Unreadable(
                filled("{0}: {1}, expected two ports in order", path, f"{beginning(' '.join(ends), 40)!r}")
            ) from None
        try:
            return cls(reserved=parse_ports(reserved), ephemeral=ephemeral)
        except ValueError as error:
            raise Unreadable(filled("{0}: {1}", sysctl_path(RESERVED_PORTS), error)) from None

    def kernel_may_assign(self, port: int) -> bool:
        """The kernel may hand the port to an outgoing connection of any program."""
        return contains_port([self.ephemeral], port) and not contains_port(self.reserved, port)

    @property
    def local_ports(self) -> int:
        """How many ports the kernel may assign to sockets that ask for no certain one."""
        return count_local_ports(self.ephemeral, self.reserved)

    @property
    def wider_range(self) -> str:
        """The first of `PORT_RANGES` that has `LOCAL_PORTS` beside the reserved ones, as the kernel writes it."""
        enough = (ports for ports in PORT_RANGES if count_local_ports(ports, self.reserved) >= LOCAL_PORTS)
        wider = next(enough, PORT_RANGES[0])
        return f"{wider.first} {wider.last}"

    @property
    def planned_ranges(self) -> tuple[PortRange, ...]:
        """The range that the fix of `local-ports-few` sets in place of one that is too narrow; none where it stays."""
        return PORT_RANGES[:1] if count_local_ports(self.ephemeral, ()) < LOCAL_PORTS else ()

    @property
    def port_outside(self) -> int | None:
        """One that the kernel hands to no outgoing connection: the default of torchrun, else one beside the range."""
        candidates = 29500, self.ephemeral.first - 1, self.ephemeral.last + 1
        outside = (port for port in candidates if not contains_port([self.ephemeral], port))
        return next((port for port in outside if 1024 <= port <= 65535), None)

    def finding_values(
        self,
        lost: Iterable[int],
        required: Iterable[int],
        others: Iterable[int] = (),
        at_boot: Sequence[PortRange] = (),
    ) -> dict[str, Any]:
        """Values of a finding that ``lost`` may be handed out.

        ``merged`` is the whole list that should be reserved. ``others``: ports of another check: they are in it where
        they are at risk, so that one list serves both. ``at_boot``: what the host's files reserve, which stays.
        """
        needed = single_port_ranges([*required, *filter(self.kernel_may_assign, others)])
        merge = merge_ranges([*self.reserved, *at_boot, *needed])
        return {
            "ports": format_ports(single_port_ranges(lost)),
            "range": format_ports([self.ephemeral]),
            "first": self.ephemeral.first,
            "merged": format_ports(merge),
            "observed": filled("reserved: {0}", format_ports(self.reserved)),
            "expected": filled("reserved: {0}", format_ports(single_port_ranges(required))),
        }


def ports_reserved_at_boot(files: SysctlFiles | None) -> tuple[PortRange, ...]:
    """What the host's sysctl files reserve; nothing where they are not known or cannot be read."""
    line = files.boot_setting(RESERVED_PORTS) if files else None
    try:
        return parse_ports(line.value) if line else ()
    except ValueError:
        return ()


def _add_processes(sockets: dict) -> None:  # type: ignore[type-arg]
    """The process that holds each socket, by inode, as far as this user may see it."""
    unmatched_links = {"socket:[" + inode + "]" for inode in sockets}
    for pid in os.listdir("/proc"):
        if not (unmatched_links and pid.isdigit()):
            continue
        try:
            for fd in os.listdir("/proc/" + pid + "/fd"):
                link = os.readlink("/proc/" + pid + "/fd/" + fd)
                if link in unmatched_links:
                    unmatched_links.discard(link)
                    with open("/proc/" + pid + "/cmdline", "rb") as cmdline:
                        command_words = cmdline.read(400).decode("utf-8", "replace").split("\0")
                    sockets[link[8:-1]].update(pid=int(pid), command=" ".join(command_words).strip())
        except OSError:
            continue  # it has ended, or is another user's


def _diagnosed_sockets(family: int, states: int) -> list:  # type: ignore[type-arg]
    """State, port, packed address, uid, inode, and whether for IPv6 alone, of the sockets in these states.

    By SOCK_DIAG, which is 20 times as quick as a table of /proc, and says who listens for IPv6 alone.

    An answer is a struct inet_diag_msg. Raises: OSError.
    """
    sockets = []
    size = 4 if family == socket.AF_INET else 16
    for kind, data in netlink_messages(4, 20, struct.pack("=BBBBI48x", family, 6, 0, 0, states), 2):
        if kind == 20 and len(data) >= 72:
            uid, inode = struct.unpack("=II", data[64:72])
            port, only = int.from_bytes(data[4:6], "big"), netlink_attributes(data[72:]).get(11, b"")  # SKV6ONLY
            sockets.append((data[1], port, data[8 : 8 + size], uid, str(inode), any(only)))
    return sockets


def _is_refused(port: int) -> bool:
    """Whether a server with SO_REUSEADDR, as torch's store is, does not get the port."""
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", port))
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    finally:
        server.close()
    return False


def list_sockets(arguments: ProbeArguments) -> dict:  # type: ignore[type-arg]
    """Runs on the host: TCP sockets that listen or hold one of the job's ports, with user and process."""
    listen, busy = 10, (1, 2, 8)  # established, being made, closed by the peer
    mask = (1 << listen) + sum(1 << state for state in busy) + (1 << 13)  # bound alone: Linux 6.8, with state 7
    job_ports = set(arguments.get("ports") or [])
    sockets = {}
    tables = 0
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            entries = _diagnosed_sockets(family, mask)
        except OSError:  # the kernel has no such module, or a container may not ask
            rows = table_rows("/proc/self/net/" + name, 1 << 28)
            if rows is None:
                continue  # a kernel without IPv6
            entries = [(int(row[3], 16), *table_address(row[1])[::-1], int(row[7]), row[9], False) for row in rows]
        tables += 1
        for state, port, packed, uid, inode, ipv6_only in entries:
            is_bound = state == 7 and port in job_ports and _is_refused(port)
            if not (state == listen or is_bound or (state in busy and port in job_ports)):
                continue
            try:
                user = pwd.getpwuid(uid).pw_name
            except KeyError:
                user = "uid " + str(uid)
            address = socket.inet_ntop(family, packed)
            sockets[inode] = {"port": port, "address": address, "listening": state == listen, "user": user}
            sockets[inode].update({"ipv6_only": True} if ipv6_only else {}, **({"bound": True} if is_bound else {}))
    _add_processes(sockets)
    listed = list(sockets.values())
    unseen = sorted(job_ports - {entry["port"] for entry in listed}) if tables else []
    unknown = {"address": "", "listening": False, "user": "", "bound": True}
    listed += [dict(unknown, port=port) for port in unseen if _is_refused(port)]
    return {"tables": tables, "sockets": listed}


_SERVICE = re.compile(r"([\w.-]+: )?/(usr/)?(sbin|lib/systemd)/")
"""The start of the command line of a program that packages install for the system, perhaps behind its own title."""


def is_service(pid: int, port: int, command: str) -> bool:
    """Whether the process that holds a port is a service of the host, such as its sshd, which no job may end."""
    return pid == 1 or port < FIRST_PORT or bool(_SERVICE.match(command))


class ListeningSocket(msgspec.Struct, frozen=True):
    """One TCP socket that holds a local port."""

    port: int
    address: str
    listening: bool
    user: str
    pid: int = 0
    """0: the process could not be seen."""
    command: str = ""
    ipv6_only: bool = False
    """It listens for IPv6 alone, as the kernel said: a program that listens for IPv4 gets the port all the same."""
    bound: bool = False
    """It does not listen, and a server with SO_REUSEADDR does not get the port; Linux says from 6.8 on whose it is."""

    @property
    def owner(self) -> str:
        if not self.user:
            return "a socket that does not listen, of a program that is not known"
        if not self.pid:
            return filled("a process of user {0} (which one: unknown without root, or in another container)", self.user)
        command = hide_secrets(self.command)[:60]
        return filled("process {0} of user {1}{2}", self.pid, self.user, f" ({command})" if command else "")

    @property
    def is_service(self) -> bool:
        """See `is_service`."""
        return is_service(self.pid, self.port, self.command)

    @property
    def values(self) -> dict[str, Any]:
        """Of a finding: the owner, and the case of what to do about it; no ``pid`` of a service.

        >>> socket = ListeningSocket(29500, "0.0.0.0", True, "ann", pid=77, command="python3 train.py")
        >>> socket.values["case"], socket.values["pid"]
        ('Leftover', 77)
        >>> service = msgspec.structs.replace(socket, command="sshd: /usr/sbin/sshd -D [listener]")
        >>> service.values["case"], service.values["pid"]
        ('Service', None)
        """
        return {
            "port": self.port,
            "owner": self.owner,
            "user": self.user,
            "pid": None if self.is_service else self.pid or None,
            "case": "Service" if self.is_service else "Leftover",
        }


class Listeners(Fact, frozen=True):
    """TCP sockets that listen, and other TCP sockets that hold one of the job's ports, with their owners.

    Without root the processes of other users cannot be seen; that a port is taken, and by which user, always can.

    Raw output, as JSON::

        {"tables": 2, "sockets": [{"port": 29500, "address": "0.0.0.0", "listening": true,
         "user": "root", "pid": 1898, "command": "python3 train.py"}]}
    """

    probe = ask(list_sockets, root=True, job=True, timeout=20)

    sockets: tuple[ListeningSocket, ...]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> Listeners:
        data = answer.json()
        if not data["tables"]:
            raise Unreadable("/proc/self/net/tcp does not exist")
        return cls(sockets=tuple(sorted(msgspec.convert(data["sockets"], list[ListeningSocket]), key=_socket_order)))

    def on_port(self, port: int) -> tuple[ListeningSocket, ...]:
        """The sockets on a port, those that listen first."""
        return tuple(socket for socket in self.sockets if socket.port == port)

    def holders(self, port: int) -> list[ListeningSocket]:
        """Those that keep a program from listening there."""
        return [socket for socket in self.on_port(port) if socket.listening or socket.bound]

    def free_behind(self, port: int, count: int = 1) -> int | None:
        """The first of so many ports in a row behind a port that none of the sockets has."""
        taken = {socket.port for socket in self.sockets}
        starts = range(port + 1 if port >= FIRST_PORT else TORCH_PORT, 65536 - count)
        return next((start for start in starts if taken.isdisjoint(range(start, start + count))), None)


def _socket_order(socket: ListeningSocket) -> tuple[int, bool, str, int]:
    return socket.port, not socket.listening, socket.address, socket.pid


def single_port_ranges(ports: Iterable[int]) -> tuple[PortRange, ...]:
    """Single ports as ranges."""
    return merge_ranges(PortRange(port, port) for port in ports)


def required_hccl_ports(launch: LaunchConfig) -> list[int]:
    """The host ports that HCCL will take, in its order; none when the kernel chooses.

    Raises: Absent when it does.
    """
    if not launch.hccl_ports:
        raise Absent("HCCL_HOST_SOCKET_PORT_RANGE is auto: the kernel gives HCCL free ports")
    return [port for port_range in launch.hccl_ports for port in range(port_range.first, port_range.last + 1)]
