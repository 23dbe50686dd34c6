"""TCP ports of a host: which the kernel leaves alone, and which are taken, by whom."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from doctor.engine.fact import Absent, Answer, Fact, Unreadable, ask, read
from doctor.engine.record import redact
from doctor.facts.kernel import PORT_RANGE, RESERVED_PORTS, path_of
from doctor.job import Launch, PortRange


def parse_ports(text: str) -> tuple[PortRange, ...]:
    """Ranges out of ``8080,60000-60031``, merged and in order. Raises: ValueError.

    >>> parse_ports("60016-60031,8080,60000-60015")
    (PortRange(first=8080, last=8080), PortRange(first=60000, last=60031))
    """
    found = []
    for part in text.replace("\n", ",").split(","):
        if not part.strip():
            continue
        one = re.fullmatch(r"\s*([0-9]{1,5})(?:-([0-9]{1,5}))?\s*", part, re.ASCII)
        first, last = (int(one[1]), int(one[2] or one[1])) if one else (1, 0)
        if not first <= last <= 65535:
            raise ValueError(f"{part.strip()[:40]!r} is no port and no range of ports")
        found.append(PortRange(first, last))
    return merged(found)


def merged(ranges: Iterable[PortRange]) -> tuple[PortRange, ...]:
    """The same ports in as few ranges as possible, in order."""
    found: list[PortRange] = []
    for one in sorted(ranges):
        if found and one.first <= found[-1].last + 1:
            found[-1] = PortRange(found[-1].first, max(found[-1].last, one.last))
        else:
            found.append(one)
    return tuple(found)


def spelled(ranges: Iterable[PortRange]) -> str:
    """The way the kernel writes them: ``8080,60000-60031``; "none" for no port."""
    words = [str(one.first) if one.first == one.last else f"{one.first}-{one.last}" for one in ranges]
    return ",".join(words) or "none"


def covers(ranges: Iterable[PortRange], port: int) -> bool:
    return any(one.first <= port <= one.last for one in ranges)


class ReservedPorts(Fact, frozen=True):
    """Local ports that the kernel hands to outgoing connections, and those among them that it must leave alone."""

    probe = read(path_of(RESERVED_PORTS), path_of(PORT_RANGE), job=True, limit=1 << 20)

    reserved: tuple[PortRange, ...]
    ephemeral: PortRange

    @classmethod
    def read(cls, answer: Answer) -> ReservedPorts:
        reserved, path = answer.text(path_of(RESERVED_PORTS)), path_of(PORT_RANGE)
        ends = answer.text(path).split()
        try:
            (ephemeral,) = parse_ports("-".join(ends)) if len(ends) == 2 else ()
        except ValueError:
            raise Unreadable(f"{path}: {' '.join(ends)[:40]!r}, expected two ports in order") from None
        try:
            return cls(reserved=parse_ports(reserved), ephemeral=ephemeral)
        except ValueError as error:
            raise Unreadable(f"{path_of(RESERVED_PORTS)}: {error}") from None

    def at_risk(self, port: int) -> bool:
        """The kernel may hand the port to an outgoing connection of any program."""
        return covers([self.ephemeral], port) and not covers(self.reserved, port)

    def words(self, lost: Iterable[int], wanted: Iterable[int], others: Iterable[int] = ()) -> dict[str, Any]:
        """Values of a finding that ``lost`` may be handed out.

        ``merged`` is the whole list that should be reserved. ``others`` are ports that another check asks for: they are
        in it where they are at risk, so that one list serves both.
        """
        merge = merged([*self.reserved, *ranges([*wanted, *filter(self.at_risk, others)])])
        return {
            "ports": spelled(ranges(lost)),
            "range": spelled([self.ephemeral]),
            "first": self.ephemeral.first,
            "merged": spelled(merge),
            "saw": f"reserved: {spelled(self.reserved)}",
            "want": f"reserved: {spelled(ranges(wanted))}",
        }


def look_at_ports(given: dict) -> dict:  # type: ignore[type-arg]
    import os
    import pwd
    import socket
    import struct

    listen, busy = "0A", ("01", "02", "08")  # established, being made, closed by the peer
    wanted = set(given.get("ports") or [])
    found = {}
    tables = 0
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            with open("/proc/self/net/" + name) as file:
                lines = file.read().splitlines()[1:]
        except FileNotFoundError:
            continue  # a kernel without IPv6
        tables += 1
        for line in lines:
            parts = line.split()
            address, port = parts[1].split(":")
            number = int(port, 16)
            if parts[3] != listen and not (parts[3] in busy and number in wanted):
                continue
            packed = b"".join(struct.pack("=I", int(address[at : at + 8], 16)) for at in range(0, len(address), 8))
            try:
                user = pwd.getpwuid(int(parts[7])).pw_name
            except KeyError:
                user = "uid " + parts[7]
            found[parts[9]] = {
                "port": number,
                "address": socket.inet_ntop(family, packed),
                "listening": parts[3] == listen,
                "user": user,
            }
    left = {"socket:[" + inode + "]" for inode in found}
    for pid in os.listdir("/proc"):
        if not (left and pid.isdigit()):
            continue
        try:
            for fd in os.listdir("/proc/" + pid + "/fd"):
                link = os.readlink("/proc/" + pid + "/fd/" + fd)
                if link in left:
                    left.discard(link)
                    with open("/proc/" + pid + "/cmdline", "rb") as cmdline:
                        words = cmdline.read(400).decode("utf-8", "replace").split("\0")
                    found[link[8:-1]].update(pid=int(pid), command=" ".join(words).strip())
        except OSError:
            continue  # it has ended, or is another user's
    return {"tables": tables, "sockets": list(found.values())}


class Socket(msgspec.Struct, frozen=True):
    """One TCP socket that holds a local port."""

    port: int
    address: str
    listening: bool
    user: str
    pid: int = 0
    """0: the process could not be seen."""
    command: str = ""

    @property
    def owner(self) -> str:
        """Who holds the port, in words."""
        if not self.pid:
            return f"a process of user {self.user} (which one: unknown without root, or in another container)"
        return f"{redact(self.command)[:120] or 'a process'} (pid {self.pid}, user {self.user})"


class Listeners(Fact, frozen=True):
    """TCP sockets that listen, and other TCP sockets that hold one of the job's ports, with their owners.

    Without root the processes of other users cannot be seen; that a port is taken, and by which user, always can.
    """

    probe = ask(look_at_ports, root=True, job=True, timeout=20)

    sockets: tuple[Socket, ...]

    @classmethod
    def read(cls, answer: Answer) -> Listeners:
        seen = answer.json()
        if not seen["tables"]:
            raise Unreadable("/proc/self/net/tcp is not there")
        return cls(sockets=tuple(sorted(msgspec.convert(seen["sockets"], list[Socket]), key=_order)))

    def holding(self, port: int) -> tuple[Socket, ...]:
        """The sockets on a port, those that listen first."""
        return tuple(one for one in self.sockets if one.port == port)


def _order(one: Socket) -> tuple[int, bool, str, int]:
    return one.port, not one.listening, one.address, one.pid


def ranges(ports: Iterable[int]) -> tuple[PortRange, ...]:
    """Single ports as ranges."""
    return merged(PortRange(port, port) for port in ports)


def needed(launch: Launch) -> list[int]:
    """The host ports that HCCL will take, in its order; none when the kernel chooses.

    Raises: Absent when it does.
    """
    if not launch.hccl_ports:
        raise Absent("HCCL_HOST_SOCKET_PORT_RANGE is auto: the kernel gives HCCL free ports")
    return [port for one in launch.hccl_ports for port in range(one.first, one.last + 1)]
