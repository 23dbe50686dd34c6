"""A loader that fails leaves nothing on the host, and nothing of others is removed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.smoke.plan import SmokeOptions
from doctor.smoke.programs.agent.cleanup import Descendants
from doctor.smoke.run import programs
from doctor.smoke.run.supervisor import smoke
from doctor.transport.local import Local

FAILS = """
class SampleDataset(SampleDataset):
    def __getitem__(self, index):
        with open({path!r}, "a") as file:
            file.write("%d %d\\n" % (os.getpid(), os.getppid()))
        if index == 9:
            time.sleep(0.5)  # until batches are on their way
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)
"""


def left_by(pids: set[int]) -> list[str]:
    """What these processes have left where torch and multiprocessing leave things."""
    names = [path.name for folder in ("/dev/shm", "/tmp") for path in Path(folder).iterdir()]
    return [name for name in names if set(map(int, re.findall(r"(?:torch_|pymp-d)(\d+)", name))) & pids]


def test_a_worker_that_is_killed_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: no loader can fail")
    noted = tmp_path / "pids"
    full = programs.worker
    monkeypatch.setattr(programs, "worker", lambda: full() + FAILS.format(path=str(noted)))
    options = SmokeOptions(backend="gloo", ranks_per_host=2, python=sys.executable, layouts=("dp=2",))
    result = smoke({"here": 0}, Local(), options, local=True)
    assert "DataLoader worker (pid" in result.records["here"].outputs["SmokeLoader"][""].out
    pids = set(map(int, noted.read_text().split()))
    assert len(pids) >= 4
    assert not left_by(pids)


def test_only_what_ended_processes_of_ours_made_is_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    mark = Descendants("MARK")
    mark.pids.add(ended.pid)
    mine, others, alive = (tmp_path / f"pymp-d{pid:07}" for pid in (ended.pid, ended.pid + 1, os.getpid()))
    for folder in (mine, others, alive):
        folder.mkdir()
        (folder / "listener").write_text("")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("")
    link = tmp_path / f"torch_{ended.pid}"
    link.symlink_to(elsewhere)
    mark.pids.add(os.getpid())
    mark.remove(str(tmp_path), r"(?:pymp-d|torch_)(\d+)$")
    assert {path.name for path in tmp_path.iterdir()} == {others.name, alive.name, "elsewhere"}
    assert (elsewhere / "file").exists()


def test_what_is_in_a_folder_that_a_rank_has_named_is_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    mark = Descendants("MARK")
    for folder in [str(tmp_path), 7, None, *(f"/nowhere/{number}" for number in range(99))]:
        mark.note(ended.pid, folder)
    (tmp_path / f"pymp-d{ended.pid:07}").mkdir()
    mark.remove_leftovers()
    assert not list(tmp_path.iterdir())
    assert len(mark.folders) <= 16


def test_what_a_killed_process_made_is_removed_before_it_has_got_a_cpu_to_end_on(tmp_path: Path) -> None:
    """One of idle priority on a busy host, or a frozen one, is there for longer than anybody waits."""
    mark = Descendants("MARK")
    mark.pids |= {os.getpid(), os.getppid()}
    mark.dying.add(os.getpid())
    for pid in mark.pids:
        (tmp_path / f"pymp-d{pid:07}").mkdir()
    mark.remove(str(tmp_path), r"pymp-d(\d{7})$")
    assert [path.name for path in tmp_path.iterdir()] == [f"pymp-d{os.getppid():07}"]


def test_what_a_process_made_is_removed_though_nobody_has_asked_how_it_ended(tmp_path: Path) -> None:
    """An orphan may come to the agent as a zombie when it has just asked for the last time."""
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    mark = Descendants("MARK")
    mark.pids.add(zombie.pid)
    (tmp_path / f"pymp-d{zombie.pid:07}").mkdir()
    mark.remove(str(tmp_path), r"pymp-d(\d{7})$")
    assert not list(tmp_path.iterdir())
    zombie.wait()


def test_what_carries_no_pid_is_never_removed(tmp_path: Path) -> None:
    """A rank whose process is not known yet has the number 0."""
    kept = [tmp_path / name for name in ("job.json", "pymp-other-7-a", "pymp-d0000000", "pymp-dx000001")]
    for path in kept:
        path.write_text("")
    mark = Descendants("mark")  # type: ignore[no-untyped-call]
    mark.pids.add(0)
    mark.dying.add(0)
    mark.remove(str(tmp_path), r"pymp-d(\d{7})$")  # type: ignore[no-untyped-call]
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_a_killed_process_that_gives_up_its_memory_is_none_that_cannot_be_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be in state D for long on a busy host, and has no command line any more; one that cannot end has it."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    mark = Descendants("MARK")  # type: ignore[no-untyped-call]
    monkeypatch.setattr(mark, "alive", lambda: {os.getpid(): "D", gone.pid: "D"})
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    monkeypatch.setattr(os, "waitpid", lambda pid, options: (0, 0))
    assert [(pid, state) for pid, state, _ in mark.kill_all()] == [(os.getpid(), "D")]  # type: ignore[no-untyped-call]


def test_of_the_folders_for_what_torch_compiles_the_empty_ones_of_this_run_are_removed(tmp_path: Path) -> None:
    (tmp_path / "torchinductor_empty").mkdir()
    (tmp_path / "torchinductor_used").mkdir()
    (tmp_path / "torchinductor_used/kernel").write_text("")
    mark = Descendants("MARK")
    mark.folders, began = {str(tmp_path)}, mark.began
    for since, left in ((began + 3600, 2), (began - 3600, 1)):
        mark.began = since
        mark.remove_leftovers()
        assert len(list(tmp_path.iterdir())) == left
    assert (tmp_path / "torchinductor_used/kernel").exists()
