"""Host names: what a host calls itself, and what names mean on it."""

from __future__ import annotations

import _socket as socket
import _thread
import os
import sys
import time
import zlib
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from doctor.engine.addresses import is_plain_address, means_own_host, plain_address
from doctor.engine.fact import Fact, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.engine.texts import beginning, filled

NO_ANSWER = "no answer in 8 s"
"""The error of a name for which the resolver took too long; see `resolve_names`."""


def _literal(name: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, name.split("%", 1)[0])
            return True
        except OSError:
            continue
    return False


def _bindable(answers: list) -> str:  # type: ignore[type-arg]
    # The first address, in the resolver's order, that is this host's own: Gloo takes it.
    for family, kind, protocol, _, address in answers:
        try:
            tried = socket.socket(family, kind, protocol)
        except OSError:
            continue
        try:
            tried.bind(address)
            return str(address[0]).split("%")[0]
        except OSError:
            continue
        finally:
            tried.close()
    return ""


def _query_names(arguments: ProbeArguments, host_name: str, names: list) -> list:  # type: ignore[type-arg]
    """The names to resolve: the host's own, MASTER_ADDR, up to 128 hosts."""
    master = arguments.get("master_addr") or ""
    # Of a large fleet every host looks up another part: all names asked by all hosts would flood the name server.
    start = zlib.crc32(host_name.encode("utf-8", "replace")) % len(names) if len(names) > 128 else 0
    queried_names = (names[start:] + names[:start])[:128]
    queried_names = [host_name] + [name for name in queried_names if name != host_name]
    if master and master not in queried_names:
        queried_names.insert(1, master)
    return queried_names


def _full_name(host_name: str) -> str:
    """As socket.getfqdn has it; the empty string where that takes longer than 3 s."""
    full_names: list = []  # type: ignore[type-arg]
    complete = _thread.allocate_lock()
    complete.acquire()

    def find_full_name() -> None:
        try:
            name, aliases, _ = socket.gethostbyaddr(host_name)
            full_names.append(next((entry for entry in [name, *aliases] if "." in entry), name))
        except (OSError, UnicodeError):
            full_names.append(host_name)
        complete.release()

    _thread.start_new_thread(find_full_name, ())
    return full_names[0] if complete.acquire(True, 3) else ""


def _resolve_all(queried_names: list, host_name: str) -> dict:  # type: ignore[type-arg]
    """The answer for each name, within 8 s."""
    todo = queried_names[::-1]
    results: dict = {}  # type: ignore[type-arg]
    complete = _thread.allocate_lock()
    complete.acquire()

    def work() -> None:
        while True:
            try:
                name = todo.pop()
            except IndexError:
                return
            results[name] = _resolve(name, name == host_name)
            if len(results) == len(queried_names) and complete.locked():
                complete.release()

    # More threads only where names take long: most stand in a file.
    end, threads = time.monotonic() + 8, 0
    while time.monotonic() < end:
        if todo and threads < 16:
            _thread.start_new_thread(work, ())
            threads += 1
        if complete.acquire(True, 0.05 if todo and threads < 16 else max(0, end - time.monotonic())):
            break
    return dict({name: {"error": NO_ANSWER} for name in queried_names}, **results)


