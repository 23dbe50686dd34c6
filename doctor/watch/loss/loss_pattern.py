"""A user's pattern for ``--loss-regex``: compiled, and refused where a hostile line could make it take long."""

from __future__ import annotations

import re
import sys
import warnings
from typing import Any

from doctor.engine.texts import filled

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    if sys.version_info >= (3, 11):
        from re import _constants as codes  # type: ignore[attr-defined]
        from re import _parser as parser  # type: ignore[attr-defined]
    else:
        import sre_constants as codes
        import sre_parse as parser

MAX_PATTERN = 500
MAX_UNBOUNDED = 2
"""Repetitions without a bound in one pattern. With two, a line of n characters takes n³ steps at the most."""
MAX_REPEAT = 64
"""Above this, a bounded repetition counts as one without a bound."""
PATTERN_LINE = 512
"""Characters of a line that a user's pattern sees: 512³ / 6 steps are some tenths of a second, in the worst case."""


class PatternRefusedError(Exception):
    """One line: what is wrong with the pattern, and what is expected."""


def compile_pattern(text: str) -> re.Pattern[str]:
    r"""The pattern, with at most one group, or a group named ``loss``.

    Raises: PatternRefusedError for what is no regular expression, or can take more than a bounded time.

    >>> compile_pattern(r"cost is ([0-9.]+)").search("cost is 2.5")[1]
    '2.5'
    """
    if len(text) > MAX_PATTERN:
        raise PatternRefusedError(filled("it has {0} characters; expected at most {1}", len(text), MAX_PATTERN))
    try:
        tree = parser.parse(text)
        pattern = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternRefusedError(filled("{0}; expected a regular expression", error)) from None
    if _unbounded(tree, inside=False) > MAX_UNBOUNDED:
        text = "it has more than {0} of * and +; expected fewer, or repetitions with a bound such as {1,20}"
        raise PatternRefusedError(filled(text, MAX_UNBOUNDED))
    if pattern.groups and "loss" not in pattern.groupindex and pattern.groupindex:
        raise PatternRefusedError("none of its named groups is loss; expected (?P<loss>...)")
    return pattern


def _unbounded(tree: Any, inside: bool) -> int:
    """Repetitions without a bound. Raises: PatternRefusedError for one inside another, or for a backreference."""
    count = 0
    for code, argument in tree:
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT) or str(code) == "POSSESSIVE_REPEAT":
            low, high, body = argument
            repeated = high == codes.MAXREPEAT or high > MAX_REPEAT
            if inside and high > 1 and high != low:
                raise PatternRefusedError("a repetition stands inside another; expected none, as in ([0-9.]+)")
            count += repeated
            count += _unbounded(body, inside or high > 1)
        elif code in (codes.GROUPREF, codes.GROUPREF_EXISTS):
            raise PatternRefusedError("it refers back to a group; expected no such reference")
        elif code is codes.SUBPATTERN:
            count += _unbounded(argument[-1], inside)
        elif code is codes.BRANCH:
            count += sum(_unbounded(branch, inside) for branch in argument[1])
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            count += _unbounded(argument[1], inside)
        elif str(code) == "ATOMIC_GROUP":
            count += _unbounded(argument, inside)
    return count
