import pytest

from doctor.engine.quantities import GIB, MIB
from doctor.facts.disk import DiskSpace, FileSystem
from doctor.job import LaunchConfig
from tests.checks.npus import npus
from tests.checks.run_check import messages, run_check


def disk(size: int, free: int, files: int = 10**6, files_free: int = 10**6, read_only: bool = False) -> DiskSpace:
    return DiskSpace(file_systems=(FileSystem("/tmp", size, free, files, files_free, read_only),))


@pytest.mark.parametrize(
    "room",
    [
        disk(1000 * GIB, 2 * GIB),
        disk(64 * MIB, 32 * MIB),
        disk(GIB, GIB, files=0, files_free=0),
        disk(GIB, 0, read_only=True),
        disk(GIB, GIB, files=1000, files_free=500),
    ],
    ids=["large and nearly full", "small by design", "without a count of files", "read-only", "few files by design"],
)
def test_room_is_well(room: DiskSpace) -> None:
    assert messages(run_check("disk-full", {"a": [room]})) == []


def test_no_room() -> None:
    outcome = run_check("disk-full", {"a": [disk(1000 * GIB, 200 * MIB)]})
    assert messages(outcome) == [("a", "/tmp: 200 MiB of 1000 GiB are free; expected at least 1 GiB")]
    assert messages(run_check("disk-full", {"a": [disk(64 * MIB, 0)]}))
    assert outcome.found_severity.value == "error"
    log = DiskSpace(file_systems=(FileSystem("/var/log", GIB, 0, 1000, 0, False),))
    assert run_check("disk-full", {"a": [log]}).found_severity.value == "warning"


def test_no_more_files() -> None:
    outcome = run_check("disk-full", {"a": [disk(1000 * GIB, 900 * GIB, files_free=3)]})
    assert messages(outcome) == [("a", "/tmp: 3 of 1000000 inodes are free; expected at least 10000")]


def test_a_small_file_system_without_a_file_left_needs_one() -> None:
    (finding,) = run_check("disk-full", {"a": [disk(GIB, GIB, files=60, files_free=0)]}).findings
    assert (finding.values["observed"], finding.values["expected"]) == (0, 1)


def test_the_remedy_is_that_of_the_fault() -> None:
    rooms = [disk(1000 * GIB, 200 * MIB), disk(1000 * GIB, 900 * GIB, files_free=3)]
    for room, command in zip(rooms, ("du -axh /tmp", "du -x --inodes -d1 /tmp"), strict=True):
        assert f"`{command}" in run_check("disk-full", {"a": [room]}).findings[0].values["remedy"]


@pytest.mark.parametrize(("root_free", "moves"), [(500 * GIB, True), (0, False)])
def test_files_of_the_job_move_only_where_there_is_room(root_free: int, moves: bool) -> None:
    rooms = (FileSystem("/", 1000 * GIB, root_free, 10**6, 10**6, False), *disk(1000 * GIB, 0).file_systems)
    findings = run_check("disk-full", {"a": [DiskSpace(file_systems=rooms)]}).findings
    assert all(("export TMPDIR=/var/tmp" in finding.values["remedy"]) == moves for finding in findings) and findings


@pytest.mark.parametrize(
    ("launchers", "stand_in", "devices", "severity"),
    [
        (("torchrun",), "/var/tmp", 0, "warning"),
        (("torchrun",), "", 0, "error"),
        (("torchrun",), "/var/tmp", 8, "error"),
        (("mpirun", "torchrun"), "/var/tmp", 0, "error"),
        (("mpirun",), "/var/tmp", 0, "error"),
        ((), "/var/tmp", 0, "error"),
    ],
)
def test_a_full_tmp_that_python_has_another_folder_for(
    launchers: tuple[str, ...], stand_in: str, devices: int, severity: str
) -> None:
    """Measured with torchrun and loader workers: it runs beside a /tmp that is full, or read-only."""
    launch = LaunchConfig(launchers=launchers)
    for check, row in (
        ("disk-full", FileSystem("/tmp", GIB, 0, 0, 0, False, stand_in=stand_in)),
        ("folder-not-writable", FileSystem("/tmp", GIB, GIB, 0, 0, True, stand_in=stand_in, refused=("/tmp",))),
        ("folder-not-writable", FileSystem("/", GIB, GIB, 0, 0, True, stand_in=stand_in, refused=("/tmp",))),
    ):
        outcome = run_check(
            check, {"a": [DiskSpace(file_systems=(row,)), *([npus(devices)] if devices else [])]}, launch
        )
        assert outcome.found_severity.value == severity, check


def test_a_full_root_is_an_error_although_another_folder_takes_temporary_files() -> None:
    root = DiskSpace(file_systems=(FileSystem("/", GIB, 0, 0, 0, False, stand_in="/var/tmp"),))
    assert run_check("disk-full", {"a": [root]}, LaunchConfig(launchers=("torchrun",))).found_severity.value == "error"
