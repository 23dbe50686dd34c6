"""Errors that end a command with one line on stderr and a documented exit code."""

from __future__ import annotations

from collections.abc import Collection

from doctor.engine.texts import filled


class CommandError(Exception):
    """A command that cannot go on: one line for stderr, and the exit code."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class InputError(CommandError):
    """Input that cannot be used: a file, a variable, a host list. Exit code 78."""

    def __init__(self, text: str) -> None:
        super().__init__(text, 78)


class UsageError(CommandError):
    """Invalid command line. Exit code 2."""

    def __init__(self, text: str) -> None:
        super().__init__(text, 2)


def require_utf_8(option: str, value: str) -> None:
    """Raises: UsageError (exit code 2) when ``value`` has bytes that are not, so that it cannot be sent to a host."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(filled("{0} {1}: expected UTF-8", option, f"{value!r}")) from None


def require_one_of(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Raises: UsageError (exit code 2) when ``value`` is not among ``choices``."""
    if value not in choices:
        raise UsageError(
            filled("{0} {1}: expected {2}", option, f"{value!r}", ", ".join(word for word in choices if word))
        )


def did_you_mean(word: str, candidates: Collection[str]) -> str:
    """What to say of a word that is not known: the nearest that is."""
    import difflib

    near = difflib.get_close_matches(word[:100], candidates, 1)
    return filled("; did you mean {0}?", near[0]) if near else ""
