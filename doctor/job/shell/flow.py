"""What a script's statements do to its shell: its folder, its limits, its end; and the functions that it has. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from itertools import islice

from doctor.engine.texts import filled
from doctor.job.shell.blocks import without_functions
from doctor.job.shell.tokens import Token
from doctor.job.shell.word import ENDS, FOLDERS, Step, Word

_STATEMENTS = (*FOLDERS, "ulimit")
_LONG = {"errexit": "e"}


class Flow:
    """The steps of a text so far."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.operator = ""
        """Behind the present command."""
        self._options: set[str] = set()
        """Of ``set``, those surely in force: ``e``."""
        self._is_tested = False
        """An operator takes the failure of the function or file whose commands are read."""

    @contextmanager
    def within(self) -> Iterator[None]:
        """For the commands of a function or a sourced file."""
        saved = self.operator, self._is_tested
        self._is_tested = self._is_tested or self.operator in ("&&", "||")
        yield
        self.operator, self._is_tested = saved

    def set_options(self, arguments: Sequence[str], is_sure: bool) -> None:
        """By ``set``: what may take an option back does so."""
        for before, argument in zip(["", *arguments], arguments, strict=False):
            if argument == "--":
                break
            letters = _LONG.get(argument, "") if re.fullmatch("[-+][a-z]*o", before) else argument[1:]
            sign = before[0] if letters != argument[1:] else argument[:1]
            if sign == "+":
                self._options.difference_update(letters)
            elif sign == "-" and is_sure:
                self._options.update(letters)

    def note(self, line: int, argv: Sequence[Word], place: int, is_certain: bool) -> None:
        """Takes the step of a command. ``place``: commands before what follows it; ``is_certain``: nothing before it
        makes it conditional.
        """
        name = argv[0].text if argv else ""
        is_certain &= self.operator not in ("|", "&")
        is_fatal = is_certain and "e" in self._options and not self._is_tested and self.operator not in ("&&", "||")
        ends = (is_fatal if name == "false" else is_certain) and name in ENDS and (name != "exec" or len(argv) > 1)
        if ends or name in _STATEMENTS:
            self.steps.append(Step(place, tuple(argv), line, is_certain))


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


_HERE = re.compile(
    r"^(?![ \t]*#)[^\n#]{0,400}?(?<!<)<<(?!<)(-?)[ \t]*([\'\"\\\\]?)([A-Za-z_]\w{0,40})\2(?!\w)",
    re.MULTILINE | re.ASCII,
)


def without_end(text: str) -> tuple[int, str]:
    """The line of the first here-document whose end is indented, which swallows the rest, and why; 0 without one."""
    for match in islice(_HERE.finditer(text), 64):
        lines = text[match.end() :].split("\n")[1:]
        ends = [line.lstrip("\t") if match[1] else line for line in lines]
        if (
            match[3] not in ends
            and (near := next((at for at, line in enumerate(lines) if line.strip() == match[3]), -1)) >= 0
        ):
            line = text.count("\n", 0, match.end()) + 1
            return line, filled(
                "a here-document without its end, as {0} in line {1} is indented", match[3], line + near + 1
            )
    return 0, ""


def behind_comments(text: str, mistakes: Sequence[tuple[str, str, str]]) -> Iterator[tuple[str, str, str]]:
    """The mistakes; where a comment within a command ended it, the comment is the mistake."""
    lines = text.split("\n")
    for name, value, expected in mistakes:
        match = re.fullmatch(r"`\\` at the end of line ([0-9]{1,7})", expected, re.ASCII)
        if match and int(match[1]) <= len(lines) and lines[int(match[1]) - 1].lstrip().startswith("#"):
            expected = filled("no comment in line {0}, which ends the command before it", match[1])
        yield name, value, expected
