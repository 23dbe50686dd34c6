import pytest

from doctor.facts.disk import DiskSpace, FileSystem
from doctor.facts.memory import GIB, MIB
from tests.checks.containers import container
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


def test_a_folder_of_the_job_that_is_read_only() -> None:
    home = DiskSpace(file_systems=(FileSystem("/", GIB, GIB, 0, 0, True, "/home/me"),))
    outcome = run_check("disk-full", {"a": [home]})
    assert messages(outcome) == [("a", "/home/me is on a read-only file system; expected a writable one")]
    assert outcome.found_severity.value == "error"
    assert run_check("disk-full", {"a": [home, container()]}).found_severity.value == "warning"


@pytest.mark.parametrize(
    ("path", "folder", "severity"),
    [("/tmp", "/tmp", "error"), ("/dev/shm", "/dev/shm", "error"), ("/home", "/home/me", "error"),
     ("/", "/tmp", "error"), ("/", "/root", "warning"), ("/var/log", "/var/log", "warning")],
)  # fmt: skip
def test_a_folder_that_cannot_be_written(path: str, folder: str, severity: str) -> None:
    """Hosts without a disk of their own have a / that is read-only by design, and a /tmp that is not."""
    room = FileSystem(path, GIB, 0, 0, 0, True, refused=(folder,))
    outcome = run_check("disk-full", {"a": [DiskSpace(file_systems=(room,))]})
    assert messages(outcome) == [("a", f"{folder} is on a read-only file system; expected a writable one")]
    assert outcome.found_severity.value == severity
    within = run_check("disk-full", {"a": [DiskSpace(file_systems=(room,)), container()]})
    assert within.found_severity.value == "warning"


def test_a_folder_that_belongs_to_others() -> None:
    rooms = (
        FileSystem("/", GIB, GIB, 0, 0, False, refused=("/tmp",)),
        FileSystem("/h", GIB, GIB, 0, 0, False, refused=("/h/me",)),
    )
    (tmp, home) = run_check("disk-full", {"a": [DiskSpace(file_systems=rooms)]}).findings
    assert str(tmp).startswith("/tmp: this user may not write there") and "chmod 1777 /tmp" in tmp.values["remedy"]
    assert str(home).startswith("/h/me: this user may not write there") and "chmod" not in home.values["remedy"]


def test_a_temporary_folder_of_the_job_that_is_not_there() -> None:
    room = DiskSpace(file_systems=(FileSystem("/", GIB, GIB, 0, 0, False, missing_folder="/scratch/7"),))
    outcome = run_check("disk-full", {"a": [room]})
    text = "/scratch/7, the job's TMPDIR, does not exist; expected this folder on every host"
    assert messages(outcome) == [("a", text)]
    assert outcome.found_severity.value == "warning"


def test_no_room() -> None:
    outcome = run_check("disk-full", {"a": [disk(1000 * GIB, 200 * MIB)]})
    assert messages(outcome) == [("a", "/tmp: 200 MiB of 1000 GiB are free; expected at least 1 GiB")]
    assert messages(run_check("disk-full", {"a": [disk(64 * MIB, 0)]}))


def test_no_more_files() -> None:
    outcome = run_check("disk-full", {"a": [disk(1000 * GIB, 900 * GIB, files_free=3)]})
    assert messages(outcome) == [("a", "/tmp: 3 of 1000000 inodes are free; expected at least 10000")]


def test_the_remedy_is_that_of_the_fault() -> None:
    """Words of a host are one word of a shell, whatever they hold."""
    read_only = DiskSpace(file_systems=(FileSystem("/", GIB, GIB, 0, 0, True, "/a b;c"),))
    disk_space = DiskSpace(file_systems=(FileSystem("/", GIB, GIB, 0, 0, False, missing_folder="/a b;c"),))
    rooms = [read_only, disk_space, disk(1000 * GIB, 200 * MIB), disk(1000 * GIB, 900 * GIB, files_free=3)]
    commands = ("findmnt -T '/a b;c'", "mkdir -p '/a b;c'", "du -xh -d1 /tmp", "du -x --inodes -d1 /tmp")
    for room, command in zip(rooms, commands, strict=True):
        assert f"`{command}" in run_check("disk-full", {"a": [room]}).findings[0].values["remedy"]
