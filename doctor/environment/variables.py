"""Environment variables as text, numbers, ports and addresses; unusable values are collected. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

import msgspec

from doctor.engine.errors import InputError
from doctor.engine.record import LaunchOptions
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled

MOST_RANKS = 9_999_999
_ASSIGNMENT = re.compile(r"(?:declare -x |export )?([A-Za-z_][A-Za-z0-9_.()%]*)=(.*)", re.ASCII | re.DOTALL)

RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "RANK_ID", "RANK_SIZE")
"""A rank's numbers as PyTorch and Ascend programs read them, whoever sets them."""


class VariableProblem(msgspec.Struct, frozen=True):
    """A variable whose value is not possible."""

    variable: str
    value: str
    """Empty: it is not set."""
    expected: str

    @property
    def text(self) -> str:
        """The problem in one line: observed and expected.

        >>> VariableProblem("RANK", "x", "a number from 0 to 3").text
        "RANK='x', expected a number from 0 to 3"
        """
        observed = f"{self.variable}={self.value!r}" if self.value else filled("{0} is not set", self.variable)
        return filled("{0}, expected {1}", observed, self.expected)


class EnvironmentVariables:
    """The variables of one process. An empty value counts as unset.

    >>> variables = EnvironmentVariables({"RANK": "4", "WORLD_SIZE": "4"})
    >>> variables.rank_and_world_size("RANK", "WORLD_SIZE")
    (None, 4)
    >>> [problem.text for problem in variables.problems]
    ["RANK='4', expected a whole number from 0 to 3"]
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = {name: value for name, value in environ.items() if value}
        self.problems: list[VariableProblem] = []
        """Values that were read and cannot be used."""

    def __contains__(self, name: object) -> bool:
        return name in self.environ

    def first_set(self, *names: str) -> str:
        """The first of ``names`` that is set; the first of all where none is."""
        return next((name for name in names if name in self.environ), names[0])

    def text(self, name: str, default: str = "") -> str:
        return self.environ.get(name, default)

    def number(self, name: str, minimum: int = 0, maximum: int = MOST_RANKS, required: bool = True) -> int | None:
        """None for a value that is no whole number in the range. An unset variable is a problem if ``required``."""
        value = self.environ.get(name, "").strip()
        number = int(value) if re.fullmatch(r"[0-9]{1,9}", value, re.ASCII) else -1
        if minimum <= number <= maximum:
            return number
        if value or required:
            limit = filled(" to {0}", maximum) if maximum < MOST_RANKS else ""
            expected = filled("a whole number from {0}{1}", minimum, limit)
            self.problems.append(VariableProblem(name, printable(value, 40), expected))
        return None

    def number_of(self, names: str, minimum: int = 0, required: bool = False) -> int | None:
        """`number` of the first variable of ``names`` that is set; None without names."""
        return self.number(self.first_set(*names.split()), minimum, required=required) if names else None

    def rank_and_world_size(self, rank: str, world_size: str, is_rank: bool = True) -> tuple[int | None, int | None]:
        """Two variables that belong together: a rank must be less than the world size. Each: names, as `number_of`.

        ``is_rank``: False for a process that is none, whose rank is not read.
        """
        size = self.number_of(world_size, minimum=1, required=True)
        most = size - 1 if size else MOST_RANKS
        return self.number(self.first_set(*rank.split()), maximum=most) if is_rank else None, size

    def port(self, name: str, default: int = 0) -> int:
        """``default`` where the variable is unset or no port."""
        return self.number(name, minimum=1, maximum=65535, required=False) or default

    def addresses(self, name: str) -> tuple[str, ...]:
        """The one name or address in a variable; empty where it is unset."""
        value = self.text(name).strip()
        return (value,) if value else ()


def or_unknown(number: int | None) -> str:
    """A number in a sentence; ``?`` for None."""
    return "?" if number is None else str(number)


def parse_environment(text: str, place: str) -> dict[str, str]:
    r"""Variables of saved text, by name. ``place``: for the error. Raises: InputError.

    >>> parse_environment("A=1\nB=x\ny\n", "f"), parse_environment('{"A": "1"}', "f")
    ({'A': '1', 'B': 'x\ny'}, {'A': '1'})
    """
    if text.lstrip()[:1] == "{":
        return _parse_json(text, place)
    if "\0" in text:
        pairs = [entry.partition("=") for entry in text.split("\0")]
        return {name: value for name, equals, value in pairs if name and equals}
    environ: dict[str, str] = {}
    values: list[str] = []
    name = ""
    for number, line in enumerate(text.splitlines(), 1):
        match = _ASSIGNMENT.fullmatch(line)
        if match:
            if name:
                environ[name] = "\n".join(values)
            name, values = match[1], [_unquoted(match[2]) if line.startswith(("declare", "export")) else match[2]]
        elif name:
            values.append(line)
        elif line.strip() and not line.startswith("#"):
            raise InputError(
                filled(
                    "{0}, line {1}: {2}; expected NAME=value, as `env` prints it",
                    place,
                    number,
                    f"{printable(line, 60)!r}",
                )
            )
    if name:
        environ[name] = "\n".join(values)
    if not environ:
        raise InputError(filled("{0}: no variable in it; expected NAME=value lines, as `env` prints them", place))
    return environ


def _unquoted(value: str) -> str:
    try:
        return "".join(shlex.split(value)[:1])
    except ValueError:
        return value


class _Record(msgspec.Struct):
    """What of a file of `doctor node` counts here."""

    launch: LaunchOptions


def _parse_json(text: str, place: str) -> dict[str, str]:
    """An object of names and texts, or a record of `doctor node`."""
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        pass
    try:
        return dict(msgspec.json.decode(text, type=_Record).launch.environ)
    except (msgspec.DecodeError, RecursionError):
        raise InputError(
            filled('{0}: expected JSON such as {"NAME": "value"}, or a file of doctor node or --save', place)
        ) from None
