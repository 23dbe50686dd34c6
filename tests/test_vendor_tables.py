"""The command that writes the tables of faults anew from a copy of the vendor's repository."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from doctor.engine.toml_compat import loads
from tests import vendor_tables

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


@pytest.mark.parametrize("path", [vendor_tables.NPU_CODES, vendor_tables.XIDS])
def test_a_table_names_its_source_and_commit(path: Path) -> None:
    head = " ".join(line.lstrip("# ") for line in path.read_text().splitlines()[:8] if line.startswith("#"))
    assert "github.com/" in head and " commit " in head
    assert loads(path.read_text())
