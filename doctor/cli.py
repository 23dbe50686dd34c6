"""The `doctor` command. A subcommand's module is loaded when it is called, so that `--help` stays quick."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

NOTHING_TO_CHECK = 78
OUR_BUG = 70

COMMANDS = {
    "check": "Check hosts: read each one over SSH, judge, report.",
    "list": "List the checks: name, severity, and what is so when all is well.",
    "explain": "Explain a check: why it matters, what to do, what runs on the hosts.",
}


class Refused(Exception):
    """Input that cannot be used: one line for stderr, and the exit code."""

    def __init__(self, text: str, code: int = NOTHING_TO_CHECK) -> None:
        super().__init__(text)
        self.code = code


def application(words: Sequence[str]) -> typer.Typer:
    """The command line for these words: whole for the subcommand among them, one line for each of the others."""
    app = typer.Typer(
        name="doctor",
        no_args_is_help=True,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(root)
    wanted = next((word for word in words if not word.startswith("-")), "")
    for name, summary in COMMANDS.items():
        function = import_module(f"doctor.commands.{name}").command if name == wanted else _unloaded
        app.command(name, help=None if name == wanted else summary)(function)
    return app


def _unloaded() -> None:
    """Stands for a subcommand that these words do not call."""


def _version(wanted: bool) -> None:
    if wanted:
        from doctor import __version__

        typer.echo(f"cluster-doctor {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and stop.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Tells what is wrong with a training cluster, where, why, and how to mend it."""


def write(text: str) -> None:
    """stdout, in whatever encoding it has. A reader that has gone changes no exit code."""
    data = text if text.endswith("\n") else text + "\n"
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data.encode(encoding, "backslashreplace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError as error:
        print(f"doctor: stdout: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except (AttributeError, ValueError):  # a stdout without bytes (tests), or none at all
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.write(data)


def _stop(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


def main() -> None:
    """The `doctor` command: every way out has a documented exit code, and none shows a traceback unasked."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        application(sys.argv[1:])()
    except Refused as refusal:
        print(f"doctor: {refusal}", file=sys.stderr)
        sys.exit(refusal.code)
    except Exception as error:  # noqa: BLE001 - the rim: our own bug becomes one line, a file, and exit code 70
        sys.exit(_own_bug(error))


def _own_bug(error: Exception) -> int:
    import tempfile
    import traceback

    from doctor.record import redact

    text = redact("".join(traceback.format_exception(error)))
    if "--debug" in sys.argv:
        print(text, file=sys.stderr)
    where = "and no file could be written"
    try:
        handle, where = tempfile.mkstemp(prefix="doctor-bug-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError:
        pass
    name = type(error).__name__
    print(f"doctor: a bug of doctor itself, not of your cluster ({name}): please report {where}", file=sys.stderr)
    return OUR_BUG


if __name__ == "__main__":
    main()
