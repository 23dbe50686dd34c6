"""What cann-version-differs finds."""

from __future__ import annotations

from tests.checks.devices import cann, fleet, of

look = of("cann_version_differs")


def test_the_odd_host_is_named() -> None:
    (finding,) = look(fleet(cann(), cann("8.0.0"), cann()))
    assert finding.hosts == ("b",)
    assert str(finding) == "CANN 8.0.0; 2 of 3 hosts have 8.3.RC1"
