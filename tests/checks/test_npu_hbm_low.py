"""What npu-hbm-low finds."""

from __future__ import annotations

from tests.checks.devices import of, state, table, unknown

look = of("npu_hbm_low")


def test_rated_memory() -> None:
    assert look(table(state(name="910B3"), state(1, name="Ascend910"), state(2, name="910B", hbm_total=32768))) == []


def test_less_than_95_percent() -> None:
    (finding,) = look(table(state(0), state(5, hbm_total=61440)))
    assert str(finding) == "NPU 5 has 61440 MB of memory; expected at least 95 % of 65536 MB"


def test_a_type_that_is_not_known_is_compared_with_its_siblings() -> None:
    unknown_type = [state(n, name="910_9382", hbm_total=62432) for n in range(4)]
    assert look(table(*unknown_type)) == []
    assert look(table(state(name="910B4-1", hbm_total=1))) == []
    assert look(table(*unknown_type, state(4, name="910B4-1", hbm_total=32768))) == []
    (finding,) = look(table(*unknown_type[:3], state(3, name="910_9382", hbm_total=31216)))
    assert str(finding) == "NPU 3 has 31216 MB of memory; expected at least 95 % of 62432 MB"


def test_a_rated_card_that_states_no_memory_is_unknown() -> None:
    assert "HBM of NPU 5" in str(unknown(look, table(state(0), state(5, hbm_total=None))))
    assert look(table(state(name="310P3", hbm_total=None))) == []
