"""Healthy fleets of many products: `doctor check` finds nothing but the differences that a fleet was made with.

``python -m tests.attack healthy COUNT [--seed SEED]``, as root. A fleet has 2 to 8 hosts, and is one of: hosts of one
product; those beside plain ones, such as a login host; hosts with NPUs beside hosts with GPUs; any products.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.hosts.fleet import Fleet, merge
from tests.hosts.gpu import CAN_LOCK_ALL
from tests.hosts.products import GPUS, NPUS, PARTS, Product, choose_product, npu_family, product_host

ROOT = Path(__file__).resolve().parents[2]
PREPARED = {
    "sysctl": {"net.ipv4.ip_local_reserved_ports": "60000-60031", "net.ipv4.tcp_max_syn_backlog": "4096"},
    "files": {"/etc/sysctl.d/90-cluster.conf": "net.ipv4.ip_local_reserved_ports = 60000-60031\n"},
}
SILENT_BY_RIGHT = (
    {} if CAN_LOCK_ALL else {"locked-memory-limit-low": "true of this machine, which hides it from no host"}
)


class HealthyFleet(NamedTuple):
    """A fleet to be made."""

    mixture: str
    hosts: tuple[Product, ...]

    def __str__(self) -> str:
        counts = Counter(
            f"{host.accelerator or 'no accelerator'}/{host.rdma}/{host.distribution}/{host.speed}"
            for host in self.hosts
        )
        return f"{self.mixture}: " + ", ".join(f"{count} x {product}" for product, count in counts.items())


def fleet_of(choose: random.Random) -> HealthyFleet:
    """One fleet."""
    count = choose.randint(2, 8)
    mixture = choose.choice(("alike", "alike", "alike", "beside plain hosts", "NPUs beside GPUs", "any"))
    product = choose_product(choose)
    hosts = [product] * count
    if mixture == "any":
        hosts = [choose_product(choose) for _ in range(count)]
    elif mixture == "beside plain hosts":
        plain_product = product._replace(accelerator="", rdma="none")
        hosts[: choose.randint(1, max(1, count // 2))] = [plain_product] * choose.randint(1, 2)
    elif mixture == "NPUs beside GPUs":
        hosts = [product._replace(accelerator=choose.choice(list(NPUS)), rdma="none")] * (count // 2)
        hosts += [product._replace(accelerator=choose.choice(list(GPUS)))] * (count - count // 2)
    return HealthyFleet(mixture, tuple(hosts))


ALL_OF_NPUS = frozenset(
    (
        "product-mixed",
        "npu-count-differs",
        "driver-version-differs",
        "cann-version-differs",
        "npu-topology-differs",
        "device-unreachable",  # each family has a network of its own
    )
)
ALL_OF_GPUS = frozenset(
    ("gpu-product-mixed", "gpu-count-differs", "gpu-driver-differs", "gpu-mig-differs", "gpu-topology-differs")
)
OF_ADAPTERS = frozenset(("rdma-devices-differ", "rdma-settings-differ", "rdma-port-slow"))


def true_differences(hosts: Sequence[Product]) -> frozenset[str]:
    """The checks that may say that these hosts differ: they do."""
    names: frozenset[str] = frozenset()
    if len({host.accelerator for host in hosts if host.accelerator in (*NPUS, *PARTS, "310P")}) > 1:
        names |= ALL_OF_NPUS
    if len({host.accelerator for host in hosts if host.accelerator in GPUS}) > 1:
        names |= ALL_OF_GPUS
    if len({host.rdma for host in hosts if host.rdma != "none"}) > 1:
        names |= OF_ADAPTERS
    if len({host.distribution for host in hosts}) > 1:
        names |= {"host-settings-differ"}
    if len({host.speed for host in hosts}) > 1:
        names |= {"network-card-slow"}
    return names | ({"host-snapshot-differs"} if len(set(hosts)) > 1 else set())


HONEST = (("npu-busy", "lists no processes"), ("cann-driver-mismatch", "do not hold CANN 6.0"))
"""Check, and a part of the reason, of what healthy hosts leave unknown: drivers before 23 list no processes."""
HONEST_OF_FAMILIES = (
    ("device-ip-unset", "without super pod ids"),
    ("device-link-down", "without super pod ids"),
)
"""The same where NPUs of A3 stand beside those of another family, which are in no super pod."""


class Judged(NamedTuple):
    """What doctor made of a fleet."""

    false: list[str]
    """Findings that no difference explains, crashed checks, and what is unknown without need."""
    unknown: list[tuple[str, str]]
    """Check and reason of what is unknown by right."""


def judge(fleet: HealthyFleet, *arguments: str) -> Judged:
    """Makes the fleet, and runs the whole check on it."""
    overrides = {f"hf{n + 1:04d}": merge(PREPARED, product_host(host, n)) for n, host in enumerate(fleet.hosts)}
    created_fleet = Fleet.up(len(fleet.hosts), overrides, name="hf", subnet="10.71.0.0/16", shm="4g")
    try:
        report = _check(created_fleet, "--compare", "all", *arguments)
    finally:
        created_fleet.down()
    return judge_report(report, fleet.hosts)


def judge_report(report: dict[str, Any], hosts: Sequence[Product]) -> Judged:
    """What of a report the differences of the hosts do not explain."""
    allowed = true_differences(hosts) | set(SILENT_BY_RIGHT)
    false = [
        f"{outcome['check']}: {finding['hosts']}: {finding['message']}"
        for outcome in report["outcomes"]
        for finding in outcome["findings"]
        if outcome["check"] not in allowed and finding["severity"] != "note"
    ]
    false += [
        f"{outcome['check']}: crashed: {outcome['crashed']}" for outcome in report["outcomes"] if outcome["crashed"]
    ]
    families = {npu_family(host) for host in hosts} - {""}
    honest = (*HONEST, *(HONEST_OF_FAMILIES if len(families) > 1 else ()))
    unknown = list(_unknown(report))
    by_right = [(check, reason) for check, reason in unknown if any(check == c and r in reason for c, r in honest)]
    false += [f"{check}: unknown: {reason}" for check, reason in unknown if (check, reason) not in by_right]
    return Judged(false, by_right)


def _check(fleet: Fleet, *arguments: str) -> dict[str, Any]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "HCCL", "RANK"))}
    command = [sys.executable, "-m", "doctor", "check", ",".join(fleet.hosts), "-F", str(fleet.ssh_config), "--json"]
    done = fleet.run([*command, *arguments], env=clean, text=False, cwd=ROOT, timeout=400)
    assert done.stdout, done.stderr.decode()
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _unknown(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for outcome in report["outcomes"]:
        for reason in {gap["reason"] for gap in outcome["unknown"]}:
            yield outcome["check"], reason


def campaign(count: int, seed: int) -> int:
    """Judges ``count`` fleets; prints false findings, and what is unknown. Returns how many fleets had a false one."""
    choose = random.Random(seed)
    unknown: Counter[tuple[str, str]] = Counter()
    failed = 0
    for number in range(count):
        fleet = fleet_of(choose)
        evaluated = judge(fleet)
        unknown.update(evaluated.unknown)
        failed += bool(evaluated.false)
        print(f"fleet {number}: {fleet}: {len(evaluated.false)} false, {len(evaluated.unknown)} unknown", flush=True)
        for line in evaluated.false:
            print(f"    {line}", flush=True)
    for (check, reason), times in sorted(unknown.items()):
        print(f"unknown in {times}: {check}: {reason}")
    return failed
