"""What vendors' tools print: values, absent, read or failed; readings with limits; blocks. For all readers of tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from doctor.engine.fact import Unreadable
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled

ValueState = Literal["absent", "read", "failed"]
"""absent: the device or the driver has no such value. failed: there is one, and the tool could not read it."""

_ABSENT = re.compile(
    r"|-+|n\.?/?a\.?|none|null|not (?:supported|available|applicable|found|present|active)|unsupported"
    r"|requested functionality (?:has been|is) .{0,40}|[a-z_]{0,40}not_supported|[a-z_]{0,40}not_yet_implemented"
)
_FAILED = re.compile(
    r"unknown error|err(?:or)?!?|gpu (?:is lost|requires reset|not found)|timeout|(?:ioctl|internal|i/o) error"
    r"|corrupted inforom|insufficient (?:permissions|external power|memory|resources)|driver not loaded"
    r"|uninitialized|interrupt request issue|function not found|no data|failed(?: to .{0,80})?"
    r"|(?:dcmi|amdsmi)_(?:status_)?(?:err|fail|file|io|timeout|unexpected|busy|unknown|no_perm|init_error)[a-z_]{0,40}"
    r"|query .{0,40} failed|read (?:failed|error)|can(?:not|'t) (?:be )?read"
)
"""Messages of nvmlErrorString for failures (nvml.h), of npu-smi ("Failed to query ..."), and AMDSMI_STATUS names."""


def value_state(text: str | None) -> ValueState:
    """What stands for a value; brackets around it are NVIDIA's, and do not count.

    >>> value_state("[N/A]"), value_state("Unknown Error"), value_state("81559 MiB")
    ('absent', 'failed', 'read')
    """
    bare = " ".join((text or "")[:200].split()).strip("[]").rstrip(". ").lower()
    if _ABSENT.fullmatch(bare):
        return "absent"
    return "failed" if _FAILED.fullmatch(bare) else "read"


def reported_count(name: str, text: str | None) -> int | None:
    """A count, or None where there is no such value. Raises: Unreadable where it failed, or is no count.

    >>> reported_count("errors", "12"), reported_count("errors", "NA")
    (12, None)
    """
    word = reported_word(name, text, "[0-9]{1,18}")
    return int(word) if word else None


def reported_word(name: str, text: str | None, form: str) -> str:
    """A value of the form ``form``, or empty where there is none: None, or a word that says so.

    Raises: Unreadable for anything else, an empty text too: the tool names the value, and has nothing to say of it.
    """
    bare = (text or "").strip()
    if re.fullmatch(form, bare):
        return bare
    if text is None or (bare and value_state(bare) == "absent"):
        return ""
    raise Unreadable(f"{name}: {strip_control_chars(bare, 80) or filled('no value')}")


class ToolBlock(NamedTuple):
    """What a tool printed for one device or query."""

    name: str
    text: str
    code: int | None
    """Its exit status; None where the output was cut before it."""


IDLE_PERCENT = 12
"""Of a device's memory that its driver and a display keep; the rest belongs to a program."""


def held_memory(unit: str, used: int, total: int) -> dict[str, str]:
    """What a finding shows of memory that no listed process has; empty where it is that of an idle device.

    >>> held_memory("MB", 61609, 65536), held_memory("MB", 4765, 65536)
    ({'observed': '61609 MB', 'expected': '7864 MB'}, {})
    """
    if used * 100 <= IDLE_PERCENT * total:
        return {}
    return {"observed": f"{used} {unit}", "expected": f"{total * IDLE_PERCENT // 100} {unit}"}


def tool_blocks(text: str, names: str) -> list[ToolBlock]:
    r"""The blocks of a script that calls a tool for each of several names, a pattern without groups.

    >>> tool_blocks("-- mlx5_0 --\nState : Active\n-- exit 0 --\n-- mlx5_1 --\nSta", r"mlx5_\d{1,3}")[0]
    ToolBlock(name='mlx5_0', text='State : Active\n', code=0)
    """
    pieces = re.split(rf"(?ma)^-- ({names}) --[ \t\r]*\n", text)
    blocks = []
    for name, piece in zip(pieces[1::2], pieces[2::2], strict=True):
        printed, _, end = piece.rpartition("-- exit ")
        code = re.match(r"([0-9]{1,3}) --", end)
        blocks.append(ToolBlock(name, printed if code else piece, int(code[1]) if code else None))
    return blocks


class OpticalReading(msgspec.Struct, frozen=True):
    """A measured value and the module's own thresholds."""

    value: float
    low: float
    high: float
    unit: str

    @property
    def is_outside(self) -> bool:
        """Whether the value is beyond a limit; a module without limits has the same number for both, 0."""
        return self.low < self.high and not self.low <= self.value <= self.high

    def case(self, quantity: str) -> str:
        """Which item of the fix of a module is for this reading, which is outside of its limits.

        >>> OpticalReading(-14.2, -10.4, 6.0, "dBm").case("Rx power")
        'Low Rx power'
        """
        name = quantity.lower()
        if "rx" in name and self.value < self.low:
            return "Low Rx power"
        return "High temperature" if "temp" in name and self.value > self.high else "Another value"


def readings_outside(readings: Mapping[str, OpticalReading]) -> dict[str, dict[str, OpticalReading]]:
    """Those beyond a limit, by quantity and by name. The name is the quantity, with the number of the lane behind it.

    >>> dark = OpticalReading(-14.2, -10.4, 6.0, "dBm")
    >>> list(readings_outside({"Rx power 0": dark, "Rx power 2": dark, "Vcc": OpticalReading(3262.9, 0, 0, "mV")}))
    ['Rx power']
    """
    outside: dict[str, dict[str, OpticalReading]] = {}
    for name, reading in readings.items():
        if reading.is_outside:
            outside.setdefault(name.rstrip("0123456789 "), {})[name] = reading
    return outside
