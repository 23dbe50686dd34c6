"""A finding's values in a playbook: what a host printed stays what it is, whatever it holds."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.remedy.playbook import Playbook, PlaybookStep, fill_step, needed_values
from doctor.remedy.template import TemplateError, fill_content, fill_path, fill_pattern, fill_text


def test_a_list_is_lines_and_a_value_is_itself() -> None:
    step = PlaybookStep(1, "x", run='for n in $npus; do f "$n" "$name"; done', changes=False)
    assert fill_step(step, {"npus": [1, 2], "name": "a'b $(c)"}).values == {"npus": "1\n2", "name": "a'b $(c)"}


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ("-rf", "begin like an option"),
        (["a", "-b"], "begin like an option"),
        (-1, "begin like an option"),
        ("a\0b", "expected one line"),
        ("a\nb", "expected one line"),
        ([], "is empty"),
        ("x" * 200_000, "is longer than"),
    ],
)
def test_what_cannot_be_a_variable_is_refused(value: Any, output: str) -> None:
    with pytest.raises(TemplateError, match=output):
        fill_step(PlaybookStep(1, "x", run='f "$v"', changes=False), {"v": value})


def test_a_value_that_no_command_reads_may_be_anything() -> None:
    step = PlaybookStep(1, "x", run="f", changes=False)
    assert fill_step(step, {"v": "a\0b"}).values == {}
    with pytest.raises(TemplateError, match="the finding has no value for"):
        fill_step(PlaybookStep(1, "x", run="f $w", changes=False), {"v": 1})


def test_sentences_hold_plain_words() -> None:
    assert fill_text("NPU {npus} of {user}", {"npus": [1, 2], "user": "a\x1b[31m\nb"}) == "NPU 1 and 2 of a b"


@given(value=st.text(max_size=20))
def test_a_value_never_becomes_a_line_of_its_own(value: str) -> None:
    try:
        held = fill_content("a = {v}", {"v": value})
    except TemplateError:
        assert not value.isprintable()
    else:
        assert held.splitlines() == ["a = " + value]


@given(value=st.text(max_size=20))
def test_a_value_never_leaves_its_folder(value: str) -> None:
    try:
        path = fill_path("/etc/x.d/{v}", {"v": value})
    except TemplateError:
        return
    assert path.rpartition("/") == ("/etc/x.d", "/", value)
    assert value not in ("", ".", "..")
    assert not {"/", "\n", "\0"} & set(value)


def test_what_would_name_a_folder_is_no_part_of_a_name() -> None:
    for value in (".", "..", "", "a/b", "../x", "a\nb"):
        with pytest.raises(TemplateError):
            fill_path("/etc/.{v}", {"v": value})


@given(value=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12))
def test_a_value_in_a_pattern_stands_for_itself(value: str) -> None:
    pattern = fill_pattern("^{v}=", {"v": value})
    assert re.match(pattern, value + "=1", re.ASCII)
    assert not re.match(pattern, "x" + value + "=1")


STEP = PlaybookStep(1, "Set {v}", before="get", run='set "$v" "$before"', undo='set "$before"', only='test "$w"')


def test_a_step_is_filled_whole() -> None:
    step = fill_step(STEP, {"v": "a b", "w": 1, "before": "x y"})
    assert step == msgspec.structs.replace(STEP, say="Set a b", values={"v": "a b", "w": "1", "before": "x y"})
    assert needed_values(STEP) == {"v", "w"}
    held = fill_step(PlaybookStep(2, "x", file="/etc/{v}", text="{v}\n", mode="0600"), {"v": "a"})
    assert (held.file, held.text, held.mode) == ("/etc/a", "a\n", "0600")


def test_what_is_left_to_hands() -> None:
    executor = PlaybookStep(1, "Clean the fibre")
    assert executor.manual and not STEP.manual and not PlaybookStep(1, "x", file="/a", text="").manual
    assert Playbook("a", "", "A", ("b",), "network", "none", steps=(executor,)).manual
    assert not Playbook("a", "", "A", ("b",), "network", "none", steps=(executor, STEP)).manual
