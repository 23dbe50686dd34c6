"""What firmware-mismatch finds."""

from __future__ import annotations

from tests.checks.devices import fleet, of, skipped, unknown, versions

look = of("firmware_mismatch")


def test_firmware_within_the_range() -> None:
    assert look(versions()) == []
    assert look(versions(firmware_ranges=(("1.0.0", "1.9.9"), ("7.0.0", "7.9.9")))) == []


def test_firmware_outside_the_range() -> None:
    (finding,) = look(versions(firmware="6.4.0.4.220"))
    assert (finding.values["observed"], finding.values["expected"]) == ("6.4.0.4.220", ["7.0.0 to 8.9.9"])
    assert "driver 25.5.2" in str(finding)


def test_what_cannot_be_compared_is_unknown() -> None:
    assert "cannot be compared" in str(unknown(look, versions(firmware="7.1.RC1")))


def test_where_one_side_is_not_there() -> None:
    assert skipped(look, versions(firmware=None))
    assert skipped(look, versions(firmware_ranges=()))


def test_one_other_host_gives_no_version_for_the_command() -> None:
    sick, well = versions(firmware="6.4.0.4.220"), versions(firmware="7.1.0.11.220")
    for others, version in ([well], None), ([well, well], "7.1.0.11.220"), ([well, versions(firmware="7.2.0")], None):
        (finding,) = look(sick, None, fleet(sick, *others))
        assert finding.values["version"] == version
