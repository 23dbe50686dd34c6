"""The table of ``npu-smi info``: health, memory and processes of every NPU chip."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from doctor.engine.fact import Fact, ProbeAnswer, Unreadable, run
from doctor.facts.npu import read_npu_smi_text


class NpuState(msgspec.Struct, frozen=True):
    """One NPU in the table of ``npu-smi info``."""

    npu: int
    chip: int
    device: int
    """Physical id where the table shows one (A3), else the card's number."""
    name: str
    health: str
    """OK, Warning, Alarm, Critical or UNKNOWN."""
    bus: str
    hbm_used: int
    """MB."""
    hbm_total: int
    """MB."""


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

    probe = run("npu-smi info", requires="npu-smi", root=True, lane="npu-smi", timeout=20)

    npus: tuple[NpuState, ...]
    processes: tuple[NpuProcess, ...]
    incomplete_install: bool
    """npu-smi warns that the driver package may not be completely installed."""

    def device_of(self, process: NpuProcess) -> int:
        """The physical id of the NPU that a process is on."""
        for state in self.npus:
            if (state.npu, state.chip) == (process.npu, process.chip):
                return state.device
        return process.npu

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NpuTable:
        text = read_npu_smi_text(answer[""])
        above, separator, below = text.partition("Process id")
        if not separator:
            raise Unreadable("npu-smi info: the list of processes is missing")
        unread: dict[str, str] = {}
        npus = tuple(_parse_states(above, unread))
        if not npus:
            raise Unreadable("npu-smi info: no NPU in the table")
        return cls(
            npus=npus,
            processes=tuple(_parse_processes(below, npus, unread)),
            incomplete_install="may not be completely installed" in text,
            unread=unread,
        )


def _table_rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.strip().startswith("|"):
            yield [cell.strip() for cell in line.strip().strip("|").split("|")]


def _parse_states(text: str, unread: dict[str, str]) -> Iterator[NpuState]:
    """Pairs of lines: card, name, health; then chip, bus, memory."""
    upper: list[str] | None = None
    for cells in _table_rows(text.partition("+===")[2]):
        if len(cells) != 3:
            continue
        if upper is None:
            upper = cells
            continue
        card = re.fullmatch(r"(\d+)\s+(\S.*)", upper[0])
        chip = re.fullmatch(r"(\d+)(?:\s+(\d+))?", cells[0])
        memory = re.findall(r"\b(\d{1,12})\s*/\s*(\d{1,12})\b", cells[2])
        if card and chip and memory and upper[1]:
            device = int(chip[2] or card[1])
            used, total = memory[-1]
            yield NpuState(
                npu=int(card[1]),
                chip=int(chip[1]),
                device=device,
                name=card[2],
                health=upper[1],
                bus=cells[1],
                hbm_used=int(used),
                hbm_total=int(total),
            )
        else:
            unread[f"NPU {upper[0].split(' ')[0]}"] = f"not understood: {' | '.join(upper + cells)[:120]}"
        upper = None


def _parse_processes(text: str, npus: tuple[NpuState, ...], unread: dict[str, str]) -> Iterator[NpuProcess]:
    """Raises: Unreadable when an NPU of the table is neither said to be free nor has a process: the list was cut."""
    covered_npus: set[int] = set()
    for cells in _table_rows(text.partition("+===")[2]):
        free = re.fullmatch(r"No running processes found in NPU (\d+)", cells[0])
        place = re.fullmatch(r"(\d+)(?:\s+(\d+))?", cells[0])
        if free:
            covered_npus.add(int(free[1]))
        elif place and len(cells) == 4 and cells[1].isdecimal() and cells[3].isdecimal():
            covered_npus.add(int(place[1]))
            yield NpuProcess(int(place[1]), int(place[2] or 0), int(cells[1]), cells[2], int(cells[3]))
        else:
            unread["processes"] = f"not understood: {' | '.join(cells)[:120]}"
    silent = sorted({state.npu for state in npus} - covered_npus)
    if silent and not unread:
        raise Unreadable(f"npu-smi info: no process list for NPU {silent[0]}")
