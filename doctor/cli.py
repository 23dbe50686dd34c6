"""The `doctor` command: the ways in and out of the program."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

NOTHING_TO_CHECK = 78
OUR_BUG = 70
HELP = Path(__file__).with_name("help.txt")
"""What `application` says to ``--help``; a test tells when it is stale."""


class Refused(Exception):
    """Input that cannot be used: one line for stderr, and the exit code."""

    def __init__(self, text: str, code: int = NOTHING_TO_CHECK) -> None:
        super().__init__(text)
        self.code = code


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


def quick(words: list[str]) -> bool:
    """Answers what people type most, and needs no more than a file or two, without the weight of a command line."""
    if words in (["--help"], ["-h"]):
        write(HELP.read_text("utf-8"))
    elif words == ["list"]:
        from doctor.catalogue import files
        from doctor.listing import listing, skim

        write(listing([skim(path) for path, _ in files()]))
    else:
        return False
    return True


LAST_SECONDS = 20
"""From a signal to the end, whatever that took out of its course: a lock that was just being taken stays taken."""


def _stop(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(128 + number))
    signal.alarm(LAST_SECONDS)
    raise SystemExit(128 + number)


def main() -> None:
    """The `doctor` command."""
    try:
        guarded(_command)
    finally:
        # A process that ends looks for garbage first, in all that it ever loaded, for as long as it took to begin.
        gc.freeze()


def _command() -> None:
    if not quick(sys.argv[1:]):
        from doctor.commands import application

        application(sys.argv[1:])()


def guarded(run: Callable[[], None]) -> None:
    """Every way out has a documented exit code, and none shows a traceback unasked."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        run()
    except Refused as refusal:
        print(f"doctor: {refusal}", file=sys.stderr)
        sys.exit(refusal.code)
    except Exception as error:  # noqa: BLE001 - the rim: our own bug becomes one line, a file, and exit code 70
        sys.exit(own_bug(error))


def own_bug(error: Exception) -> int:
    """Says so in one line, keeps the traceback in a file, and returns the exit code."""
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
