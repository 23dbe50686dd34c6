"""What a placeholder is, and the quote that is open where one stands."""

from __future__ import annotations

from doctor.engine.shell_quote import open_quote, placeholder_names


def test_what_is_no_placeholder_is_none() -> None:
    assert placeholder_names("docker ps --format '{{.Names}}' ${HOME} {A} {print $1}") == set()
    assert placeholder_names("{a} {b_2} ${c} {{d}}") == {"a", "b_2"}


def test_the_open_quote_of_a_beginning() -> None:
    assert [open_quote(text) for text in ("a", "'a", "\"it's", "'a' \\'")] == ["", "'", '"', ""]
