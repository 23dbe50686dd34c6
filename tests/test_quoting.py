"""Where a placeholder stands decides how a value is quoted; where no quoting helps, that is seen."""

from __future__ import annotations

import pytest

from doctor.engine.shell_quote import open_quote, placeholder_names, scan_placeholders


@pytest.mark.parametrize(
    ("command", "within"),
    [
        ("f {a}", ""),
        ("f 'x {a}'", "'"),
        ('f "x {a}"', '"'),
        ('f "it\'s {a}"', '"'),
        ("f '\"' {a}", ""),
        ("f 'it'\\''s {a}'", "'"),
        ("f $(g {a})", "$("),
        ('f "$(g {a})"', "$("),
        ('f "$(g "{a}")"', '"'),
        ('f "$(g) {a}"', '"'),
        ("(f; g {a})", "("),
        ("f a#{a}", ""),
        ("f # {a}", "#"),
        ("# it's\nf {a}", ""),
        ("f `g {a}`", "`"),
        ('f "`g {a}`"', "`"),
        ("f ${x:-{a} }", "${"),
        ("f ${x#y} {a}", ""),
        ("f $((1 + {a} ))", "$(("),
        ("f $(( (1) + 2 )) {a}", ""),
        ("f \\{a}", "\\"),
        ('f "\\{a}"', "\\"),
        ("f '\\{a}'", "'"),
        ('f \\" {a}', ""),
        ("f $'{a}'", "$'"),
        ('f "$(case x in x) g {a} ;; esac)"', "case"),
        ('x=$(g); case "$x" in x) f {a} ;; esac', ""),
        ("cat <<E\n{a}\nE", "<<"),
        ("awk '{ print $1 }' {a}", ""),
    ],
)
def test_the_place_is_seen(command: str, within: str) -> None:
    (spot,) = scan_placeholders(command)
    assert (spot.name, spot.context, command[spot.start : spot.end]) == ("a", within, "{a}")


def test_what_is_no_placeholder_is_none() -> None:
    assert list(scan_placeholders("docker ps --format '{{.Names}}' ${HOME} {A} {print $1}")) == []
    assert placeholder_names("{a} {b_2} ${c} {{d}}") == {"a", "b_2"}


def test_the_open_quote_of_a_beginning() -> None:
    assert [open_quote(text) for text in ("a", "'a", "\"it's", "'a' \\'")] == ["", "'", '"', ""]
