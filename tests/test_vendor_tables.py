"""The command that writes the tables of faults anew from a copy of the vendor's repository."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from doctor.engine.toml_compat import loads
from doctor.facts.kernel_faults import fault_rows
from tests import vendor_tables
from tests.kernel_formats import kernel_formats

LEVELS = {"NotHandleFaultCodes": ["81B58004", "80E01805"], "SeparateNPUCodes": ["8F180200"]}
SWITCH = {"ResetFaultCodes": [], "SeparateFaultCodes": ["[0x08520003,na,npu,na]"]}


def commit(folder: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return str(folder)


def test_the_difference_is_shown_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"faultCode.json": json.dumps(LEVELS), "SwitchFaultCode.json": json.dumps(SWITCH)}
    vendor = commit(tmp_path / "vendor", {f"{vendor_tables.MIND_CLUSTER}/{name}": text for name, text in files.items()})
    table = tmp_path / "table.toml"
    monkeypatch.setitem(vendor_tables.TABLES, "mind-cluster", (table, vendor_tables.npu_fault_codes))  # type: ignore[attr-defined]
    assert vendor_tables.main(["mind-cluster", vendor]) == 1
    assert '+    "80E01805", "81B58004"' in capsys.readouterr().out
    assert not table.exists()
    assert vendor_tables.main(["mind-cluster", vendor, "--write"]) == 0
    assert vendor_tables.main(["mind-cluster", vendor]) == 0
    written = loads(table.read_text())
    assert written["npu"] == {"NotHandle": ["80E01805", "81B58004"], "SeparateNPU": ["8F180200"]}
    assert written["switch"] == {"Reset": [], "Separate": ["[0x08520003,na,npu,na]"]}


MATRIX = """## CANN与Ascend HDK版本兼容
<table><tr><td rowspan="2">CANN</td><td colspan="3">驱动版本(Ascend HDK)</td></tr>
<tr><td>25.0.X</td><td>25.5.X</td><td>26.0.RC1/25.7.RC1</td></tr>
<tr><td>9.0.X</td><td>Y</td><td>Y</td><td>Y</td></tr>
<tr><td>9.1.X</td><td>N</td><td>Y</td><td>Y</td></tr></table>
"""
MARKDOWN = "| 25.0.X | 25.5.X | 26.0.RC1/25.7.RC1 |\n|:--|:--|:--|\n| 9.0.X | Y | Y | Y |\n| 9.1.X | N | Y | Y |\n"


@pytest.mark.parametrize("text", [MATRIX, MARKDOWN])
def test_the_matrix_of_cann_and_drivers(tmp_path: Path, text: str) -> None:
    vendor = commit(tmp_path / "vendor", {"9.0.0/release-notes.md": "old", "9.1.0/release-notes.md": text})
    first, second = loads(vendor_tables.cann_driver_matrix(vendor))["matrix"]
    assert first == {"cann": "9.0", "works": ["25.0", "25.5", "25.7", "26.0"], "fails": []}
    assert second == {"cann": "9.1", "works": ["25.5", "25.7", "26.0"], "fails": ["25.0"]}


def test_releases_of_torch_npu(tmp_path: Path) -> None:
    rows = (
        "| 2.10.0.post4 | v2.10.0-26.1.0 | 2.10.0 |  CANN 9.1.0  |\n| 1.11.0.rc2 (beta) | v | 1.11.0 | CANN 6.0.1 |\n"
    )
    vendor = commit(tmp_path / "vendor", {"COMPATIBILITY.en.md": rows})
    written = loads(vendor_tables.torch_npu_releases(vendor))
    assert written["torch_npu"] == {"9.1.0": ["2.10.0.post4"], "6.0.1": ["1.11.0.rc2"]}


DPC = """
	pci_info(pdev, "containment event, status:%#06x source:%#06x\\n", status, source);
	pci_err(pdev, "DPC controller hung, " "port %d\\n", port);
	pci_err(pdev, "no device\\n");
	pci_dbg(pdev, "controller is dead\\n");
"""


def test_formats_of_the_kernel_and_what_a_newer_one_prints(tmp_path: Path) -> None:
    makefile = "VERSION = 6\nPATCHLEVEL = 99\nSUBLEVEL = 3\nEXTRAVERSION =\n"
    linux = commit(tmp_path / "linux", {"Makefile": makefile, "drivers/pci/pcie/dpc.c": DPC})
    head, columns, *rows = kernel_formats(linux).splitlines()
    assert head.startswith("# Linux 6.99.3. ") and columns == "row\tlevel\tfile\tformat"
    cells = [row.split("\t") for row in rows]
    source = "drivers/pci/pcie/dpc.c"
    assert ["pcie-containment", "6", source, "containment event, status:%#06x source:%#06x"] in cells
    assert [row for row in cells if row[0] == "(none)"] == [["(none)", "3", source, "DPC controller hung, port %d"]]
    assert any(row[:3] == ["nmi", "-", "-"] for row in cells)


def test_each_row_of_linux_stands_in_the_recorded_formats() -> None:
    """A new row is looked up in a copy of Linux: `python -m tests.vendor_tables linux PATH --write`."""
    recorded = {line.partition("\t")[0] for line in vendor_tables.KERNEL_FORMATS.read_text().splitlines()}
    rows = {name for name, row in fault_rows().items() if not row.unlisted and "github.com" not in row.source}
    assert not rows - recorded


@pytest.mark.parametrize("path", [vendor_tables.NPU_CODES, vendor_tables.XIDS, vendor_tables.TORCH_NPU_TABLE])
def test_a_table_names_its_source_and_commit(path: Path) -> None:
    head = " ".join(line.lstrip("# ") for line in path.read_text().splitlines()[:8] if line.startswith("#"))
    assert "github.com/" in head and " commit " in head
    assert loads(path.read_text())
