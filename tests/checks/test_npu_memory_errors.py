"""What npu-memory-errors finds."""

from __future__ import annotations

from doctor.facts.npu import MemoryErrors, NpuMemoryErrors
from tests.checks.devices import of

look = of("npu_memory_errors")


def test_no_errors() -> None:
    assert look(NpuMemoryErrors(by_card={0: MemoryErrors(0, 0), 1: MemoryErrors(0, 4)})) == []


def test_errors_are_named_with_their_card() -> None:
    (finding,) = look(NpuMemoryErrors(by_card={0: MemoryErrors(0, 0), 5: MemoryErrors(3, 1)}))
    assert str(finding) == "NPU card 5 has 3 uncorrected memory errors; expected 0"
    assert finding.values["isolated_pages"] == 1
