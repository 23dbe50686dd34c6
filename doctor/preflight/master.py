"""Which host of a run MASTER_ADDR means. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping

from doctor.engine.evaluate import Book
from doctor.engine.record import Run
from doctor.facts.names import HostNames, is_address, plain
from doctor.facts.network import HostAddresses
from doctor.hosts.nodeset import shown
from doctor.job import Launch


def owner(run: Run) -> str:
    """The host that the job's MASTER_ADDR is, or the empty string: not given, not known, or more than one."""
    said = address(run)
    if not said:
        return ""
    book = Book(run.hosts)
    for found in (_by_name(said, run.hosts), _by_itself(said, run.hosts, book), _by_others(said, run.hosts, book)):
        if len(found) == 1:
            return found.pop()
    return ""


def address(run: Run) -> str:
    """The job's MASTER_ADDR; empty when it is not given, or means every host itself."""
    said = Launch.from_environment(**run.launch).master_addr
    if said == "localhost" or (is_address(said) and ipaddress.ip_address(said).is_loopback):
        return ""
    return said


def missing(run: Run, hosts: Collection[str], master: str, left_out: Collection[str]) -> str:
    """Why the job cannot start on ``hosts``: its master is not among them, or may not be. Empty when it is."""
    said = address(run)
    if not said or master in hosts:
        return ""
    expected = "expected MASTER_ADDR to be one of the hosts that stay"
    if not master:
        return f"MASTER_ADDR {shown(said)} is none of the hosts as far as is known, and hosts are left out; {expected}"
    who = f"MASTER_ADDR {shown(said)}" + (f" is {master}, which" if said != master else "")
    return f"{who} is {'left out' if master in left_out else 'not needed'}; {expected}"


def _by_name(said: str, hosts: Mapping[str, object]) -> set[str]:
    exact = {host for host in hosts if plain(host) == plain(said)}
    return exact or {host for host in hosts if not is_address(said) and _short(host) == _short(said)}


def _short(name: str) -> str:
    return plain(name) if is_address(name) else name.lower().partition(".")[0]


def _by_itself(said: str, hosts: Mapping[str, object], book: Book) -> set[str]:
    """Those that say that it is their own name or address."""
    names, addresses = book.fleet(HostNames), book.fleet(HostAddresses)
    return {
        host
        for host in hosts
        if (host in names and names[host].is_master(said, addresses[host].addresses if host in addresses else ()))
        or (host in addresses and plain(said) in map(plain, addresses[host].addresses))
    }


def _by_others(said: str, hosts: Mapping[str, object], book: Book) -> set[str]:
    """Those whose name means the same address to the others: a host that says nothing itself."""
    found: set[str] = set()
    for names in book.fleet(HostNames).values():
        known = set(names.names[said].outside) if said in names.names else {said}
        found |= {host for host in hosts if host in names.names and known & set(names.names[host].outside)}
    return found
