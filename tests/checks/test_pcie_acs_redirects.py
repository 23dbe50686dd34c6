"""What pcie-acs-redirects finds."""

from __future__ import annotations

import pytest

from tests.checks.gpu_hosts import ADAPTERS, cards
from tests.checks.run_check import messages, run_check, skipped


def test_direct_transfers() -> None:
    assert messages(run_check("pcie-acs-redirects", {"w1": [cards(), ADAPTERS]})) == []


def test_bridges_that_redirect() -> None:
    bridges = tuple(f"0000:{number:02x}:01.0" for number in range(8))
    ((_, text),) = messages(run_check("pcie-acs-redirects", {"w1": [cards(redirecting=bridges)]}))
    assert text.startswith("ACS is on for 8 of the PCIe bridges: 0000:00:01.0, 0000:01:01.0")


def test_what_only_root_can_read_is_unknown() -> None:
    assert run_check("pcie-acs-redirects", {"w1": [cards(redirecting=None)]}).unknown["w1"].text.endswith("use --sudo")


@pytest.mark.parametrize("machine", ["QEMU Standard PC (Q35 + ICH9, 2009)", "Amazon EC2 p5.48xlarge", "Xen HVM domU"])
def test_a_virtual_machine_is_left_out(machine: str) -> None:
    assert skipped(run_check("pcie-acs-redirects", {"w1": [cards(machine=machine, redirecting=("0000:00:01.0",))]}))


def test_one_gpu_has_no_peer() -> None:
    assert skipped(run_check("pcie-acs-redirects", {"w1": [cards(pci=1, redirecting=None)]}))
