"""Blocks and functions of shell text, and the words that begin and end them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

from doctor.job.shell.tokens import Token
from doctor.job.shell.word import Loop, Word, is_open

OPENING = {"if": "fi", "for": "done", "while": "done", "until": "done", "select": "done", "case": "esac", "{": "}"}
BRANCH = ("elif", "else")
PREFIXES = ("then", "do", "!", "time")
LOOPS = ("for", "while", "until", "select")
TESTS = ("[", "[[", "test", "((", "grep", "command", "which", "type", "false")
_BEFORE_COMMAND = (";", "&", "|", "&&", "||", ";;", "(", ")", "{", "if", "while", "until", *PREFIXES, *BRANCH)
_SILENT = """
: true false [ [[ test echo printf cd pushd popd trap ulimit umask wait return exit sleep rm cat
"""
IGNORED = frozenset(_SILENT.split())
"""Commands that start nothing and change no variable."""
_FUNCTION = re.compile(
    r"(?:[A-Za-z_][\w-]{0,80} \( \)|function [A-Za-z_][\w-]{0,80}(?: \( \))?)(?: ;)* \{(?= |$)", re.ASCII
)
"""The beginning of one, with spaces between its tokens."""


class Block:
    """What a keyword or a parenthesis opens, and what is assigned in it."""

    def __init__(self, keyword: str, line: int, certain: bool) -> None:
        self.keyword = keyword
        self.line = line
        self.certain = certain
        self.assigned: set[str] = set()
        self.recent: set[str] = set()
        """Those of the branch that is read now."""
        self.loops: dict[str, Loop] = {}
        """By the variable of the loop."""
        self.in_pattern = keyword == "case"
        self.is_function = keyword == "{" and not certain


def is_arithmetic(token: Token) -> bool:
    """Whether a word is ``((...))``."""
    return len(token.parts) == 1 and token.parts[0].kind == "unresolved" and token.parts[0].text.startswith("((")


def without_functions(
    tokens: list[Token], also_called: Set[str] = frozenset()
) -> tuple[list[Token], dict[str, list[Token]]]:
    """The tokens without the functions that the text calls by name, and the bodies of these.

    ``also_called``: words of the text around it.
    """
    spans: dict[str, tuple[int, int, int]] = {}
    called: set[str] = set()
    before, position = ";", 0
    while position < len(tokens):
        token = tokens[position]
        body = _body(tokens, position) if before in _BEFORE_COMMAND else None
        if body:
            name = tokens[position + (token.keyword == "function")].keyword
            if name in spans:
                return tokens, {}  # defined twice: which one runs is not followed
            spans[name] = (position, *body)
            before, position = ";", body[0]
            continue
        called |= {token.keyword} if before in _BEFORE_COMMAND else set()
        before, position = token.operator or token.keyword, position + 1
    called |= also_called & spans.keys()
    kept: list[Token] = []
    end = 0
    for start, _, last in sorted(span for name, span in spans.items() if name in called):
        if start >= end:  # one within another belongs to it
            kept += tokens[end:start]
            end = last + 1
    return kept + tokens[end:], {name: tokens[span[1] : span[2]] for name, span in spans.items() if name in called}


def _body(tokens: list[Token], position: int) -> tuple[int, int] | None:
    """Where the body of a function that begins here begins and ends; None: no function in braces begins here."""
    rest = " ".join(token.operator or token.keyword for token in tokens[position : position + 8])
    head = _FUNCTION.match(rest)
    if head is None:
        return None
    first = position + head[0].count(" ") + 1
    depth = 1
    for at in range(first, len(tokens)):
        depth += (tokens[at].keyword == "{") - (tokens[at].keyword == "}")
        if not depth:
            return first, at
    return None


_COUNTING = re.compile(r"\w{1,80}=([0-9]{1,4});\w{1,80}<(=?)([0-9]{1,4});(?:\w{1,80}\+\+|\+\+\w{1,80})", re.ASCII)
_SEQUENCE = re.compile(
    r"([^{}]*)\{([0-9]{1,4})\.\.([0-9]{1,4})\}([^{}]*)|(?:\$\(|`)seq (?:([0-9]{1,4}) (?:1 )?)?([0-9]{1,4})[`)]",
    re.ASCII,
)


def rounds_of(counted: str, elements: Sequence[Word]) -> Loop | None:
    """What a loop gives its variable, by what it counts or by its list; None: not known, or nothing.

    >>> rounds_of("((i=0; i<4; i++))", ()), rounds_of("", [Word("0"), Word("{1..3}")])
    (Loop(rounds=4, least=0, largest=3), Loop(rounds=4, least=0, largest=3))
    """
    bounds = _COUNTING.fullmatch(re.sub(r"[\s()]", "", counted))
    spans = [range(int(bounds[1]), int(bounds[3]) + len(bounds[2]))] if bounds else list(map(_values_of, elements))
    if not (spans and all(spans)):
        return None
    return Loop(sum(map(len, spans)), min(span[0] for span in spans), max(span[-1] for span in spans))


def _values_of(word: Word) -> range:
    """What a word of a loop's list gives, negative where it is no number; empty where that is not known."""
    if match := _SEQUENCE.fullmatch(word.text):
        first, last = sorted((int(match[2] or match[5] or 1), int(match[3] or match[6])))
        is_number = not (match[1] or match[4])
        return range(first, last + 1) if is_number else range(first - last - 1, 0)
    if is_open(word):
        return range(0)
    return range(int(word.text), int(word.text) + 1) if re.fullmatch("[0-9]{1,4}", word.text) else range(-1, 0)
