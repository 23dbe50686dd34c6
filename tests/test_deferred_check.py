"""Checks whose files run only when they are chosen."""

from pathlib import Path

import pytest

from doctor.engine.catalog import DeferredCheck, deferred_checks, load_checks
from doctor.engine.check import BadCheck
from doctor.session.select_checks import choose_with_rounds


def test_every_check_is_there_and_no_file_has_run() -> None:
    checks = deferred_checks()
    assert [(check.name, check.area) for check in checks] == [(check.name, check.area) for check in load_checks()]
    assert all(isinstance(check, DeferredCheck) and "function" not in vars(check) for check in checks)


def test_choosing_by_name_or_area_runs_no_file() -> None:
    checks = deferred_checks()
    chosen = choose_with_rounds(checks, ["disk-full", "links"], ["device-link-down"])
    assert {check.area for check in chosen} >= {"links", "memory"}
    assert not any("function" in vars(check) for check in checks)


@pytest.mark.parametrize(
    "attribute", ["severity", "function", "single_host", "follows_from", "advisory", "about", "apart", "claim", "needs"]
)
def test_what_else_is_read_is_that_of_the_loaded_check(attribute: str) -> None:
    loaded = {check.name: check for check in load_checks()}
    for check in deferred_checks()[:40]:
        value, expected = getattr(check, attribute), getattr(loaded[check.name], attribute)
        if attribute == "function":
            value, expected = value.__doc__, expected.__doc__
        elif attribute == "needs":
            value, expected = [need.parameter for need in value], [need.parameter for need in expected]
        assert value == expected


def test_what_a_check_does_not_have_is_an_attribute_error() -> None:
    check = deferred_checks()[0]
    with pytest.raises(AttributeError, match="colour"):
        _ = check.colour  # type: ignore[attr-defined]


def test_a_sites_own_file_runs_at_once(tmp_path: Path) -> None:
    (tmp_path / "our_rule.py").write_text("raise ValueError('no')\n")
    with pytest.raises(BadCheck, match=r"our_rule\.py: ValueError: no"):
        deferred_checks([tmp_path])


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "disk_full.py").write_text(Path(load_checks()[0].path).with_name("disk_full.py").read_text())
    with pytest.raises(BadCheck, match="disk-full is already defined"):
        deferred_checks([tmp_path])
