"""Memory, shared memory, and what dead jobs leave in it."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.fact import Absent, Output, Unreadable
from doctor.engine.quantities import GIB, MIB, bytes_text
from doctor.facts.memory import (
    HostMemory,
    IdleSegments,
    MemoryCommitment,
    Segment,
    SharedMemory,
    host_rank_count,
    list_idle_segments,
    measure_shm,
    required_shm,
)
from doctor.job import LaunchConfig
from tests.facts.answers import answered, learned
from tests.facts.garbage import ANYTHING, JSON, runs_on_python_3_6, value_of

SYSV = """\
       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap
         0          3  1600               4194304   100   100      {nattch}     0     0     0     0 {then}          0 {then}               8192                     0
"""  # noqa: E501


class TestSharedMemory:
    def test_the_facts_of_this_machine_are_read(self) -> None:
        list_idle = answered(SharedMemory, measure_shm({}))
        assert isinstance(list_idle, SharedMemory)
        assert 0 <= list_idle.free <= list_idle.size

    def test_none(self) -> None:
        assert answered(SharedMemory, {"there": False}) == SharedMemory(size=0, free=0, there=False)

    @given(JSON)
    def test_anything_else(self, value: object) -> None:
        assert isinstance(answered(SharedMemory, value), Unreadable)

    def test_the_source_that_is_sent(self) -> None:
        assert runs_on_python_3_6(measure_shm)
        assert runs_on_python_3_6(list_idle_segments)


class TestWanted:
    def test_the_ranks_of_a_host(self) -> None:
        assert host_rank_count(LaunchConfig.from_environment({}), 8) == 8
        assert host_rank_count(LaunchConfig.from_environment({}, ranks_per_host=4), 8) == 4
        assert host_rank_count(LaunchConfig.from_environment({}, ranks_per_host={"a": 4, "b": 6}), 8) == 6

    @given(st.integers(0, 1000))
    def test_a_gibibyte_at_least_and_128_mib_a_rank(self, ranks: int) -> None:
        assert required_shm(ranks) >= max(GIB, ranks * 128 * MIB)
        assert required_shm(ranks + 1) >= required_shm(ranks)


@pytest.fixture
def segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], IdleSegments]:
    """What is found when /dev/shm is a folder of the test's own."""
    open_real = os.open

    def open_there(path: Any, *arguments: Any, **options: Any) -> int:
        return open_real(tmp_path if path == "/dev/shm" else path, *arguments, **options)

    monkeypatch.setattr(os, "open", open_there)

    def list_idle() -> IdleSegments:
        value = answered(IdleSegments, list_idle_segments({}))
        assert isinstance(value, IdleSegments)
        return value

    return list_idle


def old(path: Path, age: int = 7200) -> Path:
    path.write_bytes(b"x" * 8192)
    os.utime(path, (0, time.time() - age))
    return path


NEW_ENOUGH = tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (5, 3)


