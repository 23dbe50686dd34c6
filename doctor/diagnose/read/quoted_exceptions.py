"""Exceptions that a line quotes, and those that stand below the line that announces them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from doctor.diagnose.excerpter.tracebacks import REFUSED, TRACEBACK_HEAD

OF_OTHERS = re.compile(
    r"reported as above|reader raises an exception"
    r"|\b(?:[Ss]ee|[Cc]heck|[Rr]ead|[Ll]ook at|[Rr]efer to) (?:the )?(?:\w{1,20} )?"
    r"(?:stack ?trace|inner exception|root cause|errors?|logs?|output|traceback)\b.{0,40}(?:above|root cause|details)"
    r"|\b(?:[Ss]erver|[Ww]orker|[Aa]ctor|[Rr]eplica|[Ee]ngine|[Nn]ode) \d{1,6} (?:has )?"
    r"(?:failed|died|crashed|exited)\b"
    r"|\bother (?:ranks|workers|processes)\b.{0,80}(?:fail|finish|died|exit)"
    r"|\b(?:exception|error|failure) (?:on|in|of) (?:one|another|some) (?:of the )?(?:ranks?|workers?|process(?:es)?)\b"
    r"|\b[Ff]ailed to start (?:\w{1,20} ){0,2}(?:tracker|process|worker|server|engine|actor|replica)s?\b"
    r"|\b(?:child|background|worker|sub|or more)[ -]?process(?:es)?\b.{0,60}(?:fail|died|exited|terminated)"
)
"""What the message of an exception says that only reports what failed elsewhere."""
QUOTED = re.compile(r"\bfailed with error '(.{8,2000}?)', please check the stack trace")
"""The message of a worker's exception, in that of the process which waits for it."""
_THROWN = re.compile(r"instance of '((?:\w{1,60}::){0,4}(?!Dist)\w{1,60})'$")
"""The exception of C++ over which a process ends. That of torch over a collective says what another rank did."""
_REASON = re.compile(rb"(?:Last error:\s*\n(?:\[rank\d{1,6}\]: ?)?|^.{0,80} what\(\): {1,4})([^\n]{4,200})", re.M)
"""The reason in the last lines of torch's message of an error of NCCL, and behind the head of C++ for an exception."""
_FIELD = re.compile(r'(?:[^"\\]|\\.){0,4096}')
_ESCAPE = re.compile(r'\\(["\\/])')


def reason_below(lines: Sequence[bytes], at: int) -> str:
    """What the lines below one give as the reason of its error; empty where they give none."""
    reason = _REASON.search(b"\n".join(lines[at : at + 5]))
    return reason[1].decode("utf-8", "replace") if reason else ""


def continued(exception: str, message: str, below: Sequence[str]) -> str:
    """The exception whose message goes on below: where its line shows none, or counts what pydantic refuses.

    >>> continued("x.ValidationError", "1 validation error for M", ["  Value error, no such model [type=value_error]"])
    'ValueError: no such model'
    >>> continued("x.SetupException", "", ["", "   You requested GPUs: [0, 1]"]), continued("KeyError", "'a'", ["b"])
    ('x.SetupException: You requested GPUs: [0, 1]', '')
    """
    texts = [text.strip() for text in below if text.strip()]
    if REFUSED.match(message):
        refused = next((text for text in texts if " [type=" in text), "").rpartition(" [type=")[0]
        return ": ".join(("ValueError", refused.removeprefix("Value error, "))) if refused else ""
    return "" if message or not texts else ": ".join((exception, texts[0]))


def thrown(text: str, reason: str) -> str:
    """The exception of C++ over which a process says that it aborts, in the form of Python's.

    >>> thrown("terminate called after throwing an instance of 'std::system_error'", "Broken pipe")
    'std.system_error: Broken pipe'
    """
    if "without an active exception" in text:
        return "std.terminate: a thread was not joined, or a pure virtual function was called"
    kind = _THROWN.search(text)
    return f"{kind[1].replace('::', '.')}: {reason}" if kind and reason else ""


def raised(text: str) -> str:
    r"""The exception's line of the traceback in a field of a line of JSON, as structured logging writes it; empty where
    it holds none.

    >>> raised(r'{"rank": 2, "exc": "Traceback (most recent call last):\n  File \"t.py\", line 3\nValueError: bad"}')
    'ValueError: bad'
    """
    if not text.startswith("{"):
        return ""
    _, head, rest = text.partition(TRACEBACK_HEAD)
    field = _FIELD.match(rest)
    if not head or not field:
        return ""
    lines = [_ESCAPE.sub(r"\1", line) for line in field.group().split("\\n")]
    return next((line for line in reversed(lines) if line.strip() and not line.startswith((" ", "\\t", ":"))), "")
