"""What cann-driver-mismatch finds."""

from __future__ import annotations

import pytest

from tests.checks.devices import cann, of, unknown, versions

look = of("cann_driver_mismatch")


@pytest.mark.parametrize(
    ("driver", "version"),
    [
        ("24.1.rc3.b999", "8.1.RC1"),
        ("25.0.RC1", "8.2.RC1.beta1"),
        ("25.5.2", "8.5.1"),
        ("26.0.RC1", "9.1.0"),
        ("25.0.0", "9.0.0"),
        ("24.1.RC1", "8.0.RC1"),
    ],
)
def test_pairs_that_the_vendor_lists(driver: str, version: str) -> None:
    assert look(versions(driver=driver), cann(version)) == []


@pytest.mark.parametrize(
    ("driver", "version", "expected"),
    [("25.0.RC1", "9.1.0", "25.2"), ("24.1.0", "8.5.0", "25.0"), ("23.0.3", "8.2.RC1", "24.1")],
)
def test_a_driver_that_it_excludes_or_that_is_older_than_all(driver: str, version: str, expected: str) -> None:
    (finding,) = look(versions(driver=driver), cann(version))
    assert str(finding) == f"driver {driver} with CANN {version}; the vendor lists it with driver {expected} and newer"


@pytest.mark.parametrize(
    ("driver", "version", "why"),
    [
        ("27.1.0", "9.1.0", "does not hold driver 27.1.0"),
        ("25.5.2", "6.3.RC2", "do not hold CANN 6.3.RC2"),
        ("25.5.2", "10.0.0", "do not hold CANN 10.0.0"),
        ("7", "9.1.0", "two numbers or more"),
    ],
)
def test_what_no_table_holds_is_unknown(driver: str, version: str, why: str) -> None:
    assert why in str(unknown(look, versions(driver=driver), cann(version)))
