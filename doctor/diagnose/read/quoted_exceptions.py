"""Lines of the level of an error, exceptions that a line quotes, and those below the line that announces them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from doctor.diagnose.excerpter.tracebacks import REFUSED, TRACEBACK_HEAD

_CALL = re.compile(r"""(?!raise )[^"'#]{0,200}?\w\([^"'#]{0,200}""")
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
OLD_CODE = re.compile(
    r"(?:^\s{0,8}|[\]):] {0,2})(?!E[IJ]00|EL000[24]|E3000[68]|EE10(?:02|24)|EZ[12]001|E.(?:99|88)\d\d)"
    r"(?P<code>E[1-9A-Z]\d{4}): (?!\[PID|[^\n]{0,90}rtGetDevMsg)"
)
"""In the first line of an error of CANN, as older releases print it: no line below has the code."""
NAMED = re.compile(r"(?:[:(] ?|\bUncaught )((?:[a-z_]\w{0,40}\.){0,6}[A-Z]\w{0,40}(?:Error|Exception): .{4,})")
"""An exception in a line of the level of an error."""
_ERROR_LEVEL = re.compile(
    r"(?:^|[\s\[|(<【])(?:(?:[A-Z]{2,8}_)?(?:ERROR|FATAL|CRITICAL)|(?:致命)?错误(?![:：] ?\d))(?:$|[\s\]|:：)>】])"
    r"|\[[\d:, -]{19,27} [EF] \d|\[(?:error|fatal|critical)\]|^(?:[Ee]rror|fatal): [a-z_]"
    r"|(?:^|\) |\[)[EF]\d{3,4}(?:\d{4})? \d\d:|F\d{4} \d\d:\d\d:\d{10}\.\d{6} |^Unhandled exception\b"
    r'|"(?:level|severity|levelname|eventType)": ?"\w{0,8}(?i:error|fatal|critical)"|[Ee]xception (?:in|raised from) \w'
    r"|\bE\w\d{4}: \S|^[\w.-]{2,40}: (?:fatal )?error: |\bfailed with (?:[a-z]{2,20} ){0,3}(?:error|status|code)\b"
)
"""How loggers, glog, CANN and compilers or Slurm begin the line of an error, and how libraries in C tell one."""
_PROGRESS_LEVEL = re.compile(r"\b(?:INFO|DEBUG)\b")
"""Behind the level of an error it is that of the line itself, which another logger passes on from a child's stderr."""
_WARNING = re.compile(r".{0,40}\bWARN(?:ING)?\b")
_RAISED = re.compile(
    r"(?:^\s{0,40}|\))(?:[a-z_]\w{0,40}\.){0,6}[A-Z]\w{0,40}(?:Error|Exception)(?=: |\s*$|assert |raise |\s{4})"
    r"|\.so[.\d]{0,12}: undefined symbol: \w"
)
"""An exception's name in lines of several processes that are mixed within a line; a library that was not loaded."""
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


def with_call(values: Mapping[str, str], statement: str) -> str:
    """An exception with the call of its innermost frame behind it, where patterns see both; empty without a call.

    Text that a call quotes is what the program may print, and not what it printed.

    >>> with_call({"exception": "OSError", "message": "[Errno 28] No space left on device"}, "lock = m.SemLock(")
    'OSError: [Errno 28] No space left on device at: lock = m.SemLock('
    >>> with_call({"exception": "RuntimeError"}, "raise RuntimeError('no space')")
    ''
    """
    text = ": ".join(filter(None, (values.get("exception", ""), values.get("message", ""))))
    return " at: ".join((text, statement)) if _CALL.fullmatch(statement) else ""


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


def is_error(text: str) -> bool:
    """Whether a line is of the level of an error, or holds an exception, and is no other logger's line of progress."""
    exception = _RAISED.search(text) and not _WARNING.match(text)
    return bool(exception or (_ERROR_LEVEL.search(text) and not _PROGRESS_LEVEL.search(text)))
