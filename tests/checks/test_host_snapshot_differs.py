"""What host-snapshot-differs finds."""

from __future__ import annotations

from doctor.engine.catalog import load_checks, select_checks
from doctor.engine.result import accused_hosts
from doctor.facts.snapshot import CATEGORIES, HostSnapshot
from tests.checks.run_check import fleet, messages, run_check, skipped


def snapshot(**categories: dict[str, str]) -> HostSnapshot:
    return HostSnapshot(values={name: categories.get(name, {}) for name in CATEGORIES})


USUAL = snapshot(sysctl={"vm.swappiness": "60"}, packages={"rdma-core": "39.0-1"})


def test_equal_hosts_and_too_few() -> None:
    assert messages(run_check("host-snapshot-differs", fleet(3, USUAL))) == []
    assert skipped(run_check("host-snapshot-differs", fleet(2, USUAL)))


def test_each_outlier_and_category() -> None:
    other = snapshot(sysctl={"vm.swappiness": "10"}, environment={"NCCL_DEBUG": "INFO"})
    assert messages(run_check("host-snapshot-differs", {**fleet(3, USUAL), "w4": [other]})) == [
        ("w4", "sysctl: 1 value unlike those of most hosts: vm.swappiness: 10 in place of 60"),
        ("w4", "packages: 1 value unlike those of most hosts: rdma-core: not there in place of 39.0-1"),
        ("w4", "environment: 1 value unlike those of most hosts: NCCL_DEBUG: INFO in place of not there"),
    ]


def test_firmware_and_kernel_modules() -> None:
    usual = snapshot(firmware={"bios": "2.1"}, modules={"mlx5_core": "24.10"})
    other = snapshot(firmware={"bios": "1.9"}, modules={"mlx5_core": "23.04"})
    assert messages(run_check("host-snapshot-differs", {**fleet(3, usual), "w4": [other]})) == [
        ("w4", "firmware: 1 value unlike those of most hosts: bios: 1.9 in place of 2.1"),
        ("w4", "modules: 1 value unlike those of most hosts: mlx5_core: 23.04 in place of 24.10"),
    ]


def test_no_majority_is_no_finding() -> None:
    hosts = {f"w{number}": [snapshot(sysctl={"kernel.x": str(number)})] for number in range(4)}
    assert messages(run_check("host-snapshot-differs", hosts)) == []


def test_two_halves_differ_and_no_host_is_at_fault() -> None:
    other = snapshot(sysctl={"vm.swappiness": "10"}, packages={"rdma-core": "39.0-1"})
    outcome = run_check("host-snapshot-differs", {**fleet(2, USUAL), "w3": [other], "w4": [other]})
    (finding,) = outcome.findings
    assert messages(outcome)[0][1] == (
        "sysctl: 1 value on which the hosts differ, and none has a majority: vm.swappiness: 10 (w[3-4]); 60 (w[1-2])"
    )
    assert accused_hosts(finding, 4) == ()


def test_a_long_list_is_cut() -> None:
    many = snapshot(packages={f"package{number:03}": "1" for number in range(100)})
    ((_, text),) = messages(run_check("host-snapshot-differs", {**fleet(3, snapshot()), "w4": [many]}))
    assert text.startswith("packages: 100 values unlike")
    assert text.endswith("88 more")


def test_it_runs_only_when_it_is_named() -> None:
    checks = load_checks()
    assert "host-snapshot-differs" not in {check.name for check in select_checks(checks)}
    assert "host-snapshot-differs" not in {check.name for check in select_checks(checks, ["kernel"])}
    assert [check.name for check in select_checks(checks, ["host-snapshot-differs"])] == ["host-snapshot-differs"]
    assert "host-snapshot-differs" in {check.name for check in select_checks(checks, listing=True)}
