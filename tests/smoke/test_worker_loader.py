"""Loader workers: what they draw, what is said of a full /dev/shm and of dead workers, how a stuck one is looked at."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import psutil
import pytest

from doctor.smoke.model import Layout
from tests.smoke.ranks import Ranks

pytestmark = pytest.mark.torch

HYBRID = [Layout(dp=4), Layout(dp=2, tp=2)]


def test_ranks_that_read_the_same_data_draw_the_same() -> None:
    ranks = Ranks(4, ["loader"], layouts=HYBRID)
    events = ranks.of("loader")
    assert [(event["layout"], event["dp"], event["text"]) for event in events] == [
        (1, 0, ""),
        (1, 0, ""),
        (1, 1, ""),
        (1, 1, ""),
    ]
    for key in ("digests", "seeds"):
        assert events[0][key] == events[1][key] != events[2][key] == events[3][key]
    assert set(events[0]["digests"]) >= {"python", "torch"}
    assert not set(events[0]["digests"].values()) & set(events[2]["digests"].values())
    assert all(len(event["seeds"]) == event["workers"] == 2 for event in events)
    assert len(ranks.of("done")) == 4


def test_the_same_seed_draws_the_same_another_does_not() -> None:
    first, again, other = (Ranks(1, ["loader"], seed=seed).of("loader")[0] for seed in (3, 3, 4))
    assert first["digests"] == again["digests"]
    assert not set(first["digests"].values()) & set(other["digests"].values())


def test_a_worker_that_seeds_one_generator_by_itself_shows_in_that_generator_alone() -> None:
    faults = """
        _make_worker_init = make_worker_init
        def make_worker_init(parent):
            init_worker = _make_worker_init(parent)
            def worse(number):
                init_worker(number)
                random.seed(os.getpid())
            return worse
    """
    ranks = Ranks(2, ["loader"], faults, layouts=[Layout(tp=2)])
    first, second = (event["digests"] for event in ranks.of("loader"))
    assert [name for name in first if first[name] != second[name]] == ["python"]


SMALL_SHM = """
def stage_small(ctx):
    import subprocess
    # CLONE_NEWNS: the mount is this rank's alone.
    assert ctypes.CDLL(None).unshare(0x20000) == 0
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/dev/shm"], check=True)
    stage_loader(ctx)

STAGE_FUNCTIONS["loader"] = stage_small
"""


@pytest.mark.hosts
@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")
def test_a_full_shm_is_told_in_clear_words_and_the_run_goes_on() -> None:
    ranks = Ranks(2, ["loader", "pace"], SMALL_SHM)
    for event in ranks.of("loader"):
        assert "unable to allocate shared memory" in event["text"]
        assert "No space left on device" in event["text"]
        assert "/dev/shm has 1.0 MB" in event["text"]
        assert event["digests"] == {}
        assert event["seconds"] < 10
    assert len(ranks.of("loader")) == len(ranks.of("pace")) == len(ranks.of("done")) == 2


@pytest.mark.parametrize("length", [75, 76])
def test_a_folder_for_temporary_files_may_be_as_long_as_multiprocessing_takes(tmp_path: Path, length: int) -> None:
    """A job's own loader makes sockets in a folder of 75 letters, and waits for ever with one of 76."""
    folder = Path("/var/tmp" if len(str(tmp_path)) > 60 else tmp_path, "t")
    folder = folder.with_name("t" * (length - len(str(folder.parent)) - 1))
    folder.mkdir()
    try:
        (event,) = Ranks(1, ["loader"], f"tempfile.tempdir = {str(folder)!r}").of("loader")
        assert event["text"] == "" if length == 75 else "sockets need one of 75 characters" in event["text"]
        assert not list(folder.iterdir())
    finally:
        folder.rmdir()


def test_a_limit_of_a_files_size_is_told() -> None:
    faults = """
        def registered(ctx, initialize):
            return lambda number: (ctx.emit("worker", pid=os.getpid()), initialize(number))
        _stage_loader = stage_loader
        def stage_loader(ctx):
            resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
            _stage_loader(ctx)
        STAGE_FUNCTIONS["loader"] = stage_loader
    """
    ranks = Ranks(1, ["loader"], faults)
    (event,) = ranks.of("loader")
    assert re.search(r"File too large \(27\); ulimit -f is 512 bytes$", event["text"])
    assert len(ranks.of("done")) == 1
    for worker in ranks.of("worker"):  # an agent would remove what it left
        for path in Path("/dev/shm").glob(f"torch_{worker['pid']}_*"):
            path.unlink()


def test_a_dead_worker_is_told_with_its_signal() -> None:
    faults = """
        class SampleDataset(SampleDataset):
            def __getitem__(self, index):
                if index == 9:
                    os.kill(os.getpid(), signal.SIGKILL)
                return super().__getitem__(index)
    """
    ranks = Ranks(1, ["loader"], faults)
    (event,) = ranks.of("loader")
    assert "DataLoader worker" in event["text"]
    assert "killed by signal: Killed" in event["text"] or "exited unexpectedly" in event["text"]
    assert len(ranks.of("done")) == 1


