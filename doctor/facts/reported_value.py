"""What vendors' tools print: values, absent, read or failed; readings with limits; blocks. For all readers of tools."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

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


Part = TypeVar("Part")
LACKED = "no value, where others of its kind have one"


def lacked_values(answered: Mapping[Part, tuple[str, Collection[str]]]) -> dict[Part, list[str]]:
    """By device of one host, the names that it has no value for, and at least half of the others of its kind have.

    N/A there is no answer: the product has such a part. ``answered``: by device its kind, which is what tells products
    apart, and settings by which a value goes; and the names that have a value.

    >>> lacked_values({0: ("H100", {"temperature"}), 1: ("H100", ()), 2: ("T4", ())})
    {1: ['temperature']}
    """
    lacked: dict[Part, list[str]] = {}
    for part, (kind, names) in answered.items():
        others = [there for other, (same, there) in answered.items() if other != part and same == kind]
        unnamed = sorted({name for other in others for name in other} - {*names})
        usual = [name for name in unnamed if 2 * sum(name in other for other in others) >= len(others)]
        if usual:
            lacked[part] = usual
    return lacked


def lacked_reasons(answered: Mapping[Part, tuple[str, Collection[str]]]) -> dict[Part, str]:
    """The same as why a device is unread, by its first such name.

    >>> lacked_reasons({0: ("H100", {"temperature"}), 1: ("H100", ())})
    {1: 'temperature: no value, where others of its kind have one'}
    """
    return {part: filled("{0}: {1}", names[0], LACKED) for part, names in lacked_values(answered).items()}


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


_COMPLAINT = re.compile(
    r"\b(?:error|fatal|fail(?:ed|ure)?|unable|corrupt\w*|cannot|invalid|warning|not respond\w*|timed out"
    r"|connection refused)\b|(?-i:[a-z]Error:)",
    re.I,
)
_STEMS = ("error", "fatal", "fail", "unable", "corrupt", "cannot", "valid", "warn", "respond", "timed out", "refused")
"""Each complaint holds one of them, which is looked for in a sixth of the expression's time."""
OF_THE_HOST = re.compile(r"ld\.so|LD_PRELOAD|no version information available|setlocale|cannot change locale", re.I)
_LABEL = re.compile(r"[ \t]{0,80}([A-Za-z][^:\n]{0,60}):(?!\S{0,200}:)(.*)")
_NUMBER = re.compile(r"[\[ ]*-?[0-9][\w.,%/ \[\]-]{0,60}")
_SENTENCE = re.compile(
    r"cannot|could not|unable|fail|invalid|corrupt|^(?:fatal|errors?|warning|\w+-smi|hccn_tool|mlxlink|ethtool)$"
    r"|(?-i:[a-z](?:Exception|Error)$)",
    re.I,
)
"""What a label does not have; the name of a tool, or of an exception of Python, stands before its message."""


def table_problem(cells: Mapping[tuple[Part, Part], str], rows: Sequence[object], expected: Sequence[object]) -> str:
    """Why a table of connections is not whole: a row is missing, or it shows two for one pair. Empty where it is.

    ``rows``: the devices whose rows were read. ``expected``: those that the header names.

    >>> table_problem({("GPU0", "GPU1"): "NV12", ("GPU1", "GPU0"): "SYS"}, (0, 1), (0, 1))
    'GPU0-GPU1 is NV12, and GPU1-GPU0 is SYS'
    """
    if sorted(map(str, rows)) != sorted(map(str, expected)):
        return filled("{0} of {1} rows could be read", len(rows), len(expected))
    for (row, column), cell in cells.items():
        if (other := cells.get((column, row), cell)) != cell:
            return filled("{0}-{1} is {2}, and {1}-{0} is {3}", row, column, cell, other)
    return ""


