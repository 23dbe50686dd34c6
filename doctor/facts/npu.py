"""What NPUs a host has: on the PCI bus, as device files, and in the lists of npu-smi."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from doctor.engine.fact import Absent, DeviceList, Fact, Output, ProbeAnswer, ProbeArguments, Unreadable, ask, run
from doctor.engine.texts import filled
from doctor.facts.npu_smi import (
    StartFailure,
    find_start_failure,
    labelled_values,
    per_card_probe,
    read_cards,
    read_npu_smi_text,
    row_excerpt,
    strip_escapes,
)
from doctor.facts.reported_value import reported_count
from doctor.remote.runtime.reading import find_tool, matching_paths, read_text

Family = Literal["A1", "A2", "A3", "A5", "inference"]

FAMILY_OF_PCI: dict[str, Family] = {
    "d801": "A1",
    "d802": "A2",
    "d803": "A3",
    "d806": "A5",
    "d100": "inference",
    "d500": "inference",
}
"""PCI device ids of vendor 19e5, from the public source of the driver."""

_PACKAGES: dict[Family, str] = {"A1": "910", "A2": "910b", "A3": "A3", "A5": "950"}
"""In the names of driver and firmware packages: ``Ascend-hdk-910b-npu-driver_25.5.2_linux-aarch64.run``."""

TOTAL_LABELS = ("Total Count", "Card Count")
"""Of ``npu-smi info -l``; a single PCIe card has neither."""
FIRST_SLOT = 100
"""No server numbers so many cards one after the other: such a number is a PCIe card's slot."""


