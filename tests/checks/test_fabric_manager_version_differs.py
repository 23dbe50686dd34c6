"""What fabric-manager-version-differs finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import cards, manager
from tests.checks.run_check import messages, run_check, skipped


def test_the_same_version_or_none() -> None:
    assert messages(run_check("fabric-manager-version-differs", {"w1": [manager(), cards()]})) == []
    assert messages(run_check("fabric-manager-version-differs", {"w1": [manager(version=""), cards()]})) == []
    assert skipped(run_check("fabric-manager-version-differs", {"w1": [manager(switches=0), cards(switches=0)]}))


def test_another_version() -> None:
    assert messages(run_check("fabric-manager-version-differs", {"w1": [manager(version="550.90.07"), cards()]})) == [
        ("w1", "the fabric manager is 550.90.07; the driver is 550.54.15")
    ]
