"""What npu-unhealthy finds."""

from __future__ import annotations

import pytest

from tests.checks.devices import of, state, table

look = of("npu_unhealthy")


def test_healthy_npus() -> None:
    assert look(table(state(0), state(1))) == []


@pytest.mark.parametrize("health", ["Warning", "Alarm", "Critical", "UNKNOWN"])
def test_any_other_word_is_named_with_its_npu(health: str) -> None:
    (found,) = look(table(state(0), state(3, npu=1, chip=1, health=health)))
    assert str(found) == f"NPU 3 reports health {health}; expected OK"
    assert (found.values["npu"], found.values["card"], found.values["chip"]) == (3, 1, 1)