def detect_npus(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: NPUs on the PCI bus, their files, the driver's tools, and version files newer than the boot."""
    base, library = "/usr/local/Ascend/", "/usr/local/Ascend/driver/lib64"
    places = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/local/bin:/usr/local/dcmi:" + base + "driver/tools"
    tools = {tool: find_tool(tool, places) for tool in ("npu-smi", "hccn_tool")}
    vendors = matching_paths("/sys/bus/pci/devices/*/vendor")
    folders = [os.path.dirname(path) for path in vendors if read_text(path).strip().lower() == "0x19e5"]
    ids = {os.path.basename(folder): read_text(folder + "/device").strip().lower()[2:] for folder in folders}
    pci = {slot: pci_id for slot, pci_id in ids.items() if pci_id.startswith("d8") or pci_id in ("d100", "d500")}
    boot = [line.split()[1] for line in read_text("/proc/stat", 1 << 22).splitlines() if line.startswith("btime ")]
    since = int(boot[0]) + 60 if boot and boot[0].isdigit() else None
    packages = [base + part + "/version.info" for part in ("driver", "firmware")]
    chips = None
    if tools["npu-smi"] and not pci:
        import subprocess

        paths = [os.environ.get("LD_LIBRARY_PATH", ""), library, library + "/driver", library + "/common"]
        environ = dict(os.environ, LC_ALL="C", LD_LIBRARY_PATH=":".join(path for path in paths if path))
        command = [tools["npu-smi"], "info", "-m"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ)
        chips = {"out": done.stdout.decode("utf-8", "replace")[:65536], "code": done.returncode}
    files = matching_paths("/dev/davinci[0-9]*") + matching_paths("/dev/davinci_manager")
    return {
        "pci": pci,
        "files": files,
        "refused": [path for path in files if not os.access(path, os.R_OK | os.W_OK)],
        "tools": sorted(tool for tool in tools if tools[tool]),
        "chips": chips,
        "newer": [path for path in packages if since and os.path.exists(path) and os.stat(path).st_ctime > since],
    }


class _NpuDetection(msgspec.Struct, frozen=True):
    """What `detect_npus` returns."""

    pci: dict[str, str]
    files: list[str]
    refused: list[str]
    tools: list[str]
    chips: Output | None
    newer: list[str]


def _read_detection(answer: ProbeAnswer) -> _NpuDetection:
    detection = msgspec.convert(answer.json(), _NpuDetection)
    if not (detection.pci or detection.files or "npu-smi" in detection.tools):
        raise Absent("the host has no NPU")
    return detection


class NpuProduct(Fact, frozen=True):
    """The hardware family of the host's NPUs: by PCI id, else by the chip names of npu-smi, never by a bare name.

    Raw output, as JSON::

        {"pci": {"0000:c1:00.0": "d802"}, "files": [], "refused": [], "tools": [], "chips": null, "newer": []}
    """

    probe = ask(detect_npus, root=True, timeout=20)

    family: Family
    evidence: str

    @property
    def package(self) -> str:
        """The word for the family in the names of its driver and firmware packages; empty: they have several."""
        return _PACKAGES.get(self.family, "")

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NpuProduct:
        detection = _read_detection(answer)
        if detection.pci:
            ids = sorted(set(detection.pci.values()))
            families = {FAMILY_OF_PCI.get(pci_id) for pci_id in ids}
            evidence = f"PCI id {', '.join(f'19e5:{pci_id}' for pci_id in ids)}"
        elif detection.chips is not None:
            chips = _parse_chips(detection.chips)
            families = {family_of_chip(chip.name, chip.has_phy_id) for chip in chips}
            evidence = f"chip name {', '.join(sorted({chip.name for chip in chips}))}"
        else:
            raise Unreadable("the family of the NPUs is unknown: neither the PCI bus nor npu-smi shows them")
        if len(families) != 1:
            raise Unreadable(filled("the NPUs are of several families: {0}", evidence))
        (family,) = families
        if family is None:
            raise Unreadable(filled("the family of the NPUs is unknown: {0}", evidence))
        return cls(family=family, evidence=evidence)


class NpuInventory(DeviceList, frozen=True):
    """How many NPUs there are on the PCI bus and as device files, and which of the vendor's tools are installed.

    Raw output, as JSON::

        {"pci": {"0000:c1:00.0": "d802"}, "files": ["/dev/davinci0", "/dev/davinci_manager"],
         "refused": [], "tools": ["npu-smi"], "chips": null, "newer": []}
    """

    probe = ask(detect_npus, root=True, timeout=20)

    devices: tuple[int, ...]
    """Physical ids, from ``/dev/davinci0`` and on."""
    pci_count: int
    """NPUs on the PCI bus; a die of A3 is one."""
    manager: bool
    """``/dev/davinci_manager`` exists: the driver's module is loaded."""
    denied_files: tuple[str, ...]
    """Device files that the user who runs npu-smi may not open."""
    tools: tuple[str, ...]
    """Which of npu-smi and hccn_tool are installed."""
    newer_than_boot: tuple[str, ...]
    """Version files of driver and firmware that were written after the host's last start."""
    inference: bool = False
    """All NPUs are inference products (310, 310B, 310P), which have no network port."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NpuInventory:
        detection = _read_detection(answer)
        numbers = sorted(int(path[len("/dev/davinci") :]) for path in detection.files if path[12:].isdecimal())
        return cls(
            devices=tuple(numbers),
            pci_count=len(detection.pci),
            manager="/dev/davinci_manager" in detection.files,
            denied_files=tuple(sorted(detection.refused)),
            tools=tuple(detection.tools),
            newer_than_boot=tuple(detection.newer),
            inference=_families(detection) == {"inference"},
        )

    def unanswered(self, outputs: Mapping[str, Output]) -> tuple[str, ...]:
        """NPUs without output from a tool that is run once for each device file."""
        if "" in outputs:  # one for all
            return ()
        return tuple(f"NPU {device}" for device in self.devices if str(device) not in outputs)


def _families(detection: _NpuDetection) -> set[Family | None]:
    """By PCI id; of a board whose NPU is no PCI device (310B), by npu-smi's chip names. Empty where neither tells."""
    if detection.pci or detection.chips is None:
        return {FAMILY_OF_PCI.get(pci_id) for pci_id in detection.pci.values()}
    try:
        return {family_of_chip(chip.name, chip.has_phy_id) for chip in _parse_chips(detection.chips)}
    except Unreadable:
        return set()


def family_of_chip(name: str, has_phy_id: bool) -> Family | None:
    """The family of a chip name of npu-smi; a bare ``910B`` is the first generation, 910B1 and on the second."""
    bare = re.sub(r"^Ascend\s*", "", name)
    if re.fullmatch(r"910(A|B|ProA|ProB|PremiumA)", bare):
        return "A1"
    if re.fullmatch(r"910B\d\S*", bare):
        return "A2"
    if has_phy_id and re.fullmatch(r"910(_93\d\d)?", bare):
        return "A3"
    if re.match(r"950", bare):
        return "A5"
    return "inference" if re.match(r"310", bare) else None


class NpuStart(Fact, frozen=True):
    """Whether npu-smi starts: it does when the driver answers and the user has the right to it.

    Raw output, from npu-smi::

        Total Count                    : 8

        NPU ID                         : 0
    """

    probe = run("npu-smi info -l", requires="npu-smi", root=True, lane="npu-smi", timeout=12)

    failure: StartFailure | None
    cards: int
    """Cards, not devices; 0 when it did not start."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NpuStart:
        output = answer[""]
        failure = find_start_failure(output)
        if failure:
            return cls(failure=failure, cards=0)
        text = read_npu_smi_text(output)
        if "There is no NPU card on this server" in text:
            return cls(failure=None, cards=0)
        values = labelled_values(text)
        cards = sum(label == "NPU ID" for label, _ in values)
        totals = [
            int(number) for label, number in values if label in TOTAL_LABELS and re.fullmatch("[0-9]{1,6}", number)
        ]
        if not totals and not cards:
            raise Unreadable("npu-smi info -l: no total count")
        return cls(failure=None, cards=totals[0] if totals else cards)


class Chip(msgspec.Struct, frozen=True):
    """One row of ``npu-smi info -m``."""

    npu: int
    """The card."""
    chip: int
    device: int
    """Physical id, the number of ``/dev/davinci``."""
    name: str
    has_phy_id: bool = False
    logic: int | None = None
    """The number that the driver counts; None where the table shows none."""


class NpuChips(DeviceList, frozen=True):
    """Every NPU chip that npu-smi knows, with its name (``npu-smi info -m``); none when it knows none.

    Raw output, from npu-smi::

        NPU ID     Chip ID     Chip Logic ID     Chip Name
        0          0           0                 Ascend 910B3
    """

    probe = run("npu-smi info -m", requires="npu-smi", root=True, lane="npu-smi", timeout=12)

    chips: tuple[Chip, ...]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NpuChips:
        chips, bad_rows = _chips_and_bad_rows(answer[""])
        if bad_rows and not chips:
            raise Unreadable(f"npu-smi info -m: {bad_rows[0]}")
        return cls(chips=chips, unread={"a row of npu-smi info -m": bad_rows[0]} if bad_rows else {})

    def unanswered(self, outputs: Mapping[str, Output]) -> tuple[str, ...]:
        """Cards, or chips, without a block in the output of a tool that is run once for each, or a row of a table."""
        text = outputs[""].out if "" in outputs else ""
        if rows := len(_TABLE_ROW.findall(text)):
            return (filled("{0} more NPUs", len(self.chips) - rows),) if rows < len(self.chips) else ()
        blocks = re.findall(r"(?m)^-- ([0-9]{1,9})(?: ([0-9]{1,4}))? --[ \t\r]*$", text)
        if any(chip for _, chip in blocks):
            chips = {(int(card), int(chip or 0)) for card, chip in blocks}
            lacking = [chip for chip in self.chips if (chip.npu, chip.chip) not in chips]
            return tuple(filled("NPU card {0} chip {1}", chip.npu, chip.chip) for chip in lacking)
        cards = {int(card) for card, _ in blocks}
        return tuple(filled("NPU card {0}", card) for card in sorted({chip.npu for chip in self.chips} - cards))


_TABLE_ROW = re.compile(
    r"^[ \t>]*(?:\|[^|\n]{0,60}){1,2}\|[ \t]*(?:[0-9A-Fa-f]{2,8}:[0-9A-Fa-f:.]{4,12}|NA)[ \t]*\|", re.M
)
"""The second row of a chip in the table of ``npu-smi info``, which has its Bus-Id."""


def card_and_chip(chips: NpuChips | None, device: int) -> dict[str, Any]:
    """The numbers by which npu-smi knows a device, as values of a finding; None: not known."""
    numbers = ((chip.npu, chip.chip) for chip in (chips.chips if chips else ()) if chip.device == device)
    return dict(zip(("card", "chip"), next(numbers, (None, None)), strict=True))


def _parse_chips(output: Output) -> tuple[Chip, ...]:
    """Raises: Unreadable where there is no table, or a row lacks what the header names."""
    chips, bad_rows = _chips_and_bad_rows(output)
    if bad_rows:
        raise Unreadable(f"npu-smi info -m: {bad_rows[0]}")
    return chips


def _chips_and_bad_rows(output: Output) -> tuple[tuple[Chip, ...], list[str]]:
    text = strip_escapes(read_npu_smi_text(output).replace("\t", "  "))
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.strip()]
    start = next((number for number, cells in enumerate(lines) if "NPU ID" in cells and "Chip Name" in cells), None)
    if start is None:
        raise Unreadable("npu-smi info -m: no table")
    header, rows, bad_rows = lines[start], [], []
    for cells in lines[start + 1 :]:
        row = dict(zip(header, cells, strict=False))
        numbers = [row.get(name, "0") for name in ("NPU ID", "Chip ID", "Chip Logic ID", "Chip Phy-ID")]
        if "Mcu" in cells or "-" in numbers:
            continue  # a controller, which has no number as a device
        if len(cells) != len(header) or not all(re.fullmatch(r"[0-9]{1,9}", number) for number in numbers):
            bad_rows.append(row_excerpt(cells))
        elif cells[0] != "NPU ID":
            rows.append(row)
    # Logic ids are counted anew when a card drops out; the card's own number is not, and where a card is one chip
    # it is the device's. Cards of two chips without a physical id have no better one than the logic id; PCIe cards
    # are numbered by slot.
    by_slot = any(int(row["NPU ID"]) >= FIRST_SLOT or re.search(r"\b310", row["Chip Name"]) for row in rows)
    single = not any(row.get("Chip ID", "0") != "0" for row in rows) and not by_slot
    key = "Chip Phy-ID" if "Chip Phy-ID" in header else "NPU ID" if single else "Chip Logic ID"
    if key not in header:
        key = "NPU ID"
    chips = tuple(
        Chip(
            npu=int(row["NPU ID"]),
            chip=int(row.get("Chip ID", "0")),
            device=int(row[key]),
            name=row["Chip Name"],
            has_phy_id=key == "Chip Phy-ID",
            logic=int(row["Chip Logic ID"]) if "Chip Logic ID" in row else None,
        )
        for row in rows
    )
    return chips, bad_rows


class MemoryErrors(msgspec.Struct, frozen=True):
    """Errors of an NPU card's HBM, summed over its chips."""

    double_bit: int
    """That could not be corrected."""
    isolated: int
    """Pages taken out of use for such errors."""
    pending: int = 0
    """Pages that will be taken out of use at the next reset."""


class NpuMemoryErrors(Fact, frozen=True):
    """The memory errors that each NPU card has counted (``npu-smi info -t ecc``).

    Raw output, from npu-smi::

        -- 0 --
        HBM Single Bit Error Count                : 4
        HBM Double Bit Error Count                : 1
        HBM Single Bit Isolated Pages Count       : 0
        HBM Double Bit Isolated Pages Count       : 2
        -- exit 0 --
    """

    probe = per_card_probe("ecc", NpuChips)

    by_card: dict[int, MemoryErrors]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NpuMemoryErrors:
        by_card, unread = read_cards(answer, _parse_memory_errors)
        return cls(by_card=by_card, unread=unread)


def _parse_memory_errors(text: str) -> MemoryErrors:
    """The counts of all chips of a card; 310 and 310P have DDR in place of HBM."""
    counts: dict[str, int] = {}
    for label, value in labelled_values(text):
        name = label.lower().replace("-bit", " bit").removeprefix("hbm ").removeprefix("ddr ")
        count = reported_count(label, value) if name.endswith(("error count", "pages count", "page count")) else None
        if count is not None:
            counts[name] = counts.get(name, 0) + count
    if "double bit error count" not in counts:
        raise Unreadable("npu-smi info -t ecc: no count of double-bit errors")
    pending = counts.get("double bit next-isolated pages count", 0) + counts.get("pending retire page count", 0)
    isolated = counts.get("double bit isolated pages count", counts.get("isolated page count", 0))
    return MemoryErrors(counts["double bit error count"], isolated, pending)
