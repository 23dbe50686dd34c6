"""What python-version-differs finds."""

from __future__ import annotations

from tests.checks.devices import fleet, of, python

look = of("python_version_differs")


def test_patches_do_not_matter() -> None:
    assert look(fleet(python("3.10.12"), python("3.10.14"))) == []


def test_the_odd_host_is_named() -> None:
    (finding,) = look(fleet(python("3.10.12"), python("3.9.1"), python("3.10.12")))
    assert finding.hosts == ("b",)
    assert str(finding) == "Python 3.9; 2 of 3 hosts have 3.10"
