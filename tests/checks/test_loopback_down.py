"""What loopback-down finds: an error exactly where ranks of the host need lo."""

from __future__ import annotations

import msgspec
import pytest

from doctor.engine.result import Severity
from doctor.facts.interfaces import Interfaces, LinkAddress
from doctor.job import LaunchConfig
from tests.checks.launch_lines import config
from tests.checks.network import alike_hosts, link
from tests.checks.run_check import FactsByHost, job, messages, run_check

NAME = "loopback-down"
APART = "several ranks on this host do not reach each other, nor does rank 0 reach its own store"
ON_ONE_HOST = config("torchrun --nproc-per-node 2 t.py")
STORE, TWO = "rank 0 does not reach its own store", "the 2 ranks of this host do not reach each other"


def without_lo(count: int, *numbers: int) -> FactsByHost:
    """Hosts w1, w2, ...; lo is down on those with these numbers."""
    hosts = alike_hosts(count)
    for number in range(1, count + 1):
        own = hosts[f"w{number}"]
        for place, fact in enumerate(own):
            if isinstance(fact, Interfaces):
                links = [one for one in fact.links if not one.is_loopback]
                lo = link("lo", up=number not in numbers)
                own[place] = msgspec.structs.replace(fact, links=(lo, *links))
    return hosts


def launched(ranks: int, **environ: str) -> LaunchConfig:
    return msgspec.structs.replace(job(**environ), ranks_per_host=ranks)


@pytest.mark.parametrize(
    ("launch", "text", "severity"),
    [
        (job(), APART, Severity.WARNING),
        (launched(1), APART, Severity.WARNING),
        (launched(1, MASTER_ADDR="10.0.0.1"), "", None),
        (launched(1, MASTER_ADDR="10.0.0.2"), STORE, Severity.ERROR),
        (job(MASTER_ADDR="10.0.0.2"), STORE, Severity.ERROR),
        (launched(2), TWO, Severity.ERROR),
        (launched(2, MASTER_ADDR="10.0.0.1"), TWO, Severity.ERROR),
    ],
)
def test_who_needs_it(launch: LaunchConfig, text: str, severity: Severity | None) -> None:
    outcome = run_check(NAME, without_lo(3, 2), launch)
    assert messages(outcome) == ([("w2", f"interface lo is down: {text}")] if text else [])
    assert [outcome.severity_of(finding) for finding in outcome.findings] == ([severity] if severity else [])


def test_hosts_with_lo_up_are_healthy() -> None:
    assert messages(run_check(NAME, without_lo(3), launched(8, MASTER_ADDR="10.0.0.1"))) == []


def test_one_host_alone_is_judged_too() -> None:
    assert messages(run_check(NAME, without_lo(1, 1), launched(2))) == [("w1", f"interface lo is down: {TWO}")]


@pytest.mark.parametrize(
    ("address", "launch", "found"),
    [
        ("", job(MASTER_ADDR="localhost"), ["interface lo has no address, and the ranks meet at localhost"]),
        (
            "",
            config("torchrun --nproc-per-node 2 t.py"),
            ["interface lo has no address, and the ranks meet at 127.0.0.1"],
        ),
        ("", job(MASTER_ADDR="10.0.0.1"), []),
        ("127.0.0.1", job(MASTER_ADDR="localhost"), []),
        ("::1", job(MASTER_ADDR="::1"), []),
    ],
)
def test_ranks_that_meet_at_an_address_of_lo(address: str, launch: LaunchConfig, found: list[str]) -> None:
    """Measured: torchrun --standalone ends with "Network is unreachable" where lo is up and has no address."""
    hosts = without_lo(1)
    for place, fact in enumerate(hosts["w1"]):
        if isinstance(fact, Interfaces):
            of_lo = (LinkAddress("lo", "lo", address, 8),) if address else ()
            others = (one for one in fact.addresses if one.interface != "lo")
            hosts["w1"][place] = msgspec.structs.replace(fact, addresses=(*of_lo, *others))
    assert [text for _, text in messages(run_check(NAME, hosts, launch))] == found