def complaint(text: str, expected: str = "") -> str:
    r"""What a tool printed beside its answer that tells of a failure: its first such line; empty for none.

    Rows of tables, of JSON and ``label: value`` are its answer, whose reader judges them; warnings of the host's loader
    and shell are not the tool's. ``expected``: a regular expression of lines that the reader knows.

    >>> complaint("PCIe Error Count : 0\nError: query of device 1 failed"), complaint("| 0 | Warning |")
    ('Error: query of device 1 failed', '')
    """
    if "\0" in text:
        return filled("bytes that are no text")
    folded = text.lower()
    for line in text.splitlines() if any(stem in folded for stem in _STEMS) and _COMPLAINT.search(text) else ():
        if not _COMPLAINT.search(line) or OF_THE_HOST.search(line) or (expected and re.search(expected, line)):
            continue
        row = _LABEL.fullmatch(line)
        is_answer = row and (
            not _SENTENCE.search(row[1].strip())
            or (len(row[1].split()) > 1 and _NUMBER.fullmatch(row[2].strip() or "0"))
        )
        if not is_answer and line.lstrip("\x1b[0m> \t")[:1] not in tuple('|+:"{}<'):
            return strip_control_chars(line.strip(), 160)
    return ""


def require_no_complaint(tool: str, text: str, expected: str = "") -> None:
    """Raises: Unreadable where the tool printed a `complaint`."""
    if why := complaint(text, expected):
        raise Unreadable(filled("{0}: beside its answer it printed: {1}", tool, why))


class ToolBlock(NamedTuple):
    """What a tool printed for one device or query."""

    name: str
    text: str
    code: int | None
    """Its exit status; None where the output was cut before it."""
    problem: str = ""
    """Why its text is no answer although the tool ended well: it holds a `complaint`, or is one of two of the name."""

    def failure(self, tool: str, seconds: int) -> str:
        """Why it holds no answer; empty where it may hold one. ``seconds``: until ``timeout`` ends the tool, with 124.

        >>> ToolBlock("eth0", "sh: ethtool: Killed", 137).failure("ethtool -m", 10)
        'ethtool -m: exit status 137: sh: ethtool: Killed'
        """
        if self.code is None:
            return filled("{0}: its output was cut off", tool)
        if self.code == 124:
            return filled("{0}: no answer in {1} s", tool, seconds)
        if not self.code:
            return f"{tool}: {self.problem}" if self.problem else ""
        last = strip_control_chars(self.text.strip().rpartition("\n")[2].strip(), 100)
        return filled("{0}: exit status {1}{2}", tool, self.code, ": " + last if last else "")


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


def tool_blocks(text: str, names: str, expected: str = "") -> list[ToolBlock]:
    r"""The blocks of a script that calls a tool for each of several names, a pattern without groups.

    ``expected``: see `complaint`.

    >>> tool_blocks("-- mlx5_0 --\nState : Active\n-- exit 0 --\n-- mlx5_1 --\nSta", r"mlx5_\d{1,3}")[0]
    ToolBlock(name='mlx5_0', text='State : Active\n', code=0, problem='')
    """
    pieces = re.split(rf"(?ma)^-- ({names}) --[ \t\r]*\n", text)
    blocks: list[ToolBlock] = []
    for name, piece in zip(pieces[1::2], pieces[2::2], strict=True):
        printed, _, end = piece.rpartition("-- exit ")
        code = re.match(r"([0-9]{1,3}) --", end)
        why = complaint(piece if blocks else f"{pieces[0]}\n{piece}", expected)
        problem = filled("beside its answer it printed: {0}", why) if why else ""
        if pieces[1::2].count(name) > 1:
            problem = filled("its answer stands there twice")
        blocks.append(ToolBlock(name, printed if code else piece, int(code[1]) if code else None, problem))
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


def quantities(readings: Collection[str]) -> set[str]:
    """The names without the numbers of the lanes: some lanes may be unused.

    >>> quantities(["Rx power 0", "Rx power 2"])
    {'Rx power'}
    """
    return {name.rstrip("0123456789 ") for name in readings}


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
