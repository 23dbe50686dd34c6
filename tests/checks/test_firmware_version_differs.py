"""What firmware-version-differs finds."""

from __future__ import annotations

from tests.checks.device_network import product
from tests.checks.devices import fleet, of, skipped, versions

look = of("firmware_version_differs")


def test_the_odd_host_is_named() -> None:
    (finding,) = look(fleet(versions(), versions(firmware="7.1.0.11.220"), versions()))
    assert finding.hosts == ("b",)
    assert str(finding) == "NPU firmware 7.1.0.11.220; 2 of 3 hosts have 7.8.0.7.220"
    assert (finding.values["change"], finding.values["package"]) == ("That is an upgrade.", None)


def test_which_way_it_goes_and_the_name_of_the_package() -> None:
    hosts = versions(), versions(), versions(firmware="7.9.0.1.220")
    (finding,) = look(fleet(*hosts), fleet(*[product("A2")] * 3))
    assert (finding.values["change"], finding.values["package"]) == ("That is a downgrade.", "910b")
    (finding,) = look(fleet(versions(), versions(), versions(firmware="7.9.RC1")), fleet(*[product("inference")] * 3))
    assert (finding.values["change"], finding.values["package"]) == ("", "")


def test_hosts_that_show_no_firmware_are_not_compared() -> None:
    assert look(fleet(versions(), versions(firmware=None), versions())) == []
    assert skipped(look, fleet(versions(firmware=None), versions(firmware=None)))
