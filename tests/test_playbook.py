"""A finding's values in a playbook: what a host printed stays what it is, whatever it holds."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.remedy.playbook import Playbook, PlaybookStep, fill_step, needed_values
from doctor.remedy.template import TemplateError, fill_command, fill_content, fill_path, fill_pattern, fill_text

HOSTILE = st.text(st.sampled_from("ab \\\"'`$();&|<>*?~#\t\n!{}[]=-%é"), max_size=12)


def run(command: str) -> str:
    """What a real sh says to it, with ``f`` for ``printf %s``."""
    ended = subprocess.run(
        ["sh", "-c", 'f() { shift; printf "%s|" "$@"; }; ' + command], capture_output=True, text=True, check=False
    )
    assert ended.stderr == ""
    return ended.stdout


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("f -- {v} end", "{}|end|"),
        ("f -- 'a {v}' end", "a {}|end|"),
        ('f -- "it\'s {v}" end', "it's {}|end|"),
        ("f -- a{v}b end", "a{}b|end|"),
        ('f -- "$(f -- {v} "{v}")" end', "{}|{}||end|"),
    ],
)
@settings(max_examples=40, deadline=None)
@given(value=HOSTILE)
def test_any_value_stays_one_word(template: str, said: str, value: str) -> None:
    assert run(fill_command(template, {"v": value})) == said.replace("{}", value)


@settings(max_examples=40, deadline=None)
@given(values=st.lists(HOSTILE, min_size=1, max_size=4))
def test_of_a_list_each_item_is_a_word(values: list[str]) -> None:
    assert run(fill_command("f -- {v}", {"v": values})) == "".join(value + "|" for value in values)


@settings(max_examples=40, deadline=None)
@given(first=HOSTILE, second=HOSTILE)
def test_a_value_is_never_filled_itself(first: str, second: str) -> None:
    """A value that reads as a placeholder, `{before}` among them, is only text."""
    values = {"v": "{before}{w}" + first, "w": second, "before": "x"}
    assert run(fill_command("f -- {v} {w} {before}", values)) == f"{values['v']}|{second}|x|"


def test_what_was_before_is_left_open_until_it_is_known() -> None:
    assert fill_command("set a={before} {v}", {"v": "1"}) == "set a={before} 1"
    assert fill_command("set a={before} {v}", {"v": "1", "before": "a b"}) == "set a='a b' 1"


def test_a_command_of_the_checks_own_is_taken_as_it_is() -> None:
    assert fill_command(" {fix} ", {"fix": "for a in 1 2; do f $a; done"}) == "for a in 1 2; do f $a; done"
    for value in (["f"], "", 3, "f\0"):
        with pytest.raises(TemplateError, match="expected a command"):
            fill_command("{fix}", {"fix": value})


@pytest.mark.parametrize(
    ("template", "value", "said"),
    [
        ("kill {v}", "-1", "begin like an option"),
        ("rm '{v}'", "-rf", "begin like an option"),
        ("rm -- a; rm {v}", "-rf", "begin like an option"),
        ("f a {v}", ["a", "-b"], "begin like an option"),
        ("f {v}", "a\0b", "expected a word"),
        ("f {v}", [], "is empty"),
        ("f {w}", "", "the finding has no value for {w}"),
        ("f # {v}", "a", "within #"),
        ("f `g {v}`", "a", "within `"),
        ("cat <<E\n{v}", "a", "within <<"),
        ("f \\{v}", "a", r"within \\"),
    ],
)
def test_what_cannot_stand_there_is_not_filled(template: str, value: Any, said: str) -> None:
    with pytest.raises(TemplateError, match=said):
        fill_command(template, {"v": value})


def test_a_value_that_begins_with_a_dash_may_be_a_part_of_a_word_or_follow_two_dashes() -> None:
    assert fill_command("sysctl -w a={v}", {"v": -1}) == "sysctl -w a=-1"
    assert fill_command("rm -- {v}", {"v": "-rf"}) == "rm -- -rf"


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


STEP = PlaybookStep(1, "Set {v}", before="get", run="set {v} {before}", undo="set {before}", only="test {w}")


def test_a_step_is_filled_whole() -> None:
    made = fill_step(STEP, {"v": "a b", "w": 1, "before": "x y"})
    assert made == PlaybookStep(1, "Set a b", before="get", run="set 'a b' 'x y'", undo="set 'x y'", only="test 1")
    assert needed_values(STEP) == {"v", "w", "before"}
    held = fill_step(PlaybookStep(2, "x", file="/etc/{v}", text="{v}\n", mode="0600"), {"v": "a"})
    assert (held.file, held.text, held.mode) == ("/etc/a", "a\n", "0600")


def test_what_is_left_to_hands() -> None:
    hand = PlaybookStep(1, "Clean the fibre")
    assert hand.manual and not STEP.manual and not PlaybookStep(1, "x", file="/a", text="").manual
    assert Playbook("a", "", "A", ("b",), "network", "none", steps=(hand,)).manual
    assert not Playbook("a", "", "A", ("b",), "network", "none", steps=(hand, STEP)).manual
