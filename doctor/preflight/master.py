"""Which host of a run MASTER_ADDR means. Pure."""

from __future__ import annotations

from collections.abc import Collection

from doctor.engine.addresses import means_own_host
from doctor.engine.evaluate import FactCache
from doctor.engine.record import Run
from doctor.engine.sanitize import printable_excerpt
from doctor.engine.texts import filled
from doctor.facts.interfaces import Interfaces
from doctor.facts.master_address import host_of_master
from doctor.facts.master_trial import MasterTrial
from doctor.facts.names import HostNames
from doctor.job import LaunchConfig


def master_host(run: Run) -> str:
    """The host that the job's MASTER_ADDR is, or the empty string: not given, not known, or more than one."""
    if not master_address(run):
        return ""
    facts, launch = FactCache(run.hosts), LaunchConfig.from_options(run.launch)
    return host_of_master(
        list(run.hosts), facts.fleet(HostNames), facts.fleet(Interfaces), launch, facts.fleet(MasterTrial)
    )


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
