"""The table of ``npu-smi info``: health, memory and processes of every NPU chip, by the names of its columns."""

from __future__ import annotations

import re

import msgspec

from doctor.engine.fact import Fact, ProbeAnswer, Unreadable, run
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.facts.npu import NpuChips
from doctor.facts.npu_smi import INCOMPLETE, read_npu_smi_text, row_excerpt, table_rows
from doctor.facts.reported_value import lacked_reasons, value_state

NO_VALUES = "every value is 0: the card does not answer npu-smi"
_NUMERIC_COLUMN = re.compile(r"\b[A-Za-z][\w -]{0,30}\([^)]{0,20}\)")
_PAIR_OR_WORD = re.compile(r"(?:\d{1,12}|NA)\s*/\s*(?:\d{1,12}|NA)|\S+")
_BUS = re.compile(r"[0-9A-Fa-f]{2,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]|NA|-?")


class NpuState(msgspec.Struct, frozen=True):
    """One NPU in the table of ``npu-smi info``."""

    npu: int
    """The card's number, which is its slot on some PCIe cards."""
    chip: int
    device: int
    """Physical id where the table shows one (A3, 310P), else the card's number."""
    name: str
    health: str
    """OK, Warning, Alarm, Critical or UNKNOWN."""
    bus: str
    hbm_used: int | None = None
    """MB; None where the card has no HBM, or does not state it."""
    hbm_total: int | None = None
    """MB; None as above."""
    temperature: int | None = None
    """Degrees Celsius."""


class NpuProcess(msgspec.Struct, frozen=True):
    """One process on an NPU, in the table of ``npu-smi info``."""

    npu: int
    chip: int
    pid: int
    name: str
    megabytes: int


class NpuTable(Fact, frozen=True):
    """The table of ``npu-smi info``: health, HBM and processes of every NPU.

    Raw output, from npu-smi::

        +------------------------------------------------------------------------------------------------+
        | npu-smi 23.0.rc2                 Version: 23.0.rc2                                             |
        +---------------------------+---------------+----------------------------------------------------+
        | NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
        | Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
        +===========================+===============+====================================================+
        | 0     Ascend910           | OK            | 160.7       45                0    / 0             |
        | 0     0                   | 0000:9D:00.0  | 0           0    / 0          61609/ 65536         |
        +===========================+===============+====================================================+
        | NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
        +===========================+===============+====================================================+
        | No running processes found in NPU 0                                                            |
        +===========================+===============+====================================================+
    """

    probe = run("npu-smi info", requires="npu-smi", root=True, lane="npu-smi", timeout=20, inventory=NpuChips)

    npus: tuple[NpuState, ...]
    processes: tuple[NpuProcess, ...]
    incomplete_install: bool
    """npu-smi warns that the driver package may not be completely installed."""
    process_problem: str = ""
    """Why the list of processes is not complete; empty when it is."""

    def device_of(self, process: NpuProcess) -> int:
        for state in self.npus:
            if (state.npu, state.chip) == (process.npu, process.chip):
                return state.device
        return process.npu

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NpuTable:
        text = read_npu_smi_text(answer[""])
        table = _Table()
        for cells in table_rows(text):
            table.add(cells)
        table.end()
        if not table.states and not table.unread:
            raise Unreadable("npu-smi info: no NPU in the table")
        return cls(
            npus=tuple(table.states),
            processes=tuple(table.processes),
            incomplete_install=INCOMPLETE in text,
            process_problem=table.process_problem(),
            unread=table.unread,
        )


