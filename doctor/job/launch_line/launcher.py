"""What a module of a launcher offers, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from doctor.job.launch_line.model import LaunchCall
from doctor.job.shell.word import Word


class Started(NamedTuple):
    """A launcher's call, and what it starts."""

    call: LaunchCall
    argv: tuple[Word, ...]
    """The program with its arguments, or the next launcher."""
    runs_python: bool = False
    """The program is a Python script, or with ``is_module`` a module, without an interpreter before it."""
    is_module: bool = False
    inherits_environment: bool = True
    removes: frozenset[str] = frozenset()


ReadCall = Callable[[str, tuple[Word, ...], Mapping[str, str]], Started]
"""From the command's name, the words after it, and the environment at this place."""


def port_number(text: str) -> int | None:
    """A port number; None for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 and 0 < int(text) < 65536 else None


def host_list(text: str) -> tuple[str, ...]:
    """Hosts with commas between, but not within brackets: ``n[1,3],gpu7`` are two; at most 65,536.

    >>> host_list("n[1,3],gpu7,")
    ('n[1,3]', 'gpu7')
    """
    hosts: list[str] = []
    start = depth = 0
    for position, letter in enumerate(f"{text},"):
        if letter == "," and depth <= 0:
            if text[start:position].strip():
                hosts.append(text[start:position].strip())
            start = position + 1
        depth += (letter == "[") - (letter == "]")
    return tuple(hosts[:65_536])
