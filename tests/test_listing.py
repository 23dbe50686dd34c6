"""The list is read off the files without running them, and says what loading them would say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from doctor.cli.fast_list import CheckListEntry, format_check_list, read_list_entry
from doctor.engine.catalog import check_files, load_checks
from doctor.engine.check import BadCheck, Check
from doctor.engine.check_files import AREAS, DECLARATION


@pytest.mark.parametrize("check", load_checks(), ids=lambda check: check.name)
def test_a_skimmed_check_is_the_loaded_one(check: Check) -> None:
    assert read_list_entry(Path(check.path)) == CheckListEntry(
        check.name, check.severity.value, check.area, check.claim
    )


def test_none_of_ours_needs_to_be_loaded_for_the_list() -> None:
    assert [path.name for path, _ in check_files() if not re.search(DECLARATION, path.read_text("utf-8"))] == []


def test_a_file_that_looks_unusual_is_loaded_after_all(tmp_path: Path) -> None:
    path = tmp_path / "our_rule.py"
    path.write_text(
        "import doctor\nfrom doctor.facts.visit import Reachability\n\n\n"
        "def our_rule(reach: Reachability):\n    'Fine.'\n    yield\n\n\n"
        "doctor.check(severity=doctor.WARNING, area='kernel')(our_rule)\n"
    )
    assert read_list_entry(path) == CheckListEntry("our-rule", "warning", "kernel", "Fine")


def test_a_file_that_breaks_the_rules_is_refused(tmp_path: Path) -> None:
    (tmp_path / "our_rule.py").write_text("nothing = here\n")
    with pytest.raises(BadCheck, match="NameError"):
        read_list_entry(tmp_path / "our_rule.py")


def test_the_list_is_by_area_in_their_order() -> None:
    text = format_check_list(
        [CheckListEntry("b", "error", "kernel", "B is"), CheckListEntry("ab", "warning", "connectivity", "A is")]
    )
    assert text == "connectivity\n  ab  warning  A is\n\nkernel\n  b   error    B is\n"
    areas = [
        line
        for line in format_check_list([read_list_entry(path) for path, _ in check_files()]).splitlines()
        if line[:1].strip()
    ]
    assert areas == [area for area in AREAS if area in areas]
