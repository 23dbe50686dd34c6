"""Shows what the parser of the command line refuses: in the language of this process, and without secrets."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import typer

from doctor.engine.language import is_english, localized, localized_filled
from doctor.engine.sanitize import printable
from doctor.engine.streams import print_stderr
from doctor.engine.texts import filled, origin


def end_refused(error: Exception, argv: Sequence[str]) -> NoReturn:
    """Ends the process with the parser's exit code. Raises: the error itself, if it is none of the parser."""
    if isinstance(error, typer.Abort):
        print_stderr(localized("Aborted."))
        sys.exit(1)
    if not hasattr(error, "format_message"):  # a parser's error has a message for the user; all else is not ours
        raise error
    _show(error, argv)
    sys.exit(getattr(error, "exit_code", 2))


def _show(error: Exception, argv: Sequence[str]) -> None:
    context = getattr(error, "ctx", None)
    if context is not None:
        usage = context.get_usage().removeprefix("Usage: ")
        print_stderr(localized("Usage: ") + usage)
        hint = localized("Try '{command} -h' for help.").format(command=context.command_path)
        print_stderr(f"{hint}\n")
    message = error.format_message() if is_english() else localized_filled(parser_message(error, argv))  # type: ignore[attr-defined]
    print_stderr(localized("Error: ") + message)


def parser_message(error: Exception, argv: Sequence[str]) -> str:
    """What is wrong with the words, by the error's class and fields: its own message is another program's."""
    for kind in type(error).__mro__:
        if kind.__name__ in _MESSAGES:
            return _MESSAGES[kind.__name__](error, argv)
    return str(error)


def _no_such_option(error: Any, _argv: Sequence[str]) -> str:
    similar = ", ".join(sorted(error.possibilities or ()))
    more = filled(" (Possible options: {0})", similar) if similar else ""
    return filled("No such option: {0}{1}", printable(error.option_name), more)


def _missing_parameter(error: Any, _argv: Sequence[str]) -> str:
    hint = error.param.get_error_hint(error.ctx) if error.param is not None else ""
    if getattr(error.param, "param_type_name", "") == "option":
        return filled("Missing option {0}.", hint)
    return filled("Missing argument {0}.", hint)


def _bad_parameter(error: Any, _argv: Sequence[str]) -> str:
    """The message of a check of ours is a text of ours; else the type of the value says what is expected."""
    hint = error.param.get_error_hint(error.ctx) if error.param is not None else error.param_hint or ""
    expected = _expected(getattr(error.param, "type", None)) if origin(error.message) is None else ""
    if expected:
        return filled("Invalid value for {0}; expected {1}", hint, expected)
    return filled("Invalid value for {0}: {1}", hint, error.message)


def _expected(kind: Any) -> str:
    """What a type of the parser takes; empty where it is none of numbers."""
    name = getattr(kind, "name", "")
    lowest, highest = getattr(kind, "min", None), getattr(kind, "max", None)
    whole = name.startswith("int")
    if lowest is not None and highest is not None:
        template = "a whole number from {0} to {1}" if whole else "a number from {0} to {1}"
        return filled(template, lowest, highest)
    if lowest is not None:
        return filled("a whole number from {0}" if whole else "a number from {0}", lowest)
    return {"int": "a whole number", "float": "a number"}.get(name, "")


def _bad_option_usage(error: Any, argv: Sequence[str]) -> str:
    if any(word.startswith(f"{error.option_name}=") for word in argv):
        return filled("Option {0} takes no value.", repr(error.option_name))
    return filled("Option {0} requires an argument.", repr(error.option_name))


def _usage(error: Any, argv: Sequence[str]) -> str:
    """A group of commands refuses the word where a command has to be; a command refuses words that are too many."""
    commands = getattr(error.ctx.command, "commands", None) if error.ctx is not None else None
    if commands is None:
        return "Got unexpected extra arguments."
    name = next((word for word in argv if not word.startswith("-")), "")
    if not name:
        return "Missing command."
    similar = difflib.get_close_matches(name, list(commands))
    quoted = repr(printable(name))
    if similar:
        return filled("No such command {0}. Did you mean {1}?", quoted, ", ".join(map(repr, similar)))
    return filled("No such command {0}.", quoted)


_MESSAGES: dict[str, Callable[[Any, Sequence[str]], str]] = {
    "NoSuchOption": _no_such_option,
    "MissingParameter": _missing_parameter,
    "BadParameter": _bad_parameter,
    "BadOptionUsage": _bad_option_usage,
    "UsageError": _usage,
}
"""By the name of the parser's exception, the most special first in its own order of bases."""
