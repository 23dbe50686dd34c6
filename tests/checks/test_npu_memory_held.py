"""What npu-memory-held finds."""

from __future__ import annotations

from doctor.facts.npu_table import NpuProcess
from tests.checks.devices import of, state, table

look = of("npu_memory_held")


def test_idle_and_used_npus() -> None:
    assert look(table(state(hbm_used=4765, hbm_total=65536), state(1, hbm_used=2922, hbm_total=32768))) == []
    assert look(table(state(hbm_used=60000), processes=(NpuProcess(0, 0, 7, "python", 56000),))) == []
    assert look(table(state(name="310P3", hbm_used=None, hbm_total=None))) == []
    assert look(table(state(hbm_used=60000), process_problem="no list")) == []


def test_memory_that_no_process_holds() -> None:
    (finding,) = look(table(state(0), state(3, hbm_used=61609)))
    assert str(finding) == "NPU 3 has 61609 MB of HBM in use and no process; expected at most 7864 MB"
