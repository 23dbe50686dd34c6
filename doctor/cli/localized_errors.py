"""Runs a command, and shows what its parser refuses in the language of this process."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer
from typer.main import get_command

from doctor.engine.language import localized, localized_filled
from doctor.engine.streams import print_stderr


def run(app: typer.Typer, argv: Sequence[str], prog_name: str | None) -> None:
    """Runs the command of ``argv`` and ends the process, as ``app`` itself does in English."""
    try:
        code = get_command(app).main(args=list(argv), prog_name=prog_name or "doctor", standalone_mode=False)
    except typer.Abort:
        print_stderr(localized("Aborted."))
        sys.exit(1)
    except Exception as error:
        if not hasattr(error, "format_message"):  # a parser's error has a message for the user; all else is not ours
            raise
        _show(error)
        sys.exit(getattr(error, "exit_code", 2))
    sys.exit(code if isinstance(code, int) else 0)


def _show(error: Exception) -> None:
    context = getattr(error, "ctx", None)
    if context is not None:
        usage = context.get_usage().removeprefix("Usage: ")
        print_stderr(localized("Usage: ") + usage)
        hint = localized("Try '{command} -h' for help.").format(command=context.command_path)
        print_stderr(f"{hint}\n")
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    print_stderr(localized("Error: ") + localized_filled(message))
