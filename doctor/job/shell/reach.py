"""Whether a shell reaches a command: tests whose outcome is known, and what leaves a block before its end. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from doctor.job.shell.blocks import LOOPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from doctor.job.shell.word import Word

_CLOSING = {"[": "]", "[[": "]]"}
_PATTERN = re.compile(r"[*?\[\\]")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
CONDITIONS = ("if", "while", "until", "for", "&&", "||")
"""What leaves out a command by a test; all else leaves the block."""
_NUMERIC = {"-eq": "eq", "-ne": "ne", "-lt": "lt", "-le": "le", "-gt": "gt", "-ge": "ge"}


class NotReached(NamedTuple):
    """Why a command is not reached."""

    name: str
    """``exit``, ``if``, ``&&``, a function as ``go()``."""
    line: int


def outcome(argv: Sequence[Word]) -> bool | None:
    """What a command says as a condition; None where only a shell knows.

    >>> from doctor.job.shell.word import literal_words
    >>> [outcome(literal_words(text.split())) for text in ("[ a = b ]", "[ 3 -gt 2 ]", "[ -e x ]", "false")]
    [False, True, None, False]
    """
    name, *operands = [word.text for word in argv] or [""]
    if any(word.unresolved for word in argv):
        return None
    if name in ("true", "false", ":"):
        return name != "false"
    if name in _CLOSING and operands[-1:] == [_CLOSING[name]]:
        del operands[-1]
    elif name != "test":
        return None
    is_negated = len(operands) > 1 and operands[0] == "!"
    value = _compared(operands[is_negated:], has_patterns=name == "[[")
    return value if value is None else value is not is_negated


def _compared(operands: Sequence[str], *, has_patterns: bool) -> bool | None:
    if len(operands) == 2 and operands[0] in ("-n", "-z"):
        return bool(operands[1]) is (operands[0] == "-n")
    if len(operands) != 3:
        return None
    first, sign, second = operands
    if sign in ("=", "==", "!=") and not (has_patterns and _PATTERN.search(second)):
        return (first == second) is (sign != "!=")
    if sign in _NUMERIC and _NUMBER.fullmatch(first) and _NUMBER.fullmatch(second):
        return bool(getattr(operator, _NUMERIC[sign])(int(first), int(second)))
    return None


class Reach:
    """What is reached in the block that is read now, and in those around it."""

    def __init__(self) -> None:
        self._levels: list[NotReached | None] = [None]
        self._keywords = [""]
        self._taken = [False]
        """Whether a branch of the block surely runs."""
        self._value: bool | None = None
        """Of the commands that the operators before the present one join."""
        self._before = ""
        self._operand: NotReached | None = None
        """The operator that leaves out the present command."""

    @property
    def not_reached(self) -> NotReached | None:
        """Why what is read now is not reached; None where it may be."""
        return next((level for level in (*self._levels, self._operand) if level), None)

    @contextmanager
    def within(self, why: NotReached | None = None) -> Iterator[None]:
        """For the commands of a function or of another text. ``why``: they are not reached."""
        saved = self._value, self._before, self._operand
        self.open()
        self._levels[-1] = why or self._operand
        yield
        self.close()
        self._value, self._before, self._operand = saved

    def open(self, keyword: str = "") -> None:
        """A block begins, with a keyword."""
        self._levels.append(None)
        self._keywords.append(keyword)
        self._taken.append(False)
        self._value, self._before = None, ""

    def close(self) -> None:
        """The innermost block ends."""
        self._levels.pop()
        self._keywords.pop()
        self._taken.pop()
        self._value = None

    def keyword(self, word: str, block: str, line: int) -> None:
        """``then``, ``do``, ``elif``, ``else`` and ``;;`` of a block; other words say nothing."""
        if not block or word not in ("then", "do", "elif", "else", ";;"):
            return
        if word in ("then", "do"):
            skips = self._value is (block == "until") and block not in ("for", "select")
            self.leave(block, line, skips or (word == "then" and self._taken[-1]))
            self._taken[-1] |= word == "then" and self._value is True
        else:
            self._levels[-1] = None
            self.leave(block, line, word == "else" and self._taken[-1])
        self._value, self._before = None, ""

    def begin(self, line: int) -> None:
        """A command begins."""
        skips = (self._before, self._value) in (("&&", False), ("||", True))
        self._operand = NotReached(self._before, line) if skips else None

    def end(self, argv: Sequence[Word], line: int, following: str, *, in_text: bool, negates: bool) -> None:
        """``following``: the operator behind it. ``in_text``: of a function, a file."""
        name, joined = argv[0].text if argv else "", (self._before, self._value)
        is_sure = not self._before or joined in (("&&", True), ("||", False))
        is_sure = is_sure and following not in ("|", "&") and not self._operand
        in_loop = any(keyword in LOOPS for keyword in self._keywords)
        leaves = {"exit": True, "exec": len(argv) > 1, "return": in_text, "break": in_loop, "continue": in_loop}
        self.leave(name, line, is_sure and leaves.get(name, False))
        if not self._operand:
            result = outcome(argv) if following != "|" and self._before != "|" else None
            result = result if result is None else result is not negates
            is_open = self._before in ("&&", "||") and not is_sure  # then it only decides by one of its outcomes
            self._value = None if is_open and result is not (self._before == "||") else result
        self._operand = None
        self._before = following if following in ("&&", "||", "|") else ""

    def leave(self, name: str, line: int, is_sure: bool = True) -> None:
        """The rest of the innermost block is not reached."""
        if is_sure and self._levels[-1] is None:
            self._levels[-1] = NotReached(name, line)
