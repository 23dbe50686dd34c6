"""Which host of a run MASTER_ADDR means. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from doctor.engine.addresses import means_own_host
from doctor.engine.evaluate import FactCache
from doctor.engine.record import Run
from doctor.engine.sanitize import printable_excerpt
from doctor.engine.texts import filled
from doctor.facts.names import HostNames, is_address, normalize_host
from doctor.facts.network import HostAddresses
from doctor.job import LaunchConfig


def master_host(run: Run) -> str:
    """The host that the job's MASTER_ADDR is, or the empty string: not given, not known, or more than one."""
    master_addr = master_address(run)
    if not master_addr:
        return ""
    fact_cache = FactCache(run.hosts)
    for matches in (
        _matches_by_name(master_addr, run.hosts),
        _matches_by_own_facts(master_addr, run.hosts, fact_cache),
        _matches_by_other_hosts(master_addr, run.hosts, fact_cache),
    ):
        if len(matches) == 1:
            return matches.pop()
    return ""


def master_address(run: Run) -> str:
    """The job's MASTER_ADDR; empty when it is not given, or means every host itself."""
    master_addr = LaunchConfig.from_options(run.launch).master_addr
    return "" if means_own_host(master_addr) else master_addr


def master_obstacle(run: Run, hosts: Collection[str], master: str, left_out: Collection[str]) -> str:
    """Why the job cannot start on ``hosts``: its master is not among them, or may not be. Empty when it is."""
    master_addr = master_address(run)
    if not master_addr or master in hosts:
        return ""
    expected = "expected MASTER_ADDR to be one of the remaining hosts"
    if not master:
        address = printable_excerpt(master_addr)
        return filled("MASTER_ADDR {0} is not a known host of the job, and hosts are excluded; {1}", address, expected)
    who = f"MASTER_ADDR {printable_excerpt(master_addr)}" + (f" is {master}, which" if master_addr != master else "")
    return f"{who} is {'excluded' if master in left_out else 'not needed'}; {expected}"


def _matches_by_name(master_addr: str, hosts: Mapping[str, object]) -> set[str]:
    exact = {host for host in hosts if normalize_host(host) == normalize_host(master_addr)}
    return exact or {
        host for host in hosts if not is_address(master_addr) and _short_name(host) == _short_name(master_addr)
    }


def _short_name(name: str) -> str:
    return normalize_host(name) if is_address(name) else name.lower().partition(".")[0]


def _matches_by_own_facts(master_addr: str, hosts: Mapping[str, object], fact_cache: FactCache) -> set[str]:
    """The hosts for which it is their own name or address."""
    names, addresses = fact_cache.fleet(HostNames), fact_cache.fleet(HostAddresses)
    return {
        host
        for host in hosts
        if (
            host in names and names[host].is_master(master_addr, addresses[host].addresses if host in addresses else ())
        )
        or (host in addresses and normalize_host(master_addr) in map(normalize_host, addresses[host].addresses))
    }


def _matches_by_other_hosts(master_addr: str, hosts: Mapping[str, object], fact_cache: FactCache) -> set[str]:
    """Hosts whose name resolves to the same address on other hosts, for a host that does not answer."""
    matches: set[str] = set()
    for names in fact_cache.fleet(HostNames).values():
        addresses = set(names.names[master_addr].non_loopback) if master_addr in names.names else {master_addr}
        matches |= {host for host in hosts if host in names.names and addresses & set(names.names[host].non_loopback)}
    return matches
