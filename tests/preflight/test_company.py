"""Ranks of one host agree on one verdict: real processes, real deaths, folders of other people."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor.environment.job_context import JobContext
from doctor.preflight.host_leader import LEADER_DIED, Leader, join
from tests.hosts.slurm import needs_mpirun
from tests.preflight.members import ROOT, Members

LINE = "doctor preflight: FAIL bad=n1 exit=10"


@pytest.fixture(scope="module")
def members() -> Iterator[Members]:
    created_members = Members()
    yield created_members
    created_members.close()


@pytest.fixture
def job(members: Members, tmp_path: Path) -> Iterator[Members]:
    members.folder = tmp_path
    yield members
    members.clear()


class TestOneVerdict:
    def test_the_first_process_checks_and_the_others_exit_with_its_code(self, job: Members) -> None:
        first = job.start(5)
        assert job.leads(first)
        others = [job.start(rank) for rank in (6, 7)]
        job.announce(first, 10, LINE)
        assert [job.ends(number) for number in others] == [(10, LINE, "")] * 2

    def test_the_first_rank_of_a_host_looks_whoever_comes_first(self, job: Members) -> None:
        others = [job.start(rank, "follower", local_world_size=3) for rank in (5, 6)]
        for number in others:
            job.hears(number, "pid")
        leader = job.start(4, local_world_size=3)
        assert job.leads(leader)
        job.announce(leader, 0, "OK")
        assert [job.ends(index) for index in others] == [(0, "OK", "")] * 2

    def test_64_of_them(self, job: Members) -> None:
        leader = job.start(0, "cluster", local_world_size=65)
        assert job.leads(leader)
        others = [job.start(rank, "follower", local_world_size=65) for rank in range(1, 65)]
        job.announce(leader, 12, "UNKNOWN", last=20)
        assert [job.ends(number) for number in others] == [(12, "UNKNOWN", "")] * 64
        job.hears(leader, "left")

    def test_a_leader_that_knows_how_many_come_stays_for_the_last(self, job: Members) -> None:
        leader = job.start(0, "cluster", local_world_size=2)
        assert job.leads(leader)
        job.announce(leader, 0, "OK", last=20)
        job.hears(leader, "says")
        late = job.start(1, "follower", local_world_size=2)
        assert job.ends(late) == (0, "OK", "")

    def test_rank_0_looks_at_the_fleet_although_another_one_looks_at_its_host(self, job: Members) -> None:
        assert job.leads(job.start(1))
        assert job.leads(job.start(0, "cluster"))

    def test_where_no_rank_is_told_one_of_the_host_looks_at_the_fleet(self, job: Members) -> None:
        leader = job.start(None, "cluster")
        assert job.leads(leader)
        other = job.start(None, "cluster", scheduler=True)
        job.hears(other, "pid")
        job.announce(leader, 0, "OK", last=20)
        assert job.ends(other) == (0, "OK", "")


class TestNoVerdictOfAnotherTime:
    def test_a_second_preflight_of_the_same_script_looks_anew(self, job: Members) -> None:
        leader = job.start(0, "cluster", local_world_size=3)
        assert job.leads(leader)
        quick = job.start(1, "follower", local_world_size=3)
        job.announce(leader, 0, "OK", last=1)
        assert job.ends(quick) == (0, "OK", "")
        # The leader still waits for rank 2, and would tell anybody that the host was healthy.
        again = job.start(1, "follower", local_world_size=3, patience=0.1)
        assert job.leads(again)
        assert "left" in job.reported(leader)

    def test_who_comes_after_the_leader_has_gone_looks_for_itself(self, job: Members) -> None:
        leader = job.start(0, "cluster")
        assert job.leads(leader)
        job.announce(leader, 0, "OK", last=0)
        job.hears(leader, "left")
        late = job.start(1, "follower", patience=0.1)
        assert (
            job.hears(late, "joined")["note"]
            == "the first rank of this host did not start in time, so this rank checked the host"
        )

    def test_nothing_is_left_but_the_folder(self, job: Members) -> None:
        leader = job.start(0)
        assert job.leads(leader)
        (folder,) = job.folder.iterdir()
        assert (folder.name, len(list(folder.iterdir()))) == (f"doctor-{os.geteuid()}", 2)
        job.announce(leader, 0, "OK", last=0)
        job.hears(leader, "left")
        assert list(folder.iterdir()) == []


class TestTrouble:
    def test_the_death_of_the_leader_leaves_the_others_without_a_verdict(self, job: Members) -> None:
        leader = job.start(0, "cluster", local_world_size=4)
        assert job.leads(leader)
        others = [job.start(rank, "follower", local_world_size=4) for rank in (1, 2, 3)]
        wait_until_connected(job, others)
        job.kill(leader)
        assert [job.ends(number) for number in others] == [(12, "", LEADER_DIED)] * 3

    def test_after_a_death_the_next_one_looks(self, job: Members) -> None:
        leader = job.start(0)
        assert job.leads(leader)
        job.kill(leader)
        assert job.leads(job.start(1))

    def test_a_leader_that_ends_without_a_verdict_says_so(self, job: Members) -> None:
        leader = job.start(0)
        assert job.leads(leader)
        other = job.start(1)
        wait_until_connected(job, [other])
        job.quit(leader)
        assert job.ends(other) == (12, "", LEADER_DIED)

    def test_a_leader_that_is_not_done_in_time(self, job: Members) -> None:
        assert job.leads(job.start(0))
        code, line, why = job.ends(job.start(1, until=0.3))
        assert (code, line) == (12, "")
        assert why == "the process that checks this host for all its ranks did not finish in time"

    def test_a_first_rank_that_never_comes_is_not_waited_for_for_ever(self, job: Members) -> None:
        second = job.start(1, "follower", patience=0.1, local_world_size=3)
        assert job.leads(second)
        third = job.start(2, "follower", local_world_size=3)
        job.announce(second, 10, LINE)
        assert job.ends(third) == (10, LINE, "")


class TestStrangers:
    @pytest.mark.parametrize(
        "other",
        [
            {"identity": "another job"},
            {"scheduler_host_name": "n1"},
            {"environ": {"DOCTOR_SKIP": "all"}},
            {"about": "--tier smoke"},
            {"rank_table_path": "/another.json"},
        ],
    )
    def test_do_not_wait_for_each_other(self, job: Members, other: dict[str, object]) -> None:
        assert job.leads(job.start(1))
        assert job.leads(job.start(2, **other))  # type: ignore[arg-type]

    def test_a_process_without_others_needs_no_folder(self, tmp_path: Path) -> None:
        once = JobContext(kind="slurm", rank=0, world_size=2)
        for context in (once, JobContext(kind="slurm", started="ranks", rank=0, local_world_size=1)):
            with led(context, tmp_path) as leader:
                assert leader.note == ""
        assert list(tmp_path.iterdir()) == []


RANK = """
import json, os, time
from doctor.preflight.host_leader import LeaderVerdict, join
from doctor.environment.job_context import detect
from doctor.environment.job_context import choose_scope

