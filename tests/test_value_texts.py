"""Which strings of a module need their Chinese: what is shown, and not what is compared."""

from __future__ import annotations

import ast

import pytest

from tests.value_texts import sentences


def sentences_of(code: str) -> list[str]:
    return list(sentences(ast.parse(code)))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise Unreadable(f'no row of {name}')", ["no row of {0}"]),
        ("text = 'was killed by %s' % name", ["was killed by {0}"]),
        ("text = 'was killed by {}'.format(name)", ["was killed by {0}"]),
        ("text = path + ' does not exist'", ["{0} does not exist"]),
        ("text = template + '; expected the same'", ["{0}; expected the same", "; expected the same"]),
        ("text = '{who} is slow' + ' (in {where})'", ["{who} is slow", " (in {where})"]),
        ("if text == 'no such device': pass", []),
        ("if text.startswith('no such device'): pass", []),
        ("rows['Link down'] = 'the link is down'", ["the link is down", "Link down"]),
        ("options = option_table('a b name', 'quiet verbose')", []),
        ("print('no such %Y')", []),
        ("text = '--size is no multiple of --count'", ["--size is no multiple of --count"]),
        ("text = 'ulimit -u is low'", ["ulimit -u is low"]),
        ("text = 'ulimit -u low'", []),
    ],
)
def test_a_sentence_counts_where_it_is_shown(code: str, expected: list[str]) -> None:
    assert sentences_of(code) == expected


def test_a_private_constant_that_is_only_compared_does_not_count() -> None:
    compared = "_LOST = ('fell off the bus', 'link is down')\nlost = any(words in text for words in _LOST)"
    assert sentences_of(compared) == []
    assert sentences_of(compared.replace("_LOST", "LOST")) == ["fell off the bus", "link is down"]
    assert sentences_of(compared + "\nprint(_LOST)") == ["fell off the bus", "link is down"]


def test_of_a_table_only_the_column_that_is_compared_does_not_count() -> None:
    table = "_ERRORS = (('Not permitted', 'only root may do it'),)\n"
    loop = (
        "def reason(text):\n    for words, sentence in _ERRORS:\n        if words in text:\n            return sentence"
    )
    assert sentences_of(table + loop) == ["only root may do it"]
