"""A process that a file system holds up: path, mount, since when, and who else."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from doctor.analysis.file_waits import FileWait
from doctor.smoke.programs.agent import file_wait as file_waits
from doctor.smoke.programs.agent.file_wait import file_wait, held_up_beside, mount_of
from doctor.watch.attach.inspector.rank_state import look
from doctor.watch.attach.rank_activity import activity
from doctor.watch.attach.rank_report import Look
from tests.watch.attached import Job
from tests.watch.test_attached import attach
from tests.watch.test_odd_ranks import looks, rank

pytestmark = pytest.mark.timeout(300)
WRITE = "import os, sys; os.write(1, b'.'); open(sys.argv[1], 'w').write('x')"


@contextlib.contextmanager
def frozen_mount(folder: Path) -> Iterator[Path]:
    """A real ext4 that lets nobody write, as a server that does not answer."""
    if os.geteuid() or not shutil.which("fsfreeze") or not shutil.which("mkfs.ext4"):
        pytest.skip("needs root, fsfreeze and mkfs.ext4")
    image, point = folder / "image", folder / "mount point"
    point.mkdir()
    image.write_bytes(b"")
    os.truncate(image, 32 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    if subprocess.run(["mount", "-o", "loop", str(image), str(point)], capture_output=True).returncode:
        pytest.skip("no loop device")
    subprocess.run(["fsfreeze", "-f", str(point)], check=True)
    try:
        yield point
    finally:
        thaw(point)
        time.sleep(0.5)
        subprocess.run(["umount", "-l", str(point)], check=True)


def thaw(point: Path) -> None:
    """Its writers go on. Once more is no error."""
    subprocess.run(["fsfreeze", "-u", str(point)], capture_output=True)


@contextlib.contextmanager
def writer(path: Path | str, **options: object) -> Iterator[int]:
    argv = [sys.executable, "-c", WRITE, str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, **options) as process:  # type: ignore[call-overload]
        assert process.stdout.read(1) == b"."
        time.sleep(1.5)
        try:
            yield process.pid
        finally:
            process.kill()


def test_the_age_of_a_sleep_is_read_on_the_cpu_that_the_process_slept_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPUs' scheduler clocks differ by what interrupts and other guests took of each: here by an hour."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    real = file_waits.last_ran

    def last_ran(pid: int) -> float | None:
        cpu = int(file_waits.stat_fields(pid)[36])
        clock = real(pid)
        return None if clock is None else clock + 3600.0 * cpu

    monkeypatch.setattr(file_waits, "last_ran", last_ran)
    for cpu in cpus[:2]:
        with subprocess.Popen(["taskset", "-c", str(cpu), "sleep", "60"]) as sleeper:
            time.sleep(0.5)
            age = file_waits.seconds_off_cpu(sleeper.pid)
            sleeper.kill()
        assert 0.2 < age < 30
    assert sorted(os.sched_getaffinity(0)) == cpus


def test_a_process_that_was_moved_and_has_not_run_since_has_no_known_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_waits, "read_text", lambda *_: "se.exec_start    :   0.000000\n")
    assert file_waits.last_ran(1) is None


def test_a_file_system_that_stands_still_and_who_else_waits_for_it(tmp_path: Path) -> None:
    with frozen_mount(tmp_path) as point, writer(point / "a.pt") as first, writer(point / "b.pt") as second:
        waits = {first: file_wait(first)}
        held_up_beside({pid: wait for pid, wait in waits.items() if wait})
        state = look(first)
        thaw(point)
    wait = waits[first]
    assert wait
    assert state["state"] == "D" and state["call"] == "open"
    assert wait["path"] == f"{point}/a.pt" and wait["mount"][:2] == [str(point), "ext4"]
    assert wait["mount"][2].startswith("/dev/loop") and 1 <= wait["seconds"] < 60
    assert [pid for pid, _ in wait["beside"]] == [second]


@contextlib.contextmanager
def silent_mount(folder: Path, kind: str) -> Iterator[subprocess.Popen[bytes]]:
    """The server of a file system in user space that never answers one kind of request, in mounts of its own."""
    program = Path(__file__).parent / "programs" / "silent_files.py"
    argv = ["unshare", "-m", sys.executable, str(program), str(folder), kind]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout
        if server.stdout.read(1) != b".":
            pytest.skip("needs root and FUSE")
        try:
            yield server
        finally:
            server.kill()


def wait_until(is_so: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < limit
        time.sleep(0.05)


READ = "open(sys.argv[1], 'rb').read(10)"
MAPPED = "import mmap; file = open(sys.argv[1], 'rb'); mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[5000]"


@pytest.mark.parametrize(
    ("kind", "program", "call"),
    [("lookup", READ, "open"), ("read", READ, "read"), ("read", MAPPED, "page fault")],
)
def test_a_file_system_whose_server_does_not_answer(kind: str, program: str, call: str, tmp_path: Path) -> None:
    path = f"{tmp_path}/part.bin"
    with silent_mount(tmp_path, kind) as server:
        words = ["nsenter", "-t", str(server.pid), "-m"]
        argv = [*words, sys.executable, "-c", f"import sys; {program}", path]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(argv, stderr=quiet) as first, contextlib.ExitStack() as beside:
            beside.callback(server.kill)  # until then not even SIGKILL ends the others
            # Before the call that gets no answer, it waits for a moment in one that does.
            wait_until(lambda: (file_waits.awaited_path(first.pid), look(first.pid)["call"]) == (path, call))
            second = beside.enter_context(subprocess.Popen(argv, stderr=quiet))
            beside.callback(server.kill)
            wait_until(lambda: file_waits.awaited_path(second.pid) == path and file_waits.is_held_up(second.pid))
            state, waits = look(first.pid), {first.pid: file_wait(first.pid)}
            held_up_beside({pid: wait for pid, wait in waits.items() if wait})
    wait = waits[first.pid]
    assert wait and wait["path"] == path and wait["mount"] == [str(tmp_path), "fuse", "nas1:/export"]
    assert state["call"] == call and [pid for pid, _ in wait["beside"]] == [second.pid]


def test_a_page_of_several_mounts_names_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        f"7f00-7f01 r--s 0 00:2a {number} {path}\n" for number, path in enumerate(("/a/x", "/a/y", "/b/z", "/l"), 1)
    ]
    mounts = {"a": ["/a", "nfs4", "nas1:/a"], "b": ["/b", "fuse.s3", "s3"], "l": ["/", "ext4", "/dev/vda"]}
    monkeypatch.setattr(file_waits, "mount_of", lambda _, path: mounts[path[1]])
    for count, expected in ((1, "/a/x"), (2, "/a"), (3, "")):
        monkeypatch.setattr(file_waits, "memory_maps", lambda _, text="".join([*rows[:count], rows[3]]): text)
        assert file_waits.mapped_path(7) == expected


def test_a_relative_path_is_that_of_the_folder_of_the_process(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with writer("fifo", cwd=tmp_path) as pid:
        wait = file_wait(pid)
    assert wait and wait["path"] == f"{tmp_path}/fifo" and wait["mount"]


def test_a_process_in_no_call_about_a_file_waits_for_none() -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        time.sleep(0.3)
        assert file_wait(process.pid) is None
        process.kill()
    assert file_wait(process.pid) is None


def test_the_mount_of_a_path_is_the_innermost() -> None:
    assert (mount_of(os.getpid(), "/proc/self/status") or [])[:2] == ["/proc", "proc"]
    assert (mount_of(os.getpid(), "/processes") or ["", ""])[1] != "proc"
    assert mount_of(1 << 30, "/x") is None


def test_what_is_said_of_it() -> None:
    wait = FileWait("/data/a.pt", ["/data", "nfs4", "nas1:/export"], 312.4, [(7, "tar"), (9, "cp")])
    held = [Look("D", "rpc_wait_bit_killable", "open", "", 0.0, 0, 0.0, 0)] * 3
    assert activity(rank(1, held, file_wait=wait), 4.0).text == (
        "is held by the kernel (rpc_wait_bit_killable) in open of /data/a.pt on /data (nfs4, nas1:/export) for 312 s; "
        "also held up there: pid 7 (tar), pid 9 (cp)"
    )
    assert activity(rank(1, looks("futex"), file_wait=wait), 4.0).text.startswith("waits for another of its threads")


@pytest.mark.full
@pytest.mark.torch
def test_a_rank_that_a_file_system_holds_up(tmp_path: Path) -> None:
    with frozen_mount(tmp_path) as point:
        job = Job(tmp_path / "job", "file", 1, 3, JOB_FILE=str(point / "checkpoint.pt"))
        try:
            job.wait_until_faulty()
            code, report = attach(job)
        finally:
            thaw(point)
            job.end()
    [failure] = report["smoke"]["failures"]
    assert code == 10 and failure["culprit_ranks"] == [1]
    assert f"in open of {point}/checkpoint.pt on {point} (ext4, /dev/loop" in failure["text"]