@pytest.mark.skipif(not NEW_ENOUGH, reason="this kernel cannot tell who uses a file in memory")
class TestIdleSegments:
    def test_an_old_file_that_nobody_uses(self, tmp_path: Path, segments: Callable[[], IdleSegments]) -> None:
        path = old(tmp_path / "nccl-a1B2c3")
        (segment,) = segments().files
        assert (segment.path, segment.bytes) == (f"/dev/shm/{path.name}", 8192)
        assert 7200 <= segment.age < 7300

    def test_a_file_in_a_folder_or_behind_a_link_is_its_owners(
        self, tmp_path: Path, segments: Callable[[], IdleSegments]
    ) -> None:
        (tmp_path / "folder").mkdir()
        old(tmp_path / "folder" / "dead")
        (tmp_path / "link").symlink_to(tmp_path / "folder" / "dead")
        assert segments().files == ()

    def test_a_young_file_may_be_on_its_way(self, tmp_path: Path, segments: Callable[[], IdleSegments]) -> None:
        old(tmp_path / "nccl-youngx", age=60)
        assert segments().files == ()

    def test_a_file_that_is_open(self, tmp_path: Path, segments: Callable[[], IdleSegments]) -> None:
        with old(tmp_path / "nccl-openxx").open("rb"):
            assert segments().files == ()
        assert segments().files

    def test_a_file_that_is_mapped_and_closed(self, tmp_path: Path, segments: Callable[[], IdleSegments]) -> None:
        with old(tmp_path / "nccl-mapped").open("r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
        with memory:
            assert segments().files == ()
        assert segments().files

    def test_looking_changes_nothing(self, tmp_path: Path, segments: Callable[[], IdleSegments]) -> None:
        path = old(tmp_path / "nccl-deadxx")
        before = path.stat()
        segments()
        assert path.stat() == before

    @pytest.mark.parametrize(
        "name",
        ["libpod_lock", "lttng-ust-wait-8", "sem.oracle", "PostgreSQL.3059463094", "data.bin", "pulse-shm-12345"],
    )
    def test_a_name_that_no_job_makes_may_be_a_service_s(
        self, name: str, tmp_path: Path, segments: Callable[[], IdleSegments]
    ) -> None:
        old(tmp_path / name)
        assert segments().files == ()

    @pytest.mark.parametrize(
        "name",
        ["torch_4194398_1_2", "torch_4194399_123", "psm_0a1b2c3d", "sem.mp-ab_12xyz", "vader_segment.n1.0.3a5f.1"],
    )
    def test_names_that_jobs_make(self, name: str, tmp_path: Path, segments: Callable[[], IdleSegments]) -> None:
        old(tmp_path / name)
        assert [segment.path for segment in segments().files] == ["/dev/shm/" + name]

    def test_a_file_of_a_living_process_is_kept(self, tmp_path: Path, segments: Callable[[], IdleSegments]) -> None:
        old(tmp_path / f"torch_{os.getpid()}_4194399")
        assert segments().files == ()


class TestSegmentsSaid:
    def idle_segments(self, sysv: str = "", **more: object) -> IdleSegments | Absent:
        list_idle = answered(IdleSegments, {"files": [], "untold": 0, "sysv": sysv, "now": 10_000, **more})
        assert isinstance(list_idle, (IdleSegments, Absent))
        return list_idle

    def test_a_system_v_segment_without_a_process(self) -> None:
        table = SYSV.format(nattch=0, then=" " * 6 + "9000")
        assert self.idle_segments(table) == IdleSegments(files=(), sysv=(Segment("3", 8192, 1000),))

    @pytest.mark.parametrize(("key", "living"), [("77", []), (" 0", ["100"])], ids=["key", "living"])
    def test_one_that_a_later_program_may_find_or_whose_maker_lives(self, key: str, living: list[str]) -> None:
        table = SYSV.format(nattch=0, then=" " * 6 + "9000").replace("\n         0", f"\n        {key}", 1)
        assert table.splitlines()[1].split()[0] == key.strip()
        assert self.idle_segments(table, living=living) == IdleSegments(files=(), sysv=())

    @pytest.mark.parametrize(("nattch", "then"), [(1, "9000"), (0, "9500")], ids=["attached", "young"])
    def test_one_that_is_used_or_young(self, nattch: int, then: str) -> None:
        assert self.idle_segments(SYSV.format(nattch=nattch, then=then)) == IdleSegments(files=(), sysv=())

    def test_an_old_kernel_cannot_tell(self) -> None:
        why = answered(IdleSegments, {"release": "4.19.90-2003.4.0"})
        assert type(why) is Absent
        assert "4.19.90" in str(why)

    def test_files_that_could_not_be_asked_about(self) -> None:
        list_idle = self.idle_segments(untold=2)
        assert isinstance(list_idle, IdleSegments)
        assert "--sudo" in list_idle.unread["/dev/shm"]

    @given(ANYTHING.filter(str.strip))
    def test_a_table_that_is_none(self, text: str) -> None:
        assert isinstance(self.idle_segments(text), Unreadable)

    @given(JSON)
    def test_anything_else(self, value: object) -> None:
        assert isinstance(answered(IdleSegments, value), Absent)


class TestHostMemory:
    TEXT = "MemTotal:       24684096 kB\nMemFree:        20000000 kB\nMemAvailable:   24199000 kB\n"

    def test_the_kernels_table(self) -> None:
        assert value_of(HostMemory, self.TEXT) == HostMemory(total=24684096 << 10, available=24199000 << 10)

    def test_an_old_kernel_does_not_estimate(self) -> None:
        assert value_of(HostMemory, self.TEXT.partition("MemAvail")[0]) == Unreadable("/proc/meminfo: no MemAvailable")

    @pytest.mark.parametrize("total", ["0", "1"])
    def test_numbers_that_make_no_sense(self, total: str) -> None:
        assert isinstance(value_of(HostMemory, self.TEXT.replace("24684096", total)), Unreadable)

    @given(ANYTHING)
    def test_garbage(self, text: str) -> None:
        assert isinstance(value_of(HostMemory, text), Unreadable)

    def test_cut_short(self) -> None:
        assert isinstance(learned(HostMemory, {"/proc/meminfo": Output(out=self.TEXT, cut=True)}), Unreadable)


class TestMemoryCommitment:
    TEXT = "MemAvailable:   24199000 kB\nCommitLimit:    12342048 kB\nCommitted_AS:    1029004 kB\n"

    @staticmethod
    def read(mode: str, text: str) -> Any:
        files = {"/proc/sys/vm/overcommit_memory": Output(out=mode), "/proc/meminfo": Output(out=text)}
        return learned(MemoryCommitment, files)

    def test_the_kernels_files(self) -> None:
        assert self.read("2\n", self.TEXT) == MemoryCommitment(
            mode=2, limit=12342048 << 10, committed=1029004 << 10, available=24199000 << 10
        )

    def test_a_mode_that_does_not_exist(self) -> None:
        assert isinstance(self.read("3\n", self.TEXT), Unreadable)

    def test_cut_short(self) -> None:
        assert self.read("2\n", self.TEXT[:60]) == Unreadable("/proc/meminfo: no Committed_AS")

    @given(ANYTHING, ANYTHING)
    def test_garbage(self, mode: str, text: str) -> None:
        assert isinstance(self.read(mode, text), Unreadable)


@pytest.mark.parametrize(
    ("count", "message"),
    [(0, "0 B"), (1023, "1023 B"), (1023 * MIB, "1023 MiB"), (MIB, "1 MiB"), (GIB + GIB // 2, "1.5 GiB")],
)
def test_sizes_in_words(count: int, message: str) -> None:
    assert bytes_text(count) == message
