import msgspec
import pytest

from doctor.engine.quantities import GIB, MIB
from doctor.facts.job_paths import JobProgram
from tests.checks.npus import npus
from tests.checks.run_check import advice, messages, run_check
from tests.checks.shm import shm


@pytest.mark.parametrize(("size", "free"), [(GIB, GIB), (GIB, GIB // 2), (500 * GIB, 40 * GIB), (0, 0)])
def test_room_is_well(size: int, free: int) -> None:
    """40 GiB are less than a tenth of 500 GiB, and more than any job here needs."""
    assert messages(run_check("shm-full", {"a": [shm(size, free)]})) == []


def test_no_room() -> None:
    outcome = run_check("shm-full", {"a": [shm(8 * GIB, 20 * MIB), npus(8)]})
    assert messages(outcome) == [("a", "20 MiB of 8 GiB are free in /dev/shm; expected at least 819 MiB")]
    assert messages(run_check("shm-full", {"a": [shm(8 * GIB, 0)]}))


@pytest.mark.parametrize(("free", "found"), [(0, True), (63, True), (64, False), (-1, False)])
def test_no_room_for_files(free: int, found: bool) -> None:
    few = msgspec.structs.replace(shm(8 * GIB, 8 * GIB), files_free=free)
    workers = JobProgram("t.py", "there", workers=["=2"])
    for program, severity in ((workers, "error"), (JobProgram("t.py", "there"), "warning")):
        outcome = run_check("shm-full", {"a": [few, program]})
        text = f"/dev/shm has room for {free} more files; expected at least 64"
        assert messages(outcome) == ([("a", text)] if found else [])
        assert not found or outcome.found_severity.value == severity
        assert not found or "`mount -o remount,nr_inodes=0 /dev/shm`" in advice("shm-full", outcome)
        assert not found or "du -ah" not in advice("shm-full", outcome)