class _Table:
    """The table while it is read: three header rows name the columns of all that follow them."""

    def __init__(self) -> None:
        self.upper: list[list[str]] | None = None
        """Columns of a card's first row, by cell; None before the header."""
        self.lower: list[list[str]] | None = None
        self.process: list[list[str]] | None = None
        self.pending: list[str] | None = None
        """The first row of a card, which waits for its second."""
        self.states: list[NpuState] = []
        self.processes: list[NpuProcess] = []
        self.unread: dict[str, str] = {}
        self.covered: set[int] = set()
        """Cards that the list of processes covers."""
        self.bad_processes: list[str] = []
        self.measured: dict[int, tuple[str, set[str]]] = {}
        """By device its product and chip, and the columns of `MEASURED` that have a value."""

    def add(self, cells: list[str]) -> None:
        """Takes the next row. A row that is not understood becomes unread, and the others stay."""
        if "Health" in cells:
            self.upper, self.lower = [_column_names(cell) for cell in cells], None
        elif "Bus-Id" in cells and self.upper is not None:
            self.lower = [_column_names(cell) for cell in cells]
        elif "Process id" in cells:
            self.end()
            self.process = [_column_names(cell) for cell in cells]
        elif self.process is not None or cells[0].startswith("No running processes"):
            self._add_process(cells)
        elif self.upper is not None and self.lower is not None:
            self._add_state(cells)

    def end(self) -> None:
        """A first row that still waits has lost its second."""
        if self.pending is not None:
            self._note(self.pending)
        self.pending = None
        for device, why in lacked_reasons(self.measured).items():
            self.unread.setdefault(filled("NPU {0}", device), why)

    def _note(self, cells: list[str]) -> None:
        number = re.match(r"\d{1,6}\b", cells[0] if cells else "")
        self.unread[f"NPU {number[0]}" if number else "a row of the table"] = row_excerpt(cells)

    def _add_state(self, cells: list[str]) -> None:
        assert self.upper is not None and self.lower is not None
        place = next(number for number, names in enumerate(self.lower) if "Bus-Id" in names)
        is_second = len(cells) == len(self.lower) and bool(_BUS.fullmatch(cells[place]))
        if not is_second:
            self.end()
            self.pending = cells
            return
        upper_row, self.pending = self.pending, None
        if upper_row is None or len(upper_row) != len(self.upper):
            self._note(upper_row or cells)
            return
        values = {**_row_values(self.upper, upper_row), **_row_values(self.lower, cells)}
        state = _parse_state(values, cells[place])
        if state is None:
            self._note(upper_row + cells)
        elif any((state.npu, state.chip) == (other.npu, other.chip) for other in self.states):
            self.unread[filled("NPU {0}", state.device)] = filled("its answer stands there twice")
        elif _has_no_values(values):
            self.unread[filled("NPU {0}", state.device)] = NO_VALUES
        else:
            self.states.append(state)
            texts = {name: (values.get(name) or "").partition("/")[0] for name in MEASURED}
            answered = {name for name, text in texts.items() if value_state(text) != "absent"}
            answered -= {"Power(W)"} if not re.search("[1-9]", texts["Power(W)"]) else set()  # 0.0 is that of no card
            self.measured[state.device] = (f"{state.name} {state.chip}", answered)
            if failed := _failed_columns([name for names in (*self.upper, *self.lower) for name in names], values):
                self.unread[filled("NPU {0}", state.device)] = failed

    def _add_process(self, cells: list[str]) -> None:
        free = re.search(r"No running processes found in NPU (\d{1,6})\b", cells[0])
        if free:
            self.covered.add(int(free[1]))
            return
        header = self.process or []
        values = _row_values(header, cells) if len(cells) == len(header) else {}
        card = values.get("NPU ID") or values.get("NPU") or ""
        chip, pid = values.get("Chip") or "0", values.get("Process id") or ""
        megabytes = values.get("Process memory(MB)") or ""
        if not all(re.fullmatch(r"[0-9]{1,12}", number) for number in (card, chip, pid, megabytes)):
            self.bad_processes.append(row_excerpt(cells))
            return
        self.covered.add(int(card))
        self.processes.append(
            NpuProcess(int(card), int(chip), int(pid), values.get("Process name") or "", int(megabytes))
        )

    def process_problem(self) -> str:
        """Why the list of processes is not complete: it is missing, was cut, or has a row that is not understood."""
        if self.process is None:
            return "npu-smi info of this driver lists no processes, or its output was cut"
        if self.bad_processes:
            return filled("a process is {0}", self.bad_processes[0])
        silent = sorted({state.npu for state in self.states} - self.covered)
        return filled("npu-smi info: no process list for NPU {0}", silent[0]) if silent else ""


