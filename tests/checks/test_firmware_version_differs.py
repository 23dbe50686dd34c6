"""What firmware-version-differs finds."""

from __future__ import annotations

from tests.checks.devices import fleet, of, skipped, versions

look = of("firmware_version_differs")


def test_the_odd_host_is_named() -> None:
    (finding,) = look(fleet(versions(), versions(firmware="7.1.0.11.220"), versions()))
    assert finding.hosts == ("b",)
    assert str(finding) == "NPU firmware 7.1.0.11.220; 2 of 3 hosts have 7.8.0.7.220"


def test_hosts_that_show_no_firmware_are_not_compared() -> None:
    assert look(fleet(versions(), versions(firmware=None), versions())) == []
    assert skipped(look, fleet(versions(firmware=None), versions(firmware=None)))
