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


def test_many_pages_out_of_use_beside_cards_with_few() -> None:
    """64 isolated pages and a count of 0: the errors were before the last reset."""
    cards = {card: MemoryErrors(0, 0) for card in range(7)}
    (finding,) = look(NpuMemoryErrors(by_card={**cards, 7: MemoryErrors(0, 64)}))
    assert str(finding) == "NPU card 7 has taken 64 bad memory pages out of use; the median of the host's cards is 0"
    assert look(NpuMemoryErrors(by_card={**cards, 7: MemoryErrors(0, 15)})) == []
    assert look(NpuMemoryErrors(by_card={card: MemoryErrors(0, 40) for card in range(8)})) == []
    assert look(NpuMemoryErrors(by_card={0: MemoryErrors(0, 64)})) == []
