"""Runs hccn_tool and classifies its output: by text first, since its exit codes mean several things."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from doctor.engine.fact import Absent, Fact, Output, Probe, ProbeAnswer, Unreadable, run, unusable_reason
from doctor.engine.sanitize import last_line, strip_control_chars
from doctor.engine.texts import filled
from doctor.facts.npu import NpuInventory
from doctor.facts.reported_value import OF_THE_HOST, require_no_complaint

T = TypeVar("T")
F = TypeVar("F", bound=Fact)

CONF_PATH = "/etc/hccn.conf"
BUSY_TEXT = "hccn_tool is busy"
UNSUPPORTED_TEXT = "not supported on this product"
OTHER_SYNTAX_TEXT = "Please specify a valid mode"
"""The tool of the 950 family, which wants -g or -s first (ascend950/hccn_tool/tool_cmd_err.c of hicann/driver)."""
LOCKED_STATUS = 11
"""Exit status for the tool's own lock: some other program is asking."""
NO_ADDRESS_TEXT = "no ip was preset"

_RETRY_SCRIPT = """ask() {
  for pause in 0.1 0.2 0.3 0.5 0.5 0; do
    hccn_tool "$@"; code=$?
    [ $code -eq 11 ] || return $code
    sleep $pause
  done
  return 11
}
"""
"""Asks again a few times when another program holds the tool's lock."""

_REFUSALS = (
    ("permission denied", "hccn_tool answers this only to root: log in as root, or add --sudo"),
    (BUSY_TEXT, "hccn_tool stayed busy: another program holds its lock"),
    ("occupied. Please try again", "the device is occupied by another command"),
    ("The VM does not support", "hccn_tool does not answer this in a virtual machine"),
    ("The device is not exist", "hccn_tool reports that the device does not exist"),
    (
        "Get invalid device id",
        "hccn_tool does not find the device: it is lost, or the user has no permission to open it",
    ),
    ("Get unknown option", "this version of hccn_tool does not support the option"),
    ("Get invalid major cmd", "this version of hccn_tool does not support the command"),
)
"""The tool's messages in place of an answer, and their meaning."""


def hccn_probe(options: str, *, root: bool = False) -> Probe:
    """``hccn_tool -i N <options>`` for every NPU, two at a time: the tool takes a lock."""
    return per_npu_probe(f'ask -i "$1" {options}', root=root)


def per_npu_probe(command: str, *, root: bool = False, stand_in: str = CONF_PATH) -> Probe:
    """A command for every NPU, ``$1``, in which ``ask`` stands for a patient ``hccn_tool``."""
    # Short, so that one dead NPU does not use up the time of the others: the vendor's own checker waits 3 s. Two at a
    # time: the tool locks its log and configuration file for moments only (log.c and tool.c of hicann/driver), and
    # where a driver answers "busy", two that alternate wait for one call at most.
    return run(
        _RETRY_SCRIPT + command,
        requires="hccn_tool",
        each="/dev/davinci[0-9]*",
        root=root,
        lane="hccn",
        timeout=4,
        limit=16384,
        lanes=2,
        inventory=NpuInventory,
        stand_in=stand_in,
    )


def parse_each_npu(answer: ProbeAnswer, parse: Callable[[Output], T]) -> tuple[dict[int, T], dict[str, str]]:
    """What ``parse`` makes of each NPU's output (None: nothing is set), and why the rest is unread.

    Raises: Absent when no NPU has such a thing, Unreadable when none could be read.
    """
    values: dict[int, T] = {}
    unread: dict[str, str] = {}
    unsupported: dict[str, str] = {}
    for npu, output in answer.devices():
        if output.ended == "exited":  # how long that took is no part of it
            output = msgspec.structs.replace(output, seconds=0)
        value = _parse_once(parse, output)
        if isinstance(value, Absent):
            (unread if isinstance(value, Unreadable) else unsupported)[f"NPU {npu}"] = str(value)
        else:
            values[npu] = value
    if values:
        return values, unsupported | unread
    why = Unreadable.of_each(unread or unsupported, "hccn_tool was run for no NPU")
    raise Absent(*why.args) if unsupported and not unread else why


@lru_cache(maxsize=1 << 14)
def _parse_once(parse: Callable[[Output], T], output: Output) -> T | Absent:
    """NPUs that answered alike share one value, of one host and of all, where ``parse`` is one function for all."""
    try:
        return parse(output)
    except Absent as why:
        why.__context__ = None  # it holds the frames of what was not understood
        return why.with_traceback(None)