def read(path):
    raise FileNotFoundError(2, "No such file or directory")

context = detect(os.environ, read)
until = time.monotonic() + 30
for turn in range(2):
    met = join(context, choose_scope(context), until, environ=os.environ, patience=20)
    if isinstance(met, LeaderVerdict):
        told = met.line
    else:
        with met:
            told = f"turn {turn} of rank {context.rank}"
            met.announce(0, told, until)
    os.write(1, json.dumps([turn, context.rank, choose_scope(context), told]).encode() + b"\\n")
"""


@needs_mpirun
def test_two_preflights_in_a_script_under_a_real_mpirun(tmp_path: Path) -> None:
    """Each turn ends with the verdict of its own leader: ranks run ahead of each other as they like."""
    argv = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "4", sys.executable, "-c", RANK]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "DOCTOR_"))}
    environ |= {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    scopes = ["cluster", "follower", "follower", "follower"]
    expected = [[turn, rank, scopes[rank], f"turn {turn} of rank 0"] for turn in range(2) for rank in range(4)]
    assert sorted(json.loads(line) for line in done.stdout.splitlines()) == expected


ALL = JobContext(kind="slurm", started="ranks", rank=3)


def led(context: JobContext, folder: Path) -> Leader:
    result = join(context, "local", 0.0, environ={"TMPDIR": str(folder)})
    assert isinstance(result, Leader)
    return result


class TestFoldersOfOthers:
    """Nobody's folder but our own tells us what to end with; without one, each looks for itself."""

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder away")
    def test_one_that_another_user_made(self, tmp_path: Path) -> None:
        (tmp_path / "doctor-0").mkdir(0o700)
        os.chown(tmp_path / "doctor-0", 12345, 12345)
        note = led(ALL, tmp_path).note
        assert note.startswith("the host's ranks could not elect a leader, so each checks the host: ")
        assert note.endswith("/doctor-0 belongs to user 12345, mode 0700; expected user 0, mode 0700")
        assert list((tmp_path / "doctor-0").iterdir()) == []

    def test_one_that_others_may_write_to(self, tmp_path: Path) -> None:
        (tmp_path / f"doctor-{os.geteuid()}").mkdir()
        (tmp_path / f"doctor-{os.geteuid()}").chmod(0o770)
        assert "mode 0770; expected user" in led(ALL, tmp_path).note

    def test_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir(0o700)
        (tmp_path / f"doctor-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
        assert "Not a directory" in led(ALL, tmp_path).note
        assert list((tmp_path / "elsewhere").iterdir()) == []

    def test_a_file_or_no_place_at_all(self, tmp_path: Path) -> None:
        (tmp_path / f"doctor-{os.geteuid()}").write_text("")
        assert "Not a directory" in led(ALL, tmp_path).note
        assert "No such file or directory" in led(ALL, tmp_path / "missing").note

    def test_a_path_longer_than_a_sockets_may_be(self, tmp_path: Path) -> None:
        deep = tmp_path / ("x" * 120)
        deep.mkdir()
        with led(ALL, deep) as leader:
            assert leader.note == ""

    def test_the_runtime_folder_is_taken_where_it_is_ours(self, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir(0o700)
        environ = {"XDG_RUNTIME_DIR": str(tmp_path / "run"), "TMPDIR": str(tmp_path)}
        result = join(ALL, "local", 0.0, environ=environ)
        assert isinstance(result, Leader)
        with result:
            assert [path.name for path in (tmp_path / "run").iterdir()] == [f"doctor-{os.geteuid()}"]


def wait_until_connected(job: Members, members: list[int]) -> None:
    """Until each has a connection to the leader's socket, by the kernel's table."""
    names = {job.hears(member, "pid")["pid"] for member in members}
    while True:
        connected = sum(has_connection(pid) for pid in names)
        if connected == len(names):
            return
        time.sleep(0.005)


def has_connection(pid: int) -> bool:
    inodes = {
        line.split()[6] for line in Path("/proc/net/unix").read_text().splitlines()[1:] if line.split()[5] == "03"
    }
    for link in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(link) if link.is_symlink() else ""
        if target.startswith("socket:[") and target[8:-1] in inodes:
            return True
    return False
