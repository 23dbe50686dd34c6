"""Which reasons say that only root may look: those in doctor's own words, and no text of a host."""

from __future__ import annotations

import pytest

from doctor.engine.result import Reason

OF_ROOT = [
    "only root may read the kernel log (kernel.dmesg_restrict): use --sudo",
    "only root may read the settings of PCIe bridges: use --sudo",
    "only root may read the firewall's rules: log in as root, or use --sudo",
    "/dev/shm: only root may check the files of other users, 2 here: use --sudo",
]
OF_OTHERS = [
    "dmesg: read kernel buffer failed: use --sudo",
    "the tool says: only root may read it: use --sudo",
    "only root may read it: use --sudo\nand more",
    "only root may enter",
]


@pytest.mark.parametrize("text", OF_ROOT)
def test_root_may_look(text: str) -> None:
    assert Reason(text).needs_root


@pytest.mark.parametrize("text", OF_OTHERS)
def test_other_reasons(text: str) -> None:
    assert not Reason(text).needs_root