def per_npu(
    parse: Callable[[str], object],
    nothing: str = "",
    unset: str = "",
    without_tool: Callable[[Output], object] | None = None,
) -> Any:
    """The class method `Fact.read` of a fact whose ``by_npu`` holds what ``parse`` makes of each NPU's output.

    Where the tool said ``nothing``, or ``parse`` returned None, the NPU is listed in the field named ``unset``.
    ``without_tool`` reads the output that stands for a tool that is not there.

    >>> read = per_npu(lambda text: int(single_field("mtu", text)))
    """
    with_tool = parse_with(parse, nothing)
    parse_output = either(with_tool, without_tool) if without_tool else with_tool

    def read(cls: type[F], answer: ProbeAnswer) -> F:
        values, unread = parse_each_npu(answer, parse_output)
        fields: dict[str, Any] = {"by_npu": set_values(values), "unread": unread}
        if unset:
            fields[unset] = unset_npus(values)
        return cls(**fields)

    return classmethod(read)


def either(with_tool: Callable[[Output], T], without_tool: Callable[[Output], T]) -> Callable[[Output], T]:
    """Reads an output of the tool with the one function, and what stands for it with the other."""
    return lambda output: without_tool(output) if output.ended == "absent" else with_tool(output)


def parse_with(parse: Callable[[str], T], nothing: str = "") -> Callable[[Output], T | None]:
    """Reads one output: None where the tool said ``nothing``, else what ``parse`` makes of the text."""

    def parse_output(output: Output) -> T | None:
        text = combined_output(output)
        raise_known_refusal(text)
        if nothing and nothing in text:
            return None
        if output.code:
            raise Unreadable(last_line(text) or filled("exit status {0}", output.code))
        return parse_or_unreadable(text, parse)

    return parse_output


def set_values(values: Mapping[int, T | None]) -> dict[int, T]:
    """The NPUs that have a value."""
    return {npu: value for npu, value in values.items() if value is not None}


def unset_npus(values: Mapping[int, T | None]) -> tuple[int, ...]:
    """The NPUs that reported that nothing is set."""
    return tuple(npu for npu, value in values.items() if value is None)


def combined_output(output: Output) -> str:
    """The tool's output on both streams, without that of attempts that found it busy.

    Raises: Unreadable when the command did not come to its own end.
    """
    if output.ended == "absent":  # a container that was given hccn.conf, and not the tool
        raise Unreadable("hccn_tool is not here, and /etc/hccn.conf does not hold this")
    if output.ended != "exited" or output.cut or output.code < 0:
        raise Unreadable(strip_control_chars(unusable_reason(output)))
    if output.code == LOCKED_STATUS and BUSY_TEXT in output.out:
        raise Unreadable("hccn_tool stayed busy: another program holds its lock")
    lines = [line for line in f"{output.out}\n{output.err}".splitlines() if line.strip()]
    skipped = f"{BUSY_TEXT}|{OF_THE_HOST.pattern}"
    return "\n".join([line for line in lines if not re.search(skipped, line)] or lines)


def known_refusal(text: str) -> Absent | None:
    """Why the tool cannot answer, Absent or Unreadable, where it reported that."""
    if UNSUPPORTED_TEXT in text:
        return Absent("hccn_tool does not support this on this product")
    if OTHER_SYNTAX_TEXT in text:
        return Absent("hccn_tool of the 950 family has other commands, for other ports")
    for phrase, meaning in _REFUSALS:
        if phrase in text:
            return Unreadable(meaning)
    return None


def raise_known_refusal(text: str) -> None:
    """Raises: Absent or Unreadable when the tool reported why it cannot answer."""
    why = known_refusal(text)
    if why:
        raise why


def refusal_text(text: str, limit: int) -> str:
    r"""Why an answer of the tool holds no result: its meaning where that is known, else its last line.

    >>> refusal_text("Get unknown option -inet6!\n\nUsage: hccn_tool ...", 100)
    'this version of hccn_tool does not support the option'
    """
    return str(known_refusal(text) or last_line(text, limit) or "hccn_tool printed nothing")


def parse_or_unreadable(text: str, parse: Callable[[str], T]) -> T:
    """``parse`` of the text. Raises: Unreadable when it does not fit (a ValueError or LookupError)."""
    require_no_complaint("hccn_tool", text)
    try:
        return parse(text)
    except (ValueError, LookupError):
        first = text.partition("\n")[0]
        if not first:
            raise Unreadable("hccn_tool printed nothing") from None
        raise Unreadable(filled("not understood: {0}", strip_control_chars(f"{first!r}", 104))) from None


def single_field(name: str, text: str) -> str:
    """The value on the only line ``name: value``. Raises: ValueError when there is none, or more than one."""
    (value,) = re.findall(rf"(?m)^[ \t]*{name}[ \t]*:(.*)$", text)
    return str(value).strip()
