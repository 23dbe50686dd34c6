"""The functions of shell text: which of them the shell has where a command names one. Pure."""

from __future__ import annotations

from collections.abc import Sequence, Set

from doctor.job.shell.blocks import without_functions
from doctor.job.shell.tokens import Token


class Functions:
    """Those that the text calls by name. ``tokens``: the text without them."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.bodies = without_functions(tokens)
        self.not_called = dict(self.bodies)

    def add(self, tokens: list[Token], names: Set[str]) -> list[Token]:
        """Takes those of another text, which this shell runs; returns it without them. ``names``: words of the text."""
        tokens, bodies = without_functions(tokens, names)
        self.bodies.update(bodies)
        self.not_called.update(bodies)
        return tokens

    def body(self, name: str, line: int, is_within: bool) -> list[Token] | None:
        """What a command of a line runs. ``is_within``: it stands in a function itself, which may be called later."""
        body = self.bodies.get(name)
        return None if body is None or (not is_within and body and body[0].line > line) else body

    def remove(self, names: Sequence[str]) -> None:
        """``unset -f``."""
        for name in names:
            self.bodies.pop(name, None)