def test_a_pipe_that_breaks_before_torch_hears_of_a_dead_worker_is_that_worker() -> None:
    faults = """
        class SampleDataset(SampleDataset):
            def __getitem__(self, index):
                if index == 9:
                    os.kill(os.getpid(), signal.SIGKILL)
                return super().__getitem__(index)

            def __len__(self):
                torch.utils.data.dataloader._MultiProcessingDataLoaderIter._next_data = broken_pipe
                return super().__len__()

        def broken_pipe(self):
            self._workers[0].join(20)
            raise ConnectionResetError(104, "Connection reset by peer")
    """
    (event,) = Ranks(1, ["loader"], faults).of("loader")
    assert event["text"].startswith("DataLoader worker (pid ")
    assert "is killed by signal: Killed" in event["text"]


def test_an_error_while_reading_is_told_with_its_own_words() -> None:
    faults = """
        class SampleDataset(SampleDataset):
            def __getitem__(self, index):
                raise OSError(5, "Input/output error")
    """
    (event,) = Ranks(1, ["loader"], faults).of("loader")
    assert event["text"].startswith("OSError: [Errno 5] Input/output error")


def test_semaphores_bear_the_number_of_their_rank() -> None:
    """So that the agent knows which to remove of those whose maker was killed before it could."""
    faults = """
        import _multiprocessing
        plain = _multiprocessing.SemLock

        class SemLock(plain):
            def __new__(cls, kind, value, most, name, unlink):
                os.write(2, b"%s\\n" % name.encode())
                return plain.__new__(cls, kind, value, most, name, unlink)

        _multiprocessing.SemLock = SemLock
    """
    ranks = Ranks(1, ["loader"], faults)
    assert ranks.of("loader")[0]["text"] == ""
    names = [line for line in ranks.error_output.splitlines() if line.startswith("/")]
    assert len(names) > 2
    assert len({name.partition("-")[0] for name in names if re.match(r"/torch_\d+_-", name)}) == 1
    assert not [name for name in names if not name.startswith("/torch_")]


STUCK = """
class SampleDataset(SampleDataset):
    def __getitem__(self, index):
        if index == 9:
            self.wait_for_the_disk()
        return super().__getitem__(index)

    def wait_for_the_disk(self):
        time.sleep(1000)
"""


def children(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children()]


def test_a_stuck_worker_shows_its_stack_and_dies_with_its_rank(tmp_path: Path) -> None:
    answer: dict[int, str] = {}

    def watch(ranks: Ranks) -> bool:
        if not ranks.of("stage", stage="rendezvous") or ranks.state(0) != "input":
            return False
        for child in children(ranks.pid(0)):
            before = ranks.stack(0)
            os.kill(child, signal.SIGUSR1)
            while ranks.stack(0) == before:
                time.sleep(0.01)
            answer[child] = ranks.stack(0)[len(before) :]
        return any("wait_for_the_disk" in text for text in answer.values())

    folder_of_the_loader = f"import tempfile\ntempfile.tempdir = {str(tmp_path)!r}\n"  # there is no agent to remove it
    Ranks(1, ["loader"], folder_of_the_loader + STUCK, watch=watch)
    assert sum("wait_for_the_disk" in text for text in answer.values()) == 1
    end = time.monotonic() + 30
    while any(Path(f"/proc/{child}").exists() for child in answer) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(Path(f"/proc/{child}").exists() for child in answer)


ENDS_LATE = """
_make_worker_init = make_worker_init
def make_worker_init(parent):
    init_worker = _make_worker_init(parent)
    def slow_to_end(number):
        init_worker(number)
        multiprocessing.util.Finalize(None, lambda: open(FIFO).read(), exitpriority=1)
    return slow_to_end
"""


def test_the_wait_for_workers_to_end_is_no_wait_for_data(tmp_path: Path) -> None:
    """torch bounds it, so a job with such workers runs; the workers here end when their rank has been seen to wait."""
    fifo, states = tmp_path / "fifo", []
    os.mkfifo(fifo)

    def watch(ranks: Ranks) -> bool:
        loading = bool(ranks.of("stage", stage="rendezvous")) and not ranks.of("loader")
        states.append(ranks.state(0) if loading else "")
        if "input" in states and states[-1] == "start":
            with contextlib.suppress(OSError):  # no worker waits
                os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        return False

    (event,) = Ranks(1, ["loader"], f"FIFO = {str(fifo)!r}\n" + ENDS_LATE, watch=watch).of("loader")
    assert event["text"] == ""
    assert "start" in states[states.index("input") :]
    assert event["seconds"] < 5
