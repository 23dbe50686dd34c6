"""What host-settings-differ finds."""

from __future__ import annotations

import pytest

from tests.checks.gpu_hosts import settings
from tests.checks.run_check import fleet, messages, run_check, skipped


def test_equal_hosts_and_a_single_one() -> None:
    assert messages(run_check("host-settings-differ", fleet(3, settings()))) == []
    assert skipped(run_check("host-settings-differ", fleet(1, settings())))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kernel": "5.15.0-1045"}, "the kernel: 5.15.0-1045; 3 of 4 hosts have 5.15.0-1053-nvidia"),
        ({"huge_pages": "never"}, "transparent huge pages: never; 3 of 4 hosts have madvise"),
        ({"swap_devices": ("/dev/sda2",)}, "swap: on; 3 of 4 hosts have off"),
        ({"numa_nodes": 8}, "the number of NUMA nodes: 8; 3 of 4 hosts have 2"),
        ({"reserved_huge_pages": 512}, "vm.nr_hugepages: 512; 3 of 4 hosts have 0"),
        ({"command_line": ()}, "tuning words of the kernel's command line: none; 3 of 4 hosts have iommu=pt"),
    ],
)
def test_each_setting(change: dict[str, object], text: str) -> None:
    hosts = {**fleet(3, settings()), "w4": [settings(**change)]}
    assert messages(run_check("host-settings-differ", hosts)) == [("w4", text)]


def test_what_a_host_does_not_show_is_not_compared() -> None:
    hosts = {**fleet(3, settings()), "w4": [settings(governors=(), numa_balancing=None, clock_source="")]}
    assert messages(run_check("host-settings-differ", hosts)) == []
