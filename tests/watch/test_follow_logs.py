from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest

from doctor.engine.watch_summary import LossVerdict
from doctor.watch.loss.follow_logs import Follower, follow, read_once
from doctor.watch.loss.followed_file import MAX_PENDING, FollowedFile
from doctor.watch.loss.log_watch import LogWatch, LossOptions


def all_lines(file: FollowedFile) -> list[bytes]:
    assert file.open() == ""
    return list(file.lines())


def test_what_is_appended_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\rthr")
    file = FollowedFile(str(path))
    assert all_lines(file) == [b"one", b"two"]
    with path.open("a") as more:
        more.write("ee\n")
    assert all_lines(file) == [b"three"]
    file.close()


def test_logs_of_three_ranks_are_read_step_by_step(tmp_path: Path) -> None:
    """More steps than are kept: read one after the other, they would not meet."""
    paths = [str(tmp_path / f"worker_{rank}.log") for rank in range(3)]
    for rank, path in enumerate(paths):
        losses = (2 * (1.03 if rank == 2 and step >= 4500 else 1) for step in range(5000))
        Path(path).write_text("".join(f"step {step} loss: {loss:.5f}\n" for step, loss in enumerate(losses)))
    watch = LogWatch(paths, LossOptions(same_loss=True))
    assert not read_once([FollowedFile(path) for path in paths], watch)
    assert watch.agreement.differing is not None
    assert (watch.agreement.differing.step, watch.agreement.differing.outliers) == (4500, (2,))


def test_a_log_that_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\nlast of the old")
    file = FollowedFile(str(path))
    assert all_lines(file) == [b"one"]
    path.rename(tmp_path / "log.1")
    assert all_lines(file) == []
    path.write_text("new\n")
    assert [*file.lines(), *file.lines()] == [b"last of the old", b"new"]
    assert "replaced" in file.notes[0]
    file.close()


def test_a_log_that_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\n")
    file = FollowedFile(str(path))
    assert all_lines(file) == [b"one", b"two"]
    path.write_text("new\n")
    assert [*file.lines(), *file.lines()] == [b"new"]
    file.close()


def test_a_line_without_an_end_takes_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (20 * MAX_PENDING) + b"\nnext\n")
    file = FollowedFile(str(path))
    tracemalloc.start()
    lines = all_lines(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert next(len(line) for line in lines) <= 5 * MAX_PENDING
    assert lines[-1] == b"next"
    assert peak < 4 << 20
    file.close()


def test_a_folder_and_a_missing_file(tmp_path: Path) -> None:
    assert "folder" in FollowedFile(str(tmp_path)).open()
    assert "No such file" in FollowedFile(str(tmp_path / "none")).open()
    watch = LogWatch(["none"])
    assert read_once([FollowedFile(str(tmp_path / "none"))], watch) != {}


def test_a_fifo_whose_writer_comes_later(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    file = FollowedFile(str(path))
    assert all_lines(file) == []
    with path.open("wb", 0) as writer:
        writer.write(b"step 1 loss: 2.5\n")
        assert all_lines(file) == [b"step 1 loss: 2.5"]
    file.close()


def test_a_long_log_takes_constant_memory() -> None:
    watch = LogWatch(["log"])
    for step in range(2000):
        watch.add(0, b"step %d loss: %.4f" % (step, 2 + 8 / (1 + step)))
    tracemalloc.start()
    for step in range(2000, 8000):
        watch.add(0, b"step %d loss: %.4f" % (step, 2 + 8 / (1 + step)))
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert grown < 100_000
    assert watch.losses == 8000


def test_many_ranks_and_names_are_bounded() -> None:
    watch = LogWatch(["log"])
    for rank in range(5000):
        watch.add(0, b"[rank%d]: step 1 loss: 2.5" % rank)
    assert len(watch.series) == 4096
    assert "more than 4096 ranks" in watch.notes[0]


def test_a_verdict_is_told_while_the_log_grows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"step {step} loss: {9 - step / 50:.4f}\n" for step in range(100)))
    loss_verdicts: list[LossVerdict] = []
    times = iter(range(0, 100_000, 3))

    def pause(seconds: float) -> None:
        with path.open("a") as more:
            more.write("step 100 loss: nan\nstep 101 loss: nan\nstep 102 loss: nan\n")

    follower = Follower(on_verdict=loss_verdicts.append, clock=lambda: float(next(times)), pause=pause)
    watch, file = LogWatch([str(path)]), FollowedFile(str(path))
    follow([file], watch, follower, stop_on_error=True)
    assert [(verdict.kind, verdict.step) for verdict in loss_verdicts] == [("not-finite", 100)]
    file.close()


