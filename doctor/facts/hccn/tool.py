"""How hccn_tool is asked, and how its answers are told apart: by text first, for its exit codes mean several things."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from doctor.engine.fact import Absent, Answer, Output, Probe, Unreadable, run, trouble
from doctor.engine.sanitize import plain

T = TypeVar("T")

BUSY = "hccn_tool is busy"
UNSUPPORTED = "not supported on this product"
LOCKED = 11
"""Exit status for the tool's own lock: some other program is asking."""
NO_ADDRESS = "no ip was preset"

_ASK = """ask() {
  for pause in 0.1 0.2 0.3 0.5 0.5 0; do
    hccn_tool -i "$@"; code=$?
    [ $code -eq 11 ] || return $code
    sleep $pause
  done
  return 11
}
"""
"""Asks again a few times when another program holds the tool's lock."""

_REFUSALS = (
    ("permission denied", "hccn_tool answers this to root alone: log in as root, or add --sudo"),
    (BUSY, "hccn_tool stayed busy: another program holds its lock"),
    ("occupied. Please try again", "the device is occupied by another command"),
    ("The VM does not support", "hccn_tool does not answer this in a virtual machine"),
    ("The device is not exist", "hccn_tool says that the device does not exist"),
    ("Get invalid device id", "hccn_tool does not find the device: it is lost, or the user may not open it"),
    ("Get unknown option", "this hccn_tool does not know the option"),
    ("Get invalid major cmd", "this hccn_tool does not know the command"),
)
"""What the tool says instead of an answer, and what that means."""


def hccn(options: str, *, root: bool = False, limit: int = 16384) -> Probe:
    """``hccn_tool -i N <options>`` for every NPU, one after the other: the tool takes a lock."""
    return per_npu(f'ask "$1" {options}', root=root, limit=limit)


def per_npu(command: str, *, root: bool = False, limit: int = 16384) -> Probe:
    """A command for every NPU in which ``ask N options`` stands for a patient ``hccn_tool -i N options``."""
    # Short, so that one dead NPU does not use up the time of the others: the vendor's own checker waits 3 s.
    return run(
        _ASK + command,
        requires="hccn_tool",
        each="/dev/davinci[0-9]*",
        root=root,
        lane="hccn",
        timeout=4,
        limit=limit,
    )


def each_npu(answer: Answer, one: Callable[[Output], T]) -> tuple[dict[int, T], dict[str, str]]:
    """What ``one`` makes of each NPU's output (None: nothing is set), and why the rest is unread.

    Raises: Absent when no NPU has such a thing, Unreadable when none could be read.
    """
    seen: dict[int, T] = {}
    unread: dict[str, str] = {}
    unsupported = 0
    for npu, output in answer.devices():
        try:
            seen[npu] = one(output)
        except Absent as why:
            unsupported += not isinstance(why, Unreadable)
            unread[f"NPU {npu}"] = str(why)
    if seen:
        return seen, unread
    if unread and unsupported == len(unread):
        raise Absent(_summary(unread))
    raise Unreadable(_summary(unread))


def told(value: Callable[[str], T], nothing: str = "") -> Callable[[Output], T | None]:
    """Reads one output: None where the tool said ``nothing``, else what ``value`` makes of the text."""

    def one(output: Output) -> T | None:
        text = said(output)
        refuse(text)
        if nothing and nothing in text:
            return None
        if output.code:
            raise Unreadable(last_words(text) or f"exit status {output.code}")
        return understood(text, value)

    return one


def there(seen: Mapping[int, T | None]) -> dict[int, T]:
    """The NPUs that have a value."""
    return {npu: value for npu, value in seen.items() if value is not None}


def missing(seen: Mapping[int, T | None]) -> tuple[int, ...]:
    """The NPUs that said that nothing is set."""
    return tuple(npu for npu, value in seen.items() if value is None)


def said(output: Output) -> str:
    """All that the tool said on either stream, without the answers of tries that found it busy.

    Raises: Unreadable when the command did not come to its own end.
    """
    if output.ended != "exited" or output.cut or output.code < 0:
        raise Unreadable(plain(trouble(output)))
    if output.code == LOCKED and BUSY in output.out:
        raise Unreadable("hccn_tool stayed busy: another program holds its lock")
    lines = f"{output.out}\n{output.err}".splitlines()
    told = [line for line in lines if BUSY not in line and line.strip()]
    return "\n".join(told or [line for line in lines if BUSY in line])


def last_words(text: str) -> str:
    """The last line, where the tool says why it gave up."""
    return plain(text.strip().rpartition("\n")[2])


def refuse(text: str) -> None:
    """Raises: Absent or Unreadable when the tool said why it does not answer."""
    if UNSUPPORTED in text:
        raise Absent("hccn_tool does not have this on this product")
    for words, meaning in _REFUSALS:
        if words in text:
            raise Unreadable(meaning)


def understood(text: str, value: Callable[[str], T]) -> T:
    """``value`` of the text. Raises: Unreadable when it does not fit (a ValueError or LookupError)."""
    try:
        return value(text)
    except (ValueError, LookupError):
        first = text.partition("\n")[0]
        raise Unreadable(plain(f"not understood: {first!r}" if first else "hccn_tool said nothing", 120)) from None


def field(name: str, text: str) -> str:
    """The value on the only line ``name: value``. Raises: ValueError when there is none, or more than one."""
    found = re.findall(rf"^[ \t]*{name}[ \t]*:[ \t]*(.*?)[ \t\r]*$", text, re.M)
    (value,) = found
    return str(value)


def _summary(unread: Mapping[str, str]) -> str:
    """One reason for all, or the first with its device."""
    if not unread:
        return "hccn_tool was asked of no NPU"
    reasons = set(unread.values())
    part, why = next(iter(unread.items()))
    return why if len(reasons) == 1 else f"{part}: {why} (and {len(unread) - 1} more)"
