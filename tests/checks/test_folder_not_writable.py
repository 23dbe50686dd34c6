import pytest

from doctor.engine.fact import Fact
from doctor.engine.quantities import GIB
from doctor.facts.disk import DiskSpace, FileSystem
from doctor.facts.gpu import GpuCards
from doctor.facts.job_paths import JobProgram
from doctor.job import LaunchConfig
from tests.checks.containers import container
from tests.checks.run_check import messages, run_check


def test_folders_that_can_be_written() -> None:
    room = FileSystem("/", GIB, 0, 0, 0, False, job_folder="/home/me")
    assert messages(run_check("folder-not-writable", {"a": [DiskSpace(file_systems=(room,))]})) == []


def test_a_folder_of_the_job_that_is_read_only() -> None:
    home = DiskSpace(file_systems=(FileSystem("/", GIB, GIB, 0, 0, True, "/home/me"),))
    outcome = run_check("folder-not-writable", {"a": [home]})
    assert messages(outcome) == [("a", "/home/me is on a read-only file system; expected a writable one")]
    assert outcome.found_severity.value == "warning"


def test_a_folder_that_most_other_hosts_can_write_to() -> None:
    """By design it is read-only on all hosts; on one of them it is a fault of that host."""
    bad, good = (DiskSpace(file_systems=(FileSystem("/", GIB, GIB, 0, 0, bad, "/home/me"),)) for bad in (True, False))
    outcome = run_check("folder-not-writable", {"a": [bad], "b": [good], "c": [good]})
    assert ([host for host, _ in messages(outcome)], outcome.found_severity.value) == (["a"], "error")
    assert run_check("folder-not-writable", {"a": [bad], "b": [bad], "c": [good]}).found_severity.value == "warning"
    in_one = {"a": [bad, container()], "b": [good], "c": [good]}
    assert run_check("folder-not-writable", in_one).found_severity.value == "warning"


@pytest.mark.parametrize(
    ("path", "folder", "severity"),
    [("/tmp", "/tmp", "error"), ("/dev/shm", "/dev/shm", "warning"), ("/home", "/home/me", "warning"),
     ("/", "/tmp", "error"), ("/", "/root", "warning"), ("/var/log", "/var/log", "warning")],
)  # fmt: skip
def test_a_folder_that_cannot_be_written(path: str, folder: str, severity: str) -> None:
    """Hosts without a disk of their own have a / that is read-only by design, and a /tmp that is not."""
    room = FileSystem(path, GIB, 0, 0, 0, True, refused=(folder,))
    outcome = run_check("folder-not-writable", {"a": [DiskSpace(file_systems=(room,))]})
    assert messages(outcome) == [("a", f"{folder} is on a read-only file system; expected a writable one")]
    assert outcome.found_severity.value == severity
    within = run_check("folder-not-writable", {"a": [DiskSpace(file_systems=(room,)), container()]})
    assert within.found_severity.value == "warning"


@pytest.mark.parametrize(
    ("user", "world"),
    [(JobProgram("t.py", "there", workers=["=2"]), None), (GpuCards(pci=2, driver="", tool=False), 4)],
    ids=str,
)
def test_shared_memory_that_the_job_uses_and_cannot_write_to(user: Fact, world: int | None) -> None:
    """Loader workers, or NCCL between hosts."""
    disks = DiskSpace(file_systems=(FileSystem("/dev/shm", GIB, 0, 0, 0, True, refused=("/dev/shm",)),))
    outcome = run_check("folder-not-writable", {"a": [disks, user], "b": [disks]}, LaunchConfig(world_size=world))
    assert [(finding.hosts, finding.is_warning) for finding in outcome.findings] == [(("a",), False), (("b",), True)]


def test_a_folder_that_belongs_to_others() -> None:
    rooms = (
        FileSystem("/", GIB, GIB, 0, 0, False, refused=("/tmp",)),
        FileSystem("/h", GIB, GIB, 0, 0, False, refused=("/h/me",)),
    )
    (tmp, home) = run_check("folder-not-writable", {"a": [DiskSpace(file_systems=rooms)]}).findings
    assert str(tmp).startswith("/tmp: this user may not write there") and "chmod 1777 /tmp" in tmp.values["remedy"]
    assert str(home).startswith("/h/me: this user may not write there") and "chmod" not in home.values["remedy"]
    assert '`sudo chown "$(id -un)" /h/me`' in home.values["remedy"]


def test_a_temporary_folder_of_the_job_that_is_not_there() -> None:
    room = DiskSpace(file_systems=(FileSystem("/", GIB, GIB, 0, 0, False, missing_folder="/scratch/7"),))
    outcome = run_check("folder-not-writable", {"a": [room]})
    text = "/scratch/7, the job's TMPDIR, is no folder; expected this folder on every host"
    assert messages(outcome) == [("a", text)]
    assert outcome.found_severity.value == "warning"


def test_the_remedy_is_that_of_the_fault() -> None:
    """Words of a host are one word of a shell, whatever they hold."""
    read_only = FileSystem("/", GIB, GIB, 0, 0, True, "/a b;c")
    absent = FileSystem("/", GIB, GIB, 0, 0, False, missing_folder="/a b;c")
    for room, command in ((read_only, "findmnt -T '/a b;c'"), (absent, "mkdir -p -m 1777 '/a b;c'")):
        outcome = run_check("folder-not-writable", {"a": [DiskSpace(file_systems=(room,))]})
        assert f"`{command}" in outcome.findings[0].values["remedy"]
