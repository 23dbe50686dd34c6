"""The functions of shell text: which of them the shell has where a command names one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from doctor.job.shell.blocks import without_functions
from doctor.job.shell.reach import NotReached
from doctor.job.shell.tokens import Token


class Functions:
    """Those that the text calls by name. ``tokens``: the text without them, and ``others``: the lines of all others."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.bodies, self.others = without_functions(tokens)
        self.not_called = dict(self.bodies)
        self._too_early: dict[str, list[int]] = {}
        """Lines in which a command has the name of a function that the shell does not have there."""

    def add(self, tokens: list[Token], names: Set[str]) -> list[Token]:
        """Takes those of another text, which this shell runs; returns it without them. ``names``: words of the text."""
        tokens, bodies, _ = without_functions(tokens, names)
        self.bodies.update(bodies)
        self.not_called.update(bodies)
        return tokens

    def body(self, name: str, line: int, is_within: bool) -> list[Token] | None:
        """What a command of a line runs. ``is_within``: it stands in a function itself, which may be called later."""
        body = self.bodies.get(name)
        if body is None or (not is_within and body and body[0].line > line):
            self._too_early.setdefault(name, []).append(line)
            return None
        return body

    def remove(self, names: Sequence[str], line: int) -> None:
        """``unset -f``."""
        for name in names:
            if self.bodies.pop(name, None):
                self._too_early.setdefault(name, []).append(line)

    def each_not_called(self, is_followed: bool) -> Iterator[tuple[list[Token], NotReached | None]]:
        """The bodies of others, and the call where the shell does not have it, if there is no other."""
        while self.not_called:
            name = next(iter(self.not_called))
            texts, lines = (
                [self.tokens, *self.bodies.values(), *self.not_called.values()],
                self._too_early.get(name, []),
            )
            count = sum(token.keyword == name for tokens in texts for token in tokens)
            is_left = lines and count <= len(lines) and is_followed
            yield self.not_called.pop(name), NotReached(f"{name}()", lines[0]) if is_left else None
