"""What fabric-manager-version-differs finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import cards, manager
from tests.checks.looked import judged, said, skipped


def test_the_same_version_or_none() -> None:
    assert said(judged("fabric-manager-version-differs", {"w1": [manager(), cards()]})) == []
    assert said(judged("fabric-manager-version-differs", {"w1": [manager(version=""), cards()]})) == []
    assert skipped(judged("fabric-manager-version-differs", {"w1": [manager(switches=0), cards(switches=0)]}))


def test_another_version() -> None:
    assert said(judged("fabric-manager-version-differs", {"w1": [manager(version="550.90.07"), cards()]})) == [
        ("w1", "the fabric manager is 550.90.07; the driver is 550.54.15")
    ]
