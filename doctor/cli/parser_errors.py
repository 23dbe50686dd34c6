"""Shows what the parser of the command line refuses: in the language of this process, and without secrets."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from doctor.engine.language import localized, localized_filled
from doctor.engine.streams import print_stderr


def end_refused(error: Exception) -> NoReturn:
    """Ends the process with the parser's exit code. Raises: the error itself, if it is none of the parser."""
    if isinstance(error, typer.Abort):
        print_stderr(localized("Aborted."))
        sys.exit(1)
    if not hasattr(error, "format_message"):  # a parser's error has a message for the user; all else is not ours
        raise error
    _show(error)
    sys.exit(getattr(error, "exit_code", 2))


def _show(error: Exception) -> None:
    context = getattr(error, "ctx", None)
    if context is not None:
        usage = context.get_usage().removeprefix("Usage: ")
        print_stderr(localized("Usage: ") + usage)
        hint = localized("Try '{command} -h' for help.").format(command=context.command_path)
        print_stderr(f"{hint}\n")
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    print_stderr(localized("Error: ") + localized_filled(message))
