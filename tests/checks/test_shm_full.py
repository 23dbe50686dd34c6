import pytest

from doctor.engine.quantities import GIB, MIB
from tests.checks.npus import npus
from tests.checks.run_check import messages, run_check
from tests.checks.shm import shm


@pytest.mark.parametrize(("size", "free"), [(GIB, GIB), (GIB, GIB // 2), (500 * GIB, 40 * GIB), (0, 0)])
def test_room_is_well(size: int, free: int) -> None:
    """40 GiB are less than a tenth of 500 GiB, and more than any job here needs."""
    assert messages(run_check("shm-full", {"a": [shm(size, free)]})) == []


def test_no_room() -> None:
    outcome = run_check("shm-full", {"a": [shm(8 * GIB, 20 * MIB), npus(8)]})
    assert messages(outcome) == [("a", "20 MiB of 8 GiB are free in /dev/shm; expected at least 819 MiB")]
    assert messages(run_check("shm-full", {"a": [shm(8 * GIB, 0)]}))
