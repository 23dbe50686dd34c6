"""Rules about values: one table for every source, whose causes and consequences are told apart in one way."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.analysis.values.splits import holders_of_same, majority_split, shared_and_unread, split_by_name
from doctor.analysis.values.value_defect import RESULTS, RULES, ValueDefect, explains, rule_of, separate_causes
from doctor.engine.catalog import load_checks
from doctor.watch.data.value_rules import ALIKE, AlikeRule
from tests.analysis.value_faults import VALUE_FAULTS
from tests.smoke.mutants import MUTANTS
from tests.watch.data_faults import FAULTS

CHECKS = {check.name for check in load_checks()}
ROOT = Path(__file__).parents[2]
RECORDED = "doctor/watch/hook/step_records.py"
HOOK = "".join((ROOT / path).read_text("utf-8") for path in (RECORDED, "doctor/watch/hook/data_collection.py"))
SOURCES = ("doctor/watch/data", "doctor/smoke/numerics")
NOT_OF_VALUES = {"smoke-reference-differs", "smoke-collective-wrong"}
"""Whether ranks may compute other bits than each other, and what a collective gave: not a value of one rank."""
NAMES = sorted({name.partition("/")[0] for name in RULES})


def defect(check: str, step: int = 0, *, root: bool = False, kind: str = "any", rank: int = 1) -> ValueDefect:
    return ValueDefect(check, kind, step, (rank,), "{who}", root=root)


def test_every_rule_is_reported_by_a_check_that_exists() -> None:
    named = {name.partition("/")[0] for row in RULES.items() for name in (row[0], *row[1])}
    absent = (named | set(RESULTS)) - CHECKS
    assert not absent, "RULES names checks that are not in checks/: hatch run new-check NAME --area smoke"


@pytest.mark.parametrize("row", ALIKE, ids=lambda row: f"{row.record}-{row.check}")
def test_every_row_of_values_that_are_alike_is_recorded_and_has_a_rule(row: AlikeRule) -> None:
    assert any(f'{call}"{row.record}", ' in HOOK for call in ("yield ", "_emit(")), (
        f"{RECORDED} records no {row.record}: add it to `updated_values`"
    )
    assert row.check in NAMES, f"RULES of doctor/analysis/values/value_defect.py: expected a row for {row.check}"
    assert rule_of(row.check, row.kind) in RULES, f"RULES of doctor/analysis/values/value_defect.py: {row.check}"


def test_every_defect_names_a_check_of_the_table_of_rules() -> None:
    sources = (path.read_text("utf-8") for folder in SOURCES for path in (ROOT / folder).glob("*.py"))
    constants = {name for text in sources for name in re.findall(r'"(smoke-[a-z-]+)"', text)}
    assert constants & CHECKS
    without_rule = constants - {*NAMES, *NOT_OF_VALUES}
    assert not without_rule, "RULES of doctor/analysis/values/value_defect.py: expected a row for each of these checks"


@pytest.mark.parametrize("cause", [name for name in NAMES if name not in RESULTS])
@pytest.mark.parametrize("result", RESULTS)
def test_what_is_wrong_before_a_result_explains_it_in_any_later_step(cause: str, result: str) -> None:
    causes, consequences = separate_causes([defect(result, 2), defect(cause, 1)])
    assert [entry.check for entry in causes] == [cause]
    assert [(entry.check, check) for entry, check in consequences] == [(result, cause)]


@pytest.mark.parametrize(
    ("first", "later"), [*itertools.permutations(("smoke-loss-differs", "smoke-parameters-diverge"))]
)
def test_of_two_results_the_first_in_time_is_the_cause(first: str, later: str) -> None:
    causes, consequences = separate_causes([defect(later, 2), defect(first, 1)])
    assert ([entry.check for entry in causes], [check for _, check in consequences]) == ([first], [first])


def test_a_sum_on_all_ranks_lets_none_of_them_differ() -> None:
    causes, _ = separate_causes([defect("smoke-gradient-summed"), defect("smoke-parameters-diverge", 1)])
    assert len(causes) == 2


def test_a_warning_explains_nothing() -> None:
    warning = ValueDefect("smoke-shards-wrong", "batch size", 0, (1,), "{who}", level="warning")
    causes, consequences = separate_causes([warning, defect("smoke-parameters-diverge", 1)])
    assert len(causes) == 2 and not consequences


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(-1, 3), st.booleans()), max_size=8))
def test_nothing_gets_lost_and_a_consequence_has_a_cause_that_stands(drawn: list[tuple[str, int, bool]]) -> None:
    defects = [defect(check, step, root=root) for check, step, root in drawn]
    causes, consequences = separate_causes(defects)
    assert len(causes) + len(consequences) == len(defects)
    assert bool(causes) == bool(defects)
    assert all(not entry.root for entry, _ in consequences)
    assert {check for _, check in consequences} <= {entry.check for entry in causes}


def test_one_kind_of_a_check_may_have_a_row_of_its_own() -> None:
    assert explains(("smoke-shards-wrong", "twice"), ("smoke-update-missing", "no-step"))
    assert not explains(("smoke-shards-wrong", "twice"), ("smoke-update-missing", "frozen"))
    assert explains(("smoke-update-missing", "no-step"), ("smoke-update-missing", "still"))


VALUES = st.dictionaries(st.integers(0, 8), st.integers(0, 2), min_size=1)


@given(VALUES)
def test_a_majority_names_those_that_differ_from_it_and_a_tie_names_all(values: dict[int, int]) -> None:
    split = majority_split(values)
    if split is None:
        assert len(set(values.values())) == 1
    elif split.tie:
        assert set(split.differing) == set(values)
    else:
        assert {values[rank] for rank in split.agreeing} == {values[split.norm]}
        assert all(values[rank] != values[split.norm] for rank in split.differing)
        assert {*split.agreeing, *split.differing} == set(values)


@given(VALUES)
def test_holders_of_one_value_are_named_together(values: dict[int, int]) -> None:
    texts = {rank: str(value) for rank, value in values.items()}
    named = [rank for ranks in holders_of_same(texts) for rank in ranks]
    assert sorted(named) == sorted(rank for rank in texts if list(texts.values()).count(texts[rank]) > 1)


def test_hosts_vote_where_there_are_several() -> None:
    hosts = {0: "a", 1: "a", 2: "a", 3: "b", 4: "c"}
    split = majority_split({0: 9, 1: 9, 2: 9, 3: 1, 4: 1}, hosts=hosts)
    assert split is not None and split.differing == (0, 1, 2)


def test_tables_are_compared_by_the_names_that_all_have() -> None:
    assert split_by_name({0: {"w": 1}, 1: {"w": 1, "own": 5}}, [0, 1]) is None
    assert split_by_name({0: {"w": 1}}, [0, 1]) is None


def test_parts_are_read_once_by_one_reader_each() -> None:
    assert shared_and_unread({0: [0, 1], 1: [2, 3]}, range(4)) == ({}, [])
    assert shared_and_unread({0: [0, 1], 1: [1]}, range(3)) == ({1: [0, 1]}, [2])


@pytest.mark.parametrize("fault", VALUE_FAULTS)
def test_a_mistake_is_named_by_one_check_from_every_source_that_can_show_it(fault: str) -> None:
    """The trials themselves are tests/smoke/test_mutants.py and tests/watch/test_data.py."""
    row = VALUE_FAULTS[fault]
    checks = {mutant.name: mutant.check for mutant in MUTANTS}
    assert {checks[name] for name in row.smoke} <= {row.check}
    assert all(row.check in FAULTS[name].checks for name in row.watch)
    assert bool(row.only) == (not row.smoke or not row.watch), "a source is absent, and nothing says why"


def test_every_rule_and_every_fault_of_a_source_is_in_the_table_of_mistakes() -> None:
    ruled = {name.partition("/")[0] for name in RULES}
    assert {row.check for row in VALUE_FAULTS.values()} == ruled
    mutants = [name for row in VALUE_FAULTS.values() for name in row.smoke]
    assert sorted(mutants) == sorted(mutant.name for mutant in MUTANTS if mutant.check in ruled)
    assert {name for row in VALUE_FAULTS.values() for name in row.watch} == FAULTS.keys()
