"""The network test over srun, over mpirun, in the job's network namespace, and on hosts that have IPv6 alone."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.fleet import INSIDE, Fleet
from tests.hosts.slurm import Cluster, needs_mpirun, needs_slurm
from tests.net.campaign import TRIED_ALONE, findings_of
from tests.net.injected_faults import rules
from tests.net.ipv6_hosts import Ipv6Hosts

pytestmark = [pytest.mark.hosts, pytest.mark.full]
ROOT = Path(__file__).parents[2]
Finding = tuple[str, list[str], str]


def net(fleet: Fleet, *options: str, env: Mapping[str, str] = INSIDE) -> tuple[int, str, list[Finding]]:
    """Exit code, coverage and findings of the quick network test."""
    arguments = [sys.executable, "-m", "doctor", "net", ",".join(fleet.hosts), "--net", "quick", "--json"]
    arguments += [*TRIED_ALONE, *options]
    done = fleet.run(arguments, cwd=ROOT, timeout=300, env={**env, "PYTHONPATH": str(ROOT)})
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    return done.returncode, (report["net"] or {}).get("coverage", ""), findings_of(report)


def dropping(address: str, rest: str = "tcp dport 30000-65535 tcp flags & (syn|ack) == syn drop") -> str:
    family = "ip6" if ":" in address else "ip"
    return rules(f"{family} saddr {address} {rest}")


def require_direction(fleet: Fleet, results: tuple[int, str, list[Finding]]) -> None:
    """The last host does not hear the first on one port, and nothing else is said."""
    first, last = fleet.hosts[0], fleet.hosts[-1]
    ((check, hosts, message),) = results[2]
    assert (results[0], check, hosts) == (10, "net-port-blocked", [first, last])
    assert f"from {first} to {last}" in message


@pytest.fixture(scope="module")
def carried(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet(4, name="nc", subnet="10.84.0.0/16", shm="4g")


@needs_slurm
def test_over_srun(carried: Fleet) -> None:
    cluster = Cluster(carried)
    try:
        job = {**INSIDE, **cluster.allocate()}
        assert net(carried, "--transport", "slurm", env=job) == (
            0,
            "tested 6 of 6 pairs in both directions, 3 ports",
            [],
        )
        carried.enter(carried.hosts[-1], ["nft", "-f", "-"], input=dropping(carried.addresses[carried.hosts[0]]))
        require_direction(carried, net(carried, "--transport", "slurm", env=job))
    finally:
        cluster.end()
        carried.renew(*carried.hosts)


@needs_mpirun
def test_over_mpirun(carried: Fleet, tmp_path: Path) -> None:
    config = tmp_path / "ssh_config"
    addresses = "".join(f"Host {name}\n HostName {address}\n" for name, address in carried.addresses.items())
    config.write_text(addresses + carried.ssh_config.read_text())
    job = {**INSIDE, "OMPI_MCA_plm_rsh_agent": f"ssh -F {config}"}
    assert net(carried, "--transport", "mpi", env=job) == (0, "tested 6 of 6 pairs in both directions, 3 ports", [])
    with carried.broken(carried.hosts[-1], nft=dropping(carried.addresses[carried.hosts[0]])):
        require_direction(carried, net(carried, "--transport", "mpi", env=job))


JOBS_NETWORK = """\
set -e
ip netns add job
ip link add inner type veth peer name eth0 netns job
ip addr add 10.99.{own}.1/24 dev inner
ip link set inner up
ip -n job addr add 10.99.{own}.2/24 dev eth0
ip -n job link set lo up
ip -n job link set eth0 up
ip -n job route add default via 10.99.{own}.1
sysctl -qw net.ipv4.ip_forward=1
{routes}
"""
"""A network namespace of the job's own on a host, as a container has it, that the others reach through the host."""


def test_in_the_network_namespace_of_the_job(carried: Fleet) -> None:
    """A rule inside it is found with --within alone; the host's own network is healthy."""
    within = ("--within", "ip netns exec job")
    numbers = {host: address.rpartition(".")[2] for host, address in carried.addresses.items()}
    try:
        for host, number in numbers.items():
            others = [f"ip route add 10.99.{numbers[o]}.0/24 via {carried.addresses[o]}" for o in numbers if o != host]
            carried.enter(host, JOBS_NETWORK.format(own=number, routes="\n".join(others)))
        config = ("-F", str(carried.ssh_config))
        assert net(carried, *config, *within) == (0, "tested 6 of 6 pairs in both directions, 3 ports", [])
        rule = dropping(f"10.99.{numbers[carried.hosts[0]]}.2")
        carried.enter(carried.hosts[-1], ["ip", "netns", "exec", "job", "nft", "-f", "-"], input=rule)
        require_direction(carried, net(carried, *config, *within))
        assert net(carried, *config) == (0, "tested 6 of 6 pairs in both directions, 3 ports", [])
    finally:
        for host in carried.hosts:
            with contextlib.suppress(Exception):
                carried.enter(host, "ip netns delete job")
        carried.renew(*carried.hosts)


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside IPv4"])
def test_hosts_with_ipv6(make_fleet: Callable[..., Fleet], tmp_path: Path, alone: bool) -> None:
    """A blocked port, and one of several equal paths that is broken."""
    hosts: Any = Ipv6Hosts(make_fleet(4, name="nv", subnet="10.85.0.0/16"), tmp_path, alone=alone)
    config, first, last = ("-F", str(hosts.ssh_config)), hosts.hosts[0], hosts.hosts[-1]
    assert net(hosts, *config) == (0, "tested 6 of 6 pairs in both directions, 3 ports", [])
    with hosts.broken(last, nft=dropping(hosts.addresses[first])):
        require_direction(hosts, net(hosts, *config))
    flows = "jhash ip6 saddr . ip6 daddr . tcp sport . tcp dport mod 2 == 1 drop"
    with hosts.broken(last, nft=dropping(hosts.addresses[first], flows)):
        ((check, blamed, message),) = net(hosts, *config)[2]
    assert (check, blamed) == ("net-flows-lost", [first, last])
    assert f"from {first} to {last}" in message
