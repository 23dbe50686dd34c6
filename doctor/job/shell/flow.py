"""What a script's statements do to its shell, and what they need, so that what stands behind them runs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from doctor.job.shell.blocks import Block
from doctor.job.shell.tokens import Token
from doctor.job.shell.variables import ShellVariables
from doctor.job.shell.word import ASKS_FOR_FILES, ENDS, FOLDERS, Step, Word

ALWAYS = 1 << 30
_STATEMENTS = (*FOLDERS, "ulimit", *ASKS_FOR_FILES)
_SOURCES = ("source", ".")
_MOST_JOINED = 64
_LONG = {"errexit": "e", "nounset": "u"}
_NAME = re.compile(r"[A-Za-z_]\w{0,200}", re.ASCII)


class CommandParts(NamedTuple):
    """One command of a text, simple or a function's."""

    line: int
    argv: Sequence[Word]
    files: Sequence[tuple[str, tuple[Word, ...]]]
    """What it is redirected to, each behind its operator; other words without one."""
    unbound: Sequence[str]
    """See `Flow.unbound`."""
    commands: range
    """Places of the commands that it runs."""
    steps_before: int = 0
    """How many steps there were before it."""


class Flow:
    """The steps of a text so far."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.operator = ""
        """Behind the present command."""
        self._options: set[str] = set()
        """Of ``set``, those surely in force: ``e``, ``u``."""
        self._before = ""
        """The operator before the present command."""
        self._joined: list[int] = []
        """Steps whose failure skips the present command by ``&&``, or leads to it by ``||``."""
        self._is_alternative = False
        """The present command stands in braces behind ``||``."""
        self._is_tested = False
        """An operator takes the failure of the function or file whose commands are read."""

    @contextmanager
    def within(self) -> Iterator[None]:
        """For the commands of a function or a sourced file."""
        saved = self.operator, self._before, self._joined, self._is_tested
        self._before, self._joined, self._is_tested = "", [], self._is_tested or self.operator in ("&&", "||")
        yield
        self.operator, self._before, self._joined, self._is_tested = saved

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

    def unbound(self, command: Sequence[Token], variables: ShellVariables) -> list[str]:
        """Variables that a command reads under ``set -u``, and that neither the text nor the environment sets."""
        parts = [part for token in command if "u" in self._options for part in token.parts]
        names = [part.text for part in parts if part.kind == "variable" and part.default is None]
        return [name for name in names if _NAME.fullmatch(name) and not variables.is_set(name)]

    def note(self, parts: CommandParts, blocks: Sequence[Block], is_certain: bool) -> None:
        """Takes the steps of a command. ``is_certain``: nothing before it makes it conditional."""
        line, argv, files, unbound, commands, before = parts
        name = argv[0].text if argv else ""
        is_certain &= self.operator not in ("|", "&")
        is_fatal = is_certain and "e" in self._options and not self._is_tested and self.operator not in ("&&", "||")
        self._join(name, commands, blocks)
        until = ALWAYS if is_fatal else -1
        last = max(commands.stop - 1 if commands else -1, until)
        needed = [((Word(operator), *argv), last) for operator, argv in files if operator]
        needed += [((Word("type"), argv[0]), until)] if argv and len(commands) == 1 and is_certain else []
        needed += [((Word("$"), Word(name)), ALWAYS) for name in unbound if is_certain and not self._is_tested]
        needed += [(tuple(argv), last)] if name in _SOURCES else []
        self.steps[before:before] = [Step(commands.start, argv, line, is_certain, end) for argv, end in needed]
        new = [*range(before, before + len(needed))]
        ends = (is_fatal if name == "false" else is_certain) and name in ENDS and (name != "exec" or len(argv) > 1)
        if ends or name in _STATEMENTS:
            new.append(len(self.steps))
            self.steps.append(Step(commands.stop, tuple(argv), line, is_certain, ALWAYS if ends else until))
        if not self._is_alternative:
            self._joined = [*self._joined, *new][-_MOST_JOINED:] if self.operator in ("&&", "||") else []
        self._before = self.operator

    def _join(self, name: str, commands: range, blocks: Sequence[Block]) -> None:
        """What a command says of the steps that an operator joins to it."""
        in_braces = bool(blocks) and blocks[-1].keyword == "{"
        self._is_alternative = in_braces and (self._before == "||" or self._is_alternative)
        is_alternative = self._before == "||" or self._is_alternative
        until = ALWAYS if is_alternative and name == "exit" else commands.stop - 1 if self._before == "&&" else -1
        for number in self._joined:
            step = self.steps[number]
            self.steps[number] = step._replace(until=max(step.until, until if step.is_certain else -1))
        if is_alternative and not self._is_alternative:
            self._joined = []
