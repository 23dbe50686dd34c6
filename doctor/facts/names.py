"""Host names: what a host calls itself, and what names mean on it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

import msgspec

from doctor.engine.fact import Answer, Fact, Unreadable, ask


def hosts_lines(wanted: Iterable[str], fleet: Mapping[str, HostNames]) -> list[str]:
    """Lines for /etc/hosts, ``ADDRESS NAME``: of the names for which all hosts that know one have the same address."""
    lines = []
    for name in sorted(wanted):
        known = {found.names[name].outside for found in fleet.values() if name in found.names} - {()}
        if len(known) == 1:
            lines.append(f"{known.pop()[0]} {name}")
    return lines


def look_up_names(given: dict) -> dict:  # type: ignore[type-arg]
    import queue
    import socket
    import threading
    import time
    import zlib

    def literal(name: str) -> bool:
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                socket.inet_pton(family, name.split("%")[0])
                return True
            except OSError:
                continue
        return False

    own = socket.gethostname()
    names = sorted({name for name in given.get("hosts") or [] if name and not literal(name)})
    master = given.get("master_addr") or ""
    # Of a large fleet every host looks up another part: all names asked by all hosts would flood the name server.
    start = zlib.crc32(own.encode("utf-8", "replace")) % len(names) if len(names) > 128 else 0
    asked = (names[start:] + names[:start])[:128]
    todo: queue.Queue = queue.Queue()  # type: ignore[type-arg]
    asked = [own] + [name for name in asked if name != own]
    if master and master not in asked and not literal(master):
        asked.insert(1, master)
    for name in asked:
        todo.put(name)
    found: dict = {}  # type: ignore[type-arg]

    def work() -> None:
        while True:
            try:
                name = todo.get_nowait()
            except queue.Empty:
                return
            try:
                answers = socket.getaddrinfo(name, None, 0, socket.SOCK_STREAM)
                found[name] = {"addresses": sorted({str(answer[4][0]).split("%")[0] for answer in answers})}
            except (OSError, UnicodeError) as error:
                found[name] = {"error": getattr(error, "strerror", None) or str(error)}

    threads = [threading.Thread(target=work, daemon=True) for _ in range(16)]
    for thread in threads:
        thread.start()
    end = time.time() + 8
    for thread in threads:
        thread.join(max(0, end - time.time()))
    answers = dict(found)
    for name in asked:
        answers.setdefault(name, {"error": "no answer in 8 s"})
    return {"own": own, "names": answers, "fleet": len(names)}


class Meaning(msgspec.Struct, frozen=True):
    """What one name means on one host: addresses, or the resolver's reason for none."""

    addresses: tuple[str, ...] = ()
    error: str = ""

    @property
    def loopback(self) -> bool:
        """It leads to the host itself, whoever asks."""
        return any(ipaddress.ip_address(one).is_loopback for one in self.addresses)

    @property
    def outside(self) -> tuple[str, ...]:
        """The addresses that are not loopback."""
        return tuple(one for one in self.addresses if not ipaddress.ip_address(one).is_loopback)


class HostNames(Fact, frozen=True):
    """What the host calls itself, and what that name and the fleet's names mean on it, where the job runs.

    Of a fleet of more than 128 names each host looks up 128, another part on each.
    """

    probe = ask(look_up_names, job=True, timeout=12)

    own: str
    names: dict[str, Meaning]
    """By name; the own name is always there. A literal address is no name."""
    fleet: int
    """How many names the fleet has."""

    @classmethod
    def read(cls, answer: Answer) -> HostNames:
        found = msgspec.convert(answer.json(), cls)
        if not found.own or found.own not in found.names:
            raise Unreadable("the host does not say what it calls itself")
        for meaning in found.names.values():
            if not (meaning.addresses or meaning.error):
                raise Unreadable("a name has neither an address nor a reason for none")
            for one in meaning.addresses:
                ipaddress.ip_address(one)
        return found

    @property
    def own_meaning(self) -> Meaning:
        return self.names[self.own]

    def is_master(self, master: str, addresses: tuple[str, ...]) -> bool:
        """Whether ``master``, a name or an address, is this host."""
        wanted = self.names[master].addresses if master in self.names else (master,)
        if any(plain(one) in map(plain, addresses) for one in wanted if not plain(one).startswith("127.")):
            return True
        return not is_address(master) and master.partition(".")[0].lower() == self.own.partition(".")[0].lower()


def is_address(text: str) -> bool:
    """A literal IPv4 or IPv6 address, not a name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def plain(text: str) -> str:
    """One spelling for every address; a name in lower case."""
    return str(ipaddress.ip_address(text)) if is_address(text) else text.lower()
