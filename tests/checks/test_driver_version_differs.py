"""What driver-version-differs finds."""

from __future__ import annotations

from tests.checks.devices import fleet, of, versions

look = of("driver_version_differs")


def test_the_odd_host_is_named() -> None:
    (finding,) = look(fleet(versions(), versions(), versions(driver="24.1.0")))
    assert finding.hosts == ("c",)
    assert str(finding) == "NPU driver 24.1.0; 2 of 3 hosts have 25.5.2"