def doctor(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "doctor", "watch", *arguments], input=stdin, capture_output=True, text=True, timeout=110
    )


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "".join(
            f"\x1b[31mstep {step} loss: {9 - step / 50 if step < 90 else 'nan'}\x1b]0;x\x07\n" for step in range(120)
        )
    )
    done = doctor("--log", "--once", str(path), "--json")
    document = json.loads(done.stdout)
    assert done.returncode == document["exit"] == 10
    failed = [outcome["check"] for outcome in document["outcomes"] if outcome["findings"]]
    assert failed == ["smoke-not-finite"]
    assert document["losses"][0]["last"] is None
    assert document["losses"][0]["last_step"] == 119


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "text"),
    [
        (("-",), "step 1 loss: 2.5\n", 12, "too few"),
        (("-",), "nothing\n", 78, "found no loss in the log"),
        (("--once", "/nowhere/log"), "", 78, "No such file"),
        (("-", "--loss-regex", "(a+)+"), "", 2, "repetition"),
        ((), "", 2, "expected doctor watch --log FILE"),
        (("-", "--ignore", "x"), "", 2, "no check"),
    ],
    ids=["too-few", "none", "missing", "regex", "no-file", "ignore"],
)
def test_what_the_command_says_of_its_input(arguments: tuple[str, ...], stdin: str, code: int, text: str) -> None:
    done = doctor("--log", *arguments, stdin=stdin)
    assert done.returncode == code, done.stderr
    assert text in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def findings(path: Path) -> dict[str, str]:
    """Of a JSON report: messages by check."""
    outcomes = json.loads(path.read_text())["outcomes"]
    return {outcome["check"]: finding["message"] for outcome in outcomes for finding in outcome["findings"]}


def test_a_log_that_falls_silent_is_a_finding_of_the_report(tmp_path: Path) -> None:
    log, report = tmp_path / "train.log", tmp_path / "report.json"
    log.write_text("step 1 loss=2.5\n")
    options = ("--silent", "1", "--exit-on", "fault", "-q", "-f", f"json={report}")
    assert doctor("--log", str(log), *options).returncode == 10
    assert list(findings(report)) == ["loss-silent"]


def test_a_value_that_continues_a_sentence_keeps_its_blank(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    for rank in (0, 1):
        losses = [2 - step / 100 + (0.5 if rank and step > 60 else 0) for step in range(100)]
        lines = [f"rank {rank}: step {step} loss={loss:.6f}\n" for step, loss in enumerate(losses)]
        (tmp_path / f"rank_{rank}.log").write_text("".join(lines))
    logs = [str(tmp_path / f"rank_{rank}.log") for rank in (0, 1)]
    doctor("--log", "--once", "--same-loss", *logs, "-q", "-f", f"json={report}")
    assert "since step 61 after 61 steps on which it was equal (" in findings(report)["loss-differs-by-rank"]


def test_few_losses_decide_whether_ranks_print_the_same(tmp_path: Path) -> None:
    """20 common steps are enough for that, and for no other rule; 19 are not."""
    logs = [str(tmp_path / f"rank_{rank}.log") for rank in (0, 1)]
    for steps, off, code in ((20, 0.0, 0), (19, 0.0, 12), (20, 0.5, 10)):
        for rank, path in enumerate(logs):
            losses = [2.5 / (step + 1) + (off if rank and step > 6 else 0) for step in range(steps)]
            Path(path).write_text("".join(f"step {step} loss={loss:.5f}\n" for step, loss in enumerate(losses)))
        report = tmp_path / "report.json"
        done = doctor("--log", "--once", "--same-loss", *logs, "-q", "-f", f"json={report}", "--fail-on", "error")
        assert done.returncode == code, (steps, off, done.stdout)
        assert list(findings(report)) == (["loss-differs-by-rank"] if off else [])


LOST = (
    "[INFO] HCCL(686,python):2025-10-23-07:52:59.191.363 [heartbeat.cc:951] [8970][TaskExecStage][HeartbeatAbnormal]"
    "local rank [127.10.0.1/1]: crimer rank [127.10.0.2/2] status[LOST] by informer rank [127.10.0.3/3]\n"
)
"""Source: hicann/hccl, docs/zh/user_guide/fault_diagnosis/task_exec_stage.md."""


@pytest.mark.parametrize("options", [("--once",), ("--exit-on", "fault")])
def test_a_device_that_hccl_s_heartbeat_names(tmp_path: Path, options: tuple[str, ...]) -> None:
    log, report = tmp_path / "train.log", tmp_path / "report.json"
    log.write_text("step 1 loss=2.5\n" + LOST)
    done = doctor("--log", str(log), *options, "-q", "-f", f"json={report}", "--save", str(tmp_path / "run"))
    assert (done.returncode, done.stderr) == (10, "")
    assert "HCCL's heartbeat names host 127.10.0.2, device 2" in findings(report)["smoke-rank-blocked"]
    argv = [sys.executable, "-m", "doctor", "report", str(tmp_path / "run")]
    again = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert again.returncode == 10 and "keeps the others waiting: HCCL's heartbeat names" in again.stdout


def test_an_interrupt_ends_with_the_report(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"step {step} loss: {9 - step / 50:.4f}\n" for step in range(100)))
    process = subprocess.Popen(
        [sys.executable, "-m", "doctor", "watch", "--log", str(path), str(tmp_path / "later.log")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    timer = threading.Timer(100, process.kill)
    timer.start()
    assert "waiting for it" in process.stderr.readline()
    process.terminate()
    out, _ = process.communicate()
    timer.cancel()
    assert process.returncode == 143
    assert "steps 0 to 99" in out