def _resolve(name: str, is_own: bool) -> dict:  # type: ignore[type-arg]
    if not is_own and _literal(name):  # MASTER_ADDR
        return {"addresses": [name.partition("%")[0]]}
    try:
        # As bytes: Python would load much to write a text in the form of international names, even plain ones.
        query = name if any(letter > "~" for letter in name) else name.encode("ascii")
        answers = socket.getaddrinfo(query, None, 0, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return {"error": getattr(error, "strerror", None) or str(error)}
    answer = {"addresses": sorted({str(entry[4][0]).split("%")[0] for entry in answers})}
    return dict(answer, bindable=_bindable(answers)) if is_own else answer


def _machine() -> str:
    """A short digest of the boot, and of the network and the files that this process sees: one for one machine."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            identities = [file.read(64).strip()]
        identities += [os.readlink("/proc/self/ns/" + kind) for kind in ("net", "mnt")]
    except OSError:
        return ""
    text = " ".join(identities).encode()
    return f"{zlib.crc32(text):08x}{zlib.adler32(text):08x}"


def resolve_names(arguments: ProbeArguments) -> dict:  # type: ignore[type-arg]
    """Runs on the host: the addresses of its own name, of MASTER_ADDR and of up to 128 hosts, within 8 s.

    Where the job announces full names, also this host's, as socket.getfqdn has it, and what the first host's would be.
    """
    host_name = socket.gethostname()
    names = sorted({name for name in arguments.get("hosts") or [] if name and not _literal(name)})
    queried_names = _query_names(arguments, host_name, names)
    full_name = _full_name(host_name) if arguments.get("announces_name") else ""
    if full_name:
        domain = full_name.partition(".")[2]
        first = names[0].partition(".")[0] + "." + domain if names and domain else full_name
        queried_names += [name for name in (full_name, first) if name not in queried_names]
    answers = _resolve_all(queried_names, host_name)
    return {"own": host_name, "names": answers, "fleet": len(names), "full": full_name, "machine": _machine()}


MAX_NAME_CHARS = 255
"""Of a host name, by RFC 1035."""


class NameResolution(msgspec.Struct, frozen=True):
    """What one name means on one host: addresses, or the resolver's reason for none."""

    addresses: tuple[str, ...] = ()
    error: str = ""
    bindable: str | None = None
    """The first of the own name's addresses that is one of this host; empty for none. None: not tried."""

    @property
    def is_loopback(self) -> bool:
        """It is a loopback address: on every host it leads to that host itself."""
        return any(map(is_loopback, self.addresses))

    @property
    def non_loopback(self) -> tuple[str, ...]:
        return tuple([address for address in self.addresses if not is_loopback(address)])


@lru_cache(maxsize=1 << 16)
def _checked(meaning: NameResolution) -> NameResolution:
    """The meaning of a name, if it can be one: one object for all hosts that agree.

    Raises: Unreadable, ValueError.
    """
    if not (meaning.addresses or meaning.error):
        raise Unreadable("a name has neither an address nor an error")
    for address in (*meaning.addresses, *([meaning.bindable] if meaning.bindable else [])):
        plain_address(address)
    return meaning


class HostNames(Fact, frozen=True):
    """What the host calls itself, and what that name and the fleet's names mean on it, where the job runs.

    Of a fleet of more than 128 names each host looks up 128, another part on each.

    Raw output, as JSON::

        {"own": "node1", "fleet": 2, "names": {"node1": {"addresses": ["10.0.0.1"]},
         "node2": {"addresses": ["10.0.0.2"]}, "node3": {"error": "Name or service not known"}}}
    """

    probe = ask(resolve_names, job=True, timeout=12)

    own: str
    names: dict[str, NameResolution]
    """By name; the own name is always there. Of literal addresses only MASTER_ADDR is."""
    fleet: int
    """How many names the fleet has."""
    full: str = ""
    """What ``socket.getfqdn()`` is on this host; empty where it is not needed."""
    machine: str = ""
    """The same for two names that lead to one machine; empty: not known."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> HostNames:
        host_names = msgspec.convert(answer.json(), cls)
        for name in (host_names.own, host_names.full, *host_names.names):
            if not _is_host_name(name):
                raise Unreadable(filled("{0} is no host name", f"{beginning(name, 40)!r}"))
        if not host_names.own or host_names.own not in host_names.names:
            raise Unreadable("the host does not report its own name")
        names = {sys.intern(name): _checked(meaning) for name, meaning in host_names.names.items()}
        return msgspec.structs.replace(host_names, names=names)

    @property
    def own_resolution(self) -> NameResolution:
        return self.names[self.own]

    @property
    def bindable_address(self) -> str:
        """The address that PyTorch gives Gloo: the own name's, else 127.0.0.1. Empty where that is not known."""
        own_addresses = self.own_resolution
        if own_addresses.error:
            return "" if own_addresses.error == NO_ANSWER else "127.0.0.1"
        if own_addresses.bindable is None:
            return own_addresses.addresses[0] if len(own_addresses.addresses) == 1 else ""
        return own_addresses.bindable or "127.0.0.1"

    def is_master(self, master: str, addresses: tuple[str, ...]) -> bool:
        """Whether ``master``, a name or an address, is this host."""
        master_addresses = self.names[master].addresses if master in self.names else (master,)
        if any(
            normalize_host(address) in map(normalize_host, addresses)
            for address in master_addresses
            if not means_own_host(address)
        ):
            return True
        return not is_address(master) and short_name(master) == short_name(self.own)


@lru_cache(maxsize=1 << 16)
def _is_host_name(name: str) -> bool:
    """Whether a text can be a name at all: printable, without white space, not too long."""
    return name.isprintable() and len(name) <= MAX_NAME_CHARS and not any(letter.isspace() for letter in name)


@lru_cache(maxsize=1 << 16)
def is_loopback(address: str) -> bool:
    """Whether an address leads to the host itself. Raises: ValueError for what is no address."""
    return plain_address(address).is_loopback


@lru_cache(maxsize=1 << 16)
def is_address(text: str) -> bool:
    """A literal IPv4 or IPv6 address, not a name."""
    return is_plain_address(text)


def normalize_host(text: str) -> str:
    """One spelling for every address; a name in lower case."""
    return str(plain_address(text)) if is_address(text) else text.lower()


def listed_host(hosts: Iterable[str], name: str) -> str | None:
    """The host of a list that goes by a name: the whole one, else the short one. Empty: several do; None: none does.

    >>> listed_host(["n1.a", "n2.a"], "N1"), listed_host(["n1.a", "n1.b"], "n1"), listed_host(["n1"], "n2")
    ('n1.a', '', None)
    """
    entries = list(hosts)
    for same in (normalize_host, short_name):
        listed = [host for host in entries if name and same(host) == same(normalize_host(name))]
        if listed:
            return listed[0] if len(listed) == 1 else ""
    return None


def short_name(text: str) -> str:
    """A name in lower case without its domain; one spelling for every address."""
    return normalize_host(text) if is_address(text) else text.lower().partition(".")[0]