def _column_names(cell: str) -> list[str]:
    """``Power(W)  Temp(C)`` and ``NPU  Name`` are two columns in one cell; ``NPU ID`` and ``Process id`` are one."""
    if "(" in cell:
        return [name.strip() for name in _NUMERIC_COLUMN.findall(cell)]
    tokens = cell.split()
    return [" ".join(tokens)] if tokens[:1] == ["Process"] or tokens == ["NPU", "ID"] else tokens


def _row_values(header: list[list[str]], cells: list[str]) -> dict[str, str | None]:
    """The values of a row by column. In a cell of numbers, ``used / total`` belongs to the columns named Usage."""
    values: dict[str, str | None] = {}
    for names, cell in zip(header, cells, strict=False):
        if any("(" in name for name in names):
            tokens = _PAIR_OR_WORD.findall(cell)
            pairs = [token for token in tokens if "/" in token]
            scalars = [token for token in tokens if "/" not in token]
            for matched, group in ((pairs, True), (scalars, False)):
                columns = [name for name in names if ("-Usage(" in name) == group]
                values |= dict(zip(columns, matched, strict=True)) if len(columns) == len(matched) else {}
        elif len(names) == 1:
            values[names[0]] = cell
        elif names:
            values |= dict(zip(names, cell.split(None, len(names) - 1), strict=False))
    return values


def _parse_state(values: dict[str, str | None], bus: str) -> NpuState | None:
    """None where card, name or health are missing."""
    card = values.get("NPU ID") or values.get("NPU") or ""
    chip = values.get("Chip") or "0"
    device = values.get("Phy-ID") or values.get("Device") or card
    name, health = values.get("Name"), values.get("Health")
    if not all(re.fullmatch(r"[0-9]{1,9}", number) for number in (card, chip, device)) or not name or not health:
        return None
    used, total = _parse_pair(values.get("HBM-Usage(MB)"))
    temperature = values.get("Temp(C)") or ""
    return NpuState(
        npu=int(card),
        chip=int(chip),
        device=int(device),
        name=name,
        health=health,
        bus=bus,
        hbm_used=used if total else None,
        hbm_total=total or None,
        temperature=int(temperature) if re.fullmatch(r"-?\d{1,4}", temperature) else None,
    )


def _parse_pair(text: str | None) -> tuple[int | None, int | None]:
    match = re.fullmatch(r"(\d{1,12}|NA)\s*/\s*(\d{1,12})", text or "")
    return (None if match[1] == "NA" else int(match[1]), int(match[2])) if match else (None, None)


MEASURED = {
    "Power(W)": r"-?[0-9]{1,5}(\.[0-9]{1,3})?",
    "Temp(C)": r"-?[0-9]{1,5}(\.[0-9]{1,3})?",
    "HBM-Usage(MB)": r"(?:[0-9]{1,12}|NA)\s*/\s*(?:[0-9]{1,12}|NA)",
}
"""How the values of these columns look."""


def _failed_columns(names: list[str], values: dict[str, str | None]) -> str:
    """The measured columns that hold neither a number nor a word for none, with their text."""
    measured = {name: values.get(name) or "not understood" for name in names if name in MEASURED}
    failed = [
        f"{name}: {text}"
        for name, text in measured.items()
        if not re.fullmatch(MEASURED[name], text) and value_state(text) != "absent"
    ]
    return strip_control_chars(joined("; ", failed), 120)


def _has_no_values(values: dict[str, str | None]) -> bool:
    """A card whose queries fail is shown with health OK and zeros: no power, no heat and no memory."""
    measured = [text or "" for name, text in values.items() if "(" in name and not name.startswith("Hugepages")]
    return bool(measured) and not any(re.search(r"[1-9]", text) for text in measured)
