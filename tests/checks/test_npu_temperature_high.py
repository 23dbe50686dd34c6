"""What npu-temperature-high finds."""

from __future__ import annotations

from tests.checks.devices import fleet, of, skipped, state, table

look = of("npu_temperature_high")


def heats(*values: int) -> object:
    return table(*(state(n, temperature=heat) for n, heat in enumerate(values)))


def test_npus_alike() -> None:
    assert look(fleet(heats(40, 44), heats(50, 58))) == []
    assert look(fleet(heats(78, 80), heats(76, 79))) == []  # all are at work


def test_one_that_is_far_hotter() -> None:
    (finding,) = look(fleet(heats(40, 44), heats(45, 84)))
    assert str(finding) == "NPU 1 is at 84 C; the median of 4 NPUs is 44 C"
    assert finding.hosts == ("b",)


def test_a_single_npu() -> None:
    assert "single" in skipped(look, fleet(heats(90)))
