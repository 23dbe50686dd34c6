"""The catalogue: one file a check, one name everywhere, the same door for a site's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from doctor.engine.catalog import bundled_folder, load_check, load_checks, select_checks
from doctor.engine.check import BadCheck, Check
from doctor.engine.check_files import AREAS, ROUND_AREAS
from doctor.engine.fact import Fact
from doctor.engine.result import IN_CONTAINER, fill_template
from doctor.remedy.catalog import load_playbooks

ALL = load_checks()

GOOD = '''
from doctor import ERROR, Finding, check
from doctor.facts.visit import Reachability

@check(severity=ERROR)
def {name}(reach: Reachability):
    """Fine."""
    yield Finding("x")
'''


def probe_kinds(facts: Iterable[type[Fact]]) -> Iterator[str]:
    """How these facts, and those that they need, are read."""
    for fact in facts:
        yield fact.probe.kind
        yield from probe_kinds(fact.needs)


@pytest.mark.parametrize("checked", ALL, ids=lambda entry: entry.name)
class TestEveryCheck:
    def test_has_a_page(self, checked: Check) -> None:
        """A claim that is a sentence, why it matters, what to do."""
        assert re.match(r"[A-Za-z/`].*\w[`)]?$", checked.claim), checked.claim
        assert len(checked.claim) <= 110
        assert checked.section("Why it matters")
        assert checked.section("What to do")

    def test_has_an_area_that_reports_know(self, checked: Check) -> None:
        assert checked.area in AREAS

    def test_is_left_out_with_a_round_only_if_it_needs_that_round(self, checked: Check) -> None:
        """A check of an area that `doctor check` leaves out would never run there, and its host be called healthy."""
        kinds = set(probe_kinds(checked.facts))
        if checked.area in ROUND_AREAS and kinds:
            assert kinds & {"smoke", "network-test"}, f"{checked.name} reads facts of the first round: another area"

    def test_has_a_test_of_its_own(self, checked: Check) -> None:
        name = checked.name.replace("-", "_")
        assert Path(__file__).with_name("checks").joinpath(f"test_{name}.py").exists()

    def test_needs_facts_that_exist(self, checked: Check) -> None:
        assert checked.needs

    def test_has_a_page_whose_braces_are_placeholders(self, checked: Check) -> None:
        """A stray brace would show the advice unfilled."""
        text = checked.section("What to do")
        names = re.findall(r"\{(\w+)\}", text)
        assert fill_template(text, dict.fromkeys(names, "VALUE")).count("VALUE") == len(names), text


def test_no_two_facts_share_a_name() -> None:
    facts = {fact for check in ALL for fact in check.facts}
    assert len({fact.__name__ for fact in facts}) == len(facts)


def test_a_sites_own_check_comes_in_by_the_same_door(tmp_path: Path) -> None:
    (tmp_path / "our_rule.py").write_text(GOOD.format(name="our_rule"))
    assert [check.name for check in load_checks([tmp_path])][-1] == "our-rule"


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    (tmp_path / "host_unreachable.py").write_text(GOOD.format(name="host_unreachable"))
    with pytest.raises(BadCheck, match=r"host-unreachable is already defined in .*checks/host_unreachable.py"):
        load_checks([tmp_path])


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("def other(): pass", r"expected a function our_rule\(\) marked with @check"),
        ("def our_rule(): pass", "marked with @check"),
        ("import nothing_like_it", "ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("def our_rule(:", "SyntaxError"),
    ],
)
def test_a_file_that_breaks_the_rules_is_one_line(tmp_path: Path, text: str, output: str) -> None:
    path = tmp_path / "our_rule.py"
    path.write_text(text)
    with pytest.raises(BadCheck, match=output) as caught:
        load_check(path)
    assert str(path) in str(caught.value)


def test_checks_are_picked_by_name_and_by_area() -> None:
    assert [check.name for check in select_checks(ALL, ["host-unreachable"])] == ["host-unreachable"]
    assert {check.area for check in select_checks(ALL, ["ranks"])} == {"ranks"}
    assert "ranks" not in {check.area for check in select_checks(ALL, [], ["ranks"])}


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(LookupError, match="did you mean host-unreachable"):
        select_checks(ALL, ["host-unreachible"])


def test_nothing_else_lies_among_the_checks() -> None:
    assert [
        path.name for path in bundled_folder("checks").iterdir() if path.suffix != ".py" and path.name != "__pycache__"
    ] == []
    assert not (bundled_folder("checks") / "__init__.py").exists()


def test_what_is_fixed_on_a_machine_alone_has_another_remedy_in_a_container() -> None:
    """`doctor fix` changes no machine from inside a container: the page says what does it instead, and first."""
    machine = {name for book in load_playbooks() if book.host_only for name in book.treats}
    elsewhere = {"sysctl-lost-at-reboot"}
    """Checks that are skipped in a container."""
    given = {"npu-count-differs", "gpu-count-differs", "gpu-tool-fails", "interface-doubtful", "interface-unreachable"}
    """What a container lacks was not given to it; nothing is changed on its machine."""
    contained = {entry.name for entry in ALL if entry.section(IN_CONTAINER)}
    required = (machine - elsewhere) | given
    assert required - contained == set(), (
        "treated by a playbook with `host_only`: expected ## In a container on its page"
    )
    assert contained - required == set(), "## In a container on the page, and no playbook with `host_only` treats it"
    for check in ALL:
        section = check.section(IN_CONTAINER)
        names = re.findall(r"\{(\w+)\}", section)
        assert fill_template(section, dict.fromkeys(names, "VALUE")).count("VALUE") == len(names), section
        assert not section or re.search(r"docker run|machine", section), section
