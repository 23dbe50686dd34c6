"""stdout and stderr: the one way by which doctor's text leaves the process: `tests/test_one_way_out.py`."""

from __future__ import annotations

import errno
import os
import sys

NOT_WRITTEN_EXIT_CODE = 78
_unwritten: list[str] = []
"""Why text for stdout was lost, if any was."""
_ESCAPE = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~]?)"
_CONTROL = r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
_COLOUR = r"\x1b\[[\d;]*m"
_ANNOTATION = r"(?m)^(?P<before>(?:[^\S\n]|\x1b\[[\d;]*m)*):(?=:[A-Za-z][\w-]*(?:[ \t][^\n]*?)?::)|##(?=(?:vso)?\[)"


def harmless(text: str) -> str:
    r"""``text`` that no terminal and no CI system obeys, without tokens: colours are its only control sequences.

    ``::error`` at the begin of a line, and ``##[`` and ``##vso[`` anywhere, are commands to runners of CI systems.

    >>> harmless("\x1b[31mred\x1b[0m \x1b]0;title\x07\n  ::error file=x::pwned\n##[error]x ::1 c10d::x")
    '\x1b[31mred\x1b[0m \n  : :error file=x::pwned\n## [error]x ::1 c10d::x'
    """
    import re

    from doctor.engine.secrets import hide_tokens

    text = hide_tokens(text)
    if not text.replace("\n", "").isprintable():
        text = re.sub(f"(?!{_COLOUR})(?:{_ESCAPE}|{_CONTROL})", "", text)
    if "::" in text or "##" in text:
        text = re.sub(_ANNOTATION, lambda match: f"{match['before'] or ''}: " if ":" in match[0] else "## ", text)
    return text


def write_stdout(text: str, own: bool = False) -> None:
    """stdout, in the encoding that it has. ``own``: a text that is `harmless`, since it was saved with the program.

    A reader that has gone changes no exit code. Text that could not be written makes `exit_code_of_output` no success.
    """
    if sys.stdout is None:  # it was closed before the start: its number may belong to a file of ours by now
        _note_unwritten(OSError(errno.EBADF, os.strerror(errno.EBADF)))
        return
    data = text if text.endswith("\n") else text + "\n"
    if not own:
        data = harmless(data)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(_encoded(data, encoding))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError as error:
        _note_unwritten(error)
    except (AttributeError, ValueError):  # a stdout without bytes (tests), or none at all
        if not sys.stdout.closed:
            sys.stdout.write(data)


def _encoded(text: str, encoding: str) -> bytes:
    if text.isascii():
        return text.encode(encoding)
    from doctor.engine.output_encoding import encoded

    return encoded(text, encoding)


def _note_unwritten(error: OSError) -> None:
    """Tells on stderr, in one line, that stdout cannot be written; what follows is dropped."""
    if not _unwritten:
        from doctor.engine.texts import filled

        print_stderr(filled("doctor: stdout: {0}", error.strerror))
    _unwritten.append(str(error.strerror))
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def note_full_output(error: Exception) -> bool:
    """Whether the error is that of a full stdout, on which the parser of the command line prints help by itself."""
    full = isinstance(error, OSError) and error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full:
        _note_unwritten(error)  # type: ignore[arg-type]
    return full


def exit_code_of_output(code: int) -> int:
    """The exit code of a command that would end with ``code``: none whose output was lost ends with 0."""
    return NOT_WRITTEN_EXIT_CODE if _unwritten and not code else code


def forgive_unwritten() -> None:
    """The exit code is the whole output: what stdout lost changes none from now on."""
    _unwritten.clear()


def print_stderr(text: str, end: str = "\n") -> None:
    """Text on stderr, whether or not anybody reads it, without secrets.

    A part of the command line, such as one that a message quotes, may hold a secret that only the whole shows.
    """
    from doctor.engine.secrets import HIDDEN, hidden_parts, hide_secrets

    for part in (part for word in sys.argv[1:] for part in hidden_parts(word)):
        text = text.replace(part, HIDDEN)
    try:  # noqa: SIM105 - contextlib takes a while to load
        print(harmless(hide_secrets(text)), end=end, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass
