"""What the program on a host sends is enough: the diagnosis of the lines that it chooses is that of the whole logs."""

from __future__ import annotations

import base64
import gzip
import json
import os
import pickle
import random
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from doctor.diagnose.decide import diagnose
from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.excerpter.excerpt import EDGE_LINES, MAX_ALIKE
from doctor.diagnose.fetch.ask_hosts import EXCERPTER, MIN_INFLATED, LogAnswer, LogRequest, ask_hosts
from doctor.diagnose.fetch.excerpt_reading import read_record, unread_logs
from doctor.diagnose.fetch.saved_logs import SCHEMA, HostLogs, LogExcerpt, LogRecord, load_logs
from doctor.diagnose.run import diagnose_found
from doctor.diagnose.signature import load_signatures
from doctor.engine.errors import InputError
from doctor.transport import CommandResult
from doctor.transport.local import Local
from tests.diagnose.test_cases import CASES, LOGS
from tests.diagnose.test_flight_recorder import SUM, dump
from tests.diagnose.test_issue_threads import THREADS
from tests.diagnose.test_rules import TIMED_OUT
from tests.test_collector import PYTHONS

SIGNATURES = load_signatures()
PARTS = 8
"""Of the threads: each is judged within seconds, all of them in two minutes."""


def ask(folder: Path, **options: Any) -> HostLogs:
    """The answer of this machine."""
    request = LogRequest(places=(str(folder),), **{"timeout": 60.0, **options})
    return ask_hosts(["localhost"], Local(), request, SIGNATURES, 1)["localhost"]


def judged(logs: HostLogs) -> Diagnosis:
    record = LogRecord(SCHEMA, "", "", (), 0.0, {"localhost": logs})
    return diagnose(read_record(record, SIGNATURES), SIGNATURES, unread_logs(record))


def unread(logs: HostLogs) -> list[str]:
    return unread_logs(LogRecord(SCHEMA, "", "", (), 0.0, {"localhost": logs}))


def cause_rows(diagnosis: Diagnosis) -> list[Any]:
    return [
        (
            cause.signature,
            cause.rule,
            cause.culprits,
            [(event.line, event.text, event.time) for event in cause.evidence],
        )
        for cause in diagnosis.causes
    ]


def noise(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    kinds = [
        "[INFO] HCCL(77,python):2026-11-21-12:00:{:02}.000.000 [a.cc:1] step {}",
        "iteration {} loss 0.{}",
        "  at {} {}",
    ]
    return [draw.choice(kinds).format(draw.randrange(60), draw.randrange(10**6)) for _ in range(count)]


def judged_alike(folder: Path, count: int) -> float:
    """Compares the verdicts of each folder in a folder. The share of its bytes that was sent."""
    logs = ask(folder)
    by_case: dict[str, HostLogs] = {}
    for log in logs.files:
        by_case.setdefault(Path(log.path).parent.name, HostLogs([])).files.append(log)
    assert len(by_case) == count
    for name, answer in by_case.items():
        assert cause_rows(judged(answer)) == cause_rows(diagnose_found([str(folder / name)], SIGNATURES)), name
    return sum(len(line) for log in logs.files for _, line in log.kept) / sum(log.size for log in logs.files)


def test_every_known_case_is_judged_alike_from_the_lines_that_a_host_sends(tmp_path: Path) -> None:
    for case in CASES:
        folder = tmp_path / case["name"]
        folder.mkdir()
        for number, name in enumerate(case["files"]):
            lines = (LOGS / name).read_bytes().split(b"\n")
            filler = "\n".join(noise(300, number)).encode()
            (folder / name).write_bytes(filler + b"\n" + b"\n".join(lines) + b"\n" + filler + b"\n")
    assert judged_alike(tmp_path, len(CASES)) < 1 / 3


@pytest.mark.full
@pytest.mark.parametrize("part", range(PARTS))
def test_the_lines_of_public_issue_threads_are_judged_alike(tmp_path: Path, part: int) -> None:
    threads = THREADS[part::PARTS]
    for thread in threads:
        (tmp_path / thread["name"]).mkdir()
        for name, text in thread["files"].items():
            path = tmp_path / thread["name"] / f"{name.removesuffix('.log')}.log"
            path.write_text("\n".join([*noise(300, 1), text, *noise(300, 2)]) + "\n")
    judged_alike(tmp_path, len(threads))


def test_lines_keep_their_numbers_and_the_time_of_the_line_before(tmp_path: Path) -> None:
    lines = [*noise(500, 1), "2026-11-21 12:00:00 saving", "no clock here", "[rank1]: ValueError: bad", *noise(500, 2)]
    lines.insert(0, "[rank1]: Traceback (most recent call last)")
    (tmp_path / "a.log").write_text("\n".join(lines) + "\n")
    (log,) = ask(tmp_path).files
    numbers = [number for number, _ in log.kept]
    assert log.lines == len(lines) and {502, 504} <= set(numbers)
    assert numbers[:EDGE_LINES] == list(range(1, EDGE_LINES + 1)) and numbers[-1] == len(lines)
    assert len(numbers) < 4 * EDGE_LINES


def test_a_task_is_known_from_labels_that_only_lines_which_are_not_sent_show(tmp_path: Path) -> None:
    lines = [f"{rank}: step {step}" for step in range(200) for rank in ((0, 1, 2) if 20 < step < 100 else (0, 1))]
    text = "\n".join([*lines, *(f"{rank}: [rank{rank}]: {TIMED_OUT}" for rank in (0, 1))]) + "\n"
    (tmp_path / "slurm.out").write_text(text)
    (log,) = ask(tmp_path).files
    assert not any(line.startswith("2: ") for _, line in log.kept)
    (cause,) = judged(HostLogs([log])).causes
    assert (cause.signature, [culprit.rank for culprit in cause.culprits]) == ("rank-silent", [2])
    in_part = judged(HostLogs([msgspec.structs.replace(log, complete=False)]))
    assert not in_part.causes and in_part.undecidable


def test_dumps_on_a_host_are_fetched_and_a_pickle_that_holds_more_than_values_is_refused(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump(*SUM[: 3 if rank == 1 else 4]), 2))
        (tmp_path / f"rank_{rank}.log").write_text(TIMED_OUT + "\n")
    (cause,) = judged(ask(tmp_path)).causes
    assert (cause.rule, [culprit.rank for culprit in cause.culprits]) == ("behind in sequence", [1])
    (tmp_path / "nccl_trace_rank_1").write_bytes(b"\x80\x02cos\nsystem\nU\x05touchU\x00\x85R.")
    diagnosis = judged(ask(tmp_path))
    assert any("pickle that was not read" in note for file in diagnosis.files for note in file.notes)


def test_a_dump_beyond_the_limit_of_bytes_is_left_out_and_that_is_said(tmp_path: Path) -> None:
    from doctor.diagnose.fetch import ask_hosts as module

    noise = random.Random(1).randbytes(module.MAX_ANSWER + 1)
    (tmp_path / "nccl_trace_rank_0").write_bytes(b"\x80\x02" + noise)
    (tmp_path / "rank_0.log").write_text(TIMED_OUT + "\n")
    answer = ask(tmp_path)
    assert [Path(log.path).name for log in answer.files] == ["rank_0.log"]
    assert [item.reason for item in answer.omitted] == ["a dump beyond the limit of bytes"] and unread(answer)


def test_lines_of_one_kind_and_all_lines_are_bounded_and_that_is_said(tmp_path: Path) -> None:
    alike = "".join(
        f"2026-11-21 12:00:00 [rank{number}]: Timed out waiting {number}ms for recv operation to complete\n"
        for number in range(3000)
    )
    (tmp_path / "alike.log").write_text(alike)
    various = "".join(
        f"{'xyz'[i % 3] * (i % 500)} Timed out waiting 1ms for recv operation to complete {'q' * (i % 700)}\n"
        for i in range(3000)
    )
    (tmp_path / "various.log").write_text(various)
    logs = {Path(log.path).stem: log for log in ask(tmp_path, limit=1 << 18).files}
    assert MAX_ALIKE <= len(logs["alike"].kept) <= MAX_ALIKE + 2 * EDGE_LINES
    assert any("were only counted" in note for note in logs["alike"].notes)
    assert sum(len(line) for _, line in logs["various"].kept) <= 1 << 18
    assert any("left out: the limit of bytes" in note for note in logs["various"].notes)
    assert logs["various"].kept[-1][0] == 3000 and not logs["various"].complete


def test_the_time_limit_ends_a_file_without_end_and_names_what_was_not_read(tmp_path: Path) -> None:
    member = gzip.compress(b"step\n" * (1 << 23), 1)
    with open(tmp_path / "huge.log.gz", "wb") as file:
        for _ in range(1000):
            file.write(member)
    os.utime(tmp_path / "huge.log.gz", (time.time() + 99, time.time() + 99))
    (tmp_path / "older.log").write_text("[rank0]: ValueError: x\n")
    answer = ask(tmp_path, timeout=4.0)
    reasons = {item.reason: item.count for item in answer.omitted}
    notes = [note for log in answer.files for note in log.notes]
    assert "the time limit" in reasons or any("the time limit" in note or "no text" in note for note in notes)
    assert not answer.error


def read_logs(result: CommandResult, marker: str) -> HostLogs:
    """What is made of a host's output."""
    answer = LogAnswer()
    return answer.logs(EXCERPTER.read_answer(result, marker, MIN_INFLATED, answer.read_part))


@pytest.mark.parametrize("python", PYTHONS)
def test_it_runs_by_every_python_that_hosts_may_have(tmp_path: Path, python: str) -> None:
    from doctor.diagnose.fetch import ask_hosts as module

    (tmp_path / "rank_1.log").write_text("[rank1]: ValueError: bad\n" * 3)
    fields = json.dumps(module._fixed_fields(LogRequest(places=(str(tmp_path),)), SIGNATURES.values()))
    request = json.dumps({"marker": "doctor-1", "seconds": 20, **json.loads(fields)})
    text = module.EXCERPTER.source.decode() + f"\nmain({request!r}.encode(), b'')\n"
    # Its stdin stays open: for the program, the end of it means that nobody waits.
    with subprocess.Popen([python, "-I", "-S", "-c", text], stdin=-1, stdout=-1, stderr=-1) as child:
        assert child.stdout and child.stderr
        out, err = child.stdout.read(), child.stderr.read()
    answer = read_logs(CommandResult(0, out, err, 0.0, 0.0), "doctor-1")
    assert not answer.error and len(answer.files[0].kept) == 3, err


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"Welcome!\n",
        b"m notbase64!\n",
        b"m " + b"A" * 5000 + b"\n",
        b"m eJyrVkrNS1GyUjDUUVDKzCtJLUpMLlGyUjAw0FFQKi1OLYIIGgEVAABrlwsS\n",
    ],
)
def test_an_answer_that_is_none_is_an_error_in_words(output: bytes) -> None:
    answer = read_logs(CommandResult(1, output, b"\x1b[31msh: oops\n", 0.0, 0.0), "m")
    assert answer.error and "\x1b" not in answer.error and not answer.files


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no logs saved"),
        ("{}", "no logs saved"),
        ("[" * 100_000, "no logs saved"),
        (
            '{"schema": "x", "source": "", "started": "", "places": [], "since": 0, "hosts": {}}',
            "expected 'doctor.logs/1'",
        ),
        ('{"schema": "doctor.logs/1", "hosts": {"n": {"files": [{"kept": "no"}]}}}', "no logs saved"),
    ],
)
def test_a_file_that_holds_no_saved_lines_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "saved.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_logs(path)


@pytest.mark.full
def test_nothing_is_left_running_when_the_controller_goes_away(tmp_path: Path) -> None:
    with open(tmp_path / "huge.log", "wb") as file:
        file.write(b"x\n")
        file.truncate(1 << 42)
    program = (
        "import sys; from pathlib import Path; from tests.diagnose.test_excerpts import ask; "
        f"ask(Path({str(tmp_path)!r}), timeout=60.0)"
    )
    child = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[2])
    pattern = ["pgrep", "-P", str(child.pid)]
    deadline = time.monotonic() + 60
    while not (pids := subprocess.run(pattern, capture_output=True, text=True).stdout.split()):
        assert time.monotonic() < deadline
    child.kill()
    child.wait()
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline


def excerpt(lines: int, inode: int = 7, path: str = "/share/rank_0.log", text: str = "step") -> LogExcerpt:
    kept = [(number, f"{text} {number}") for number in range(1, lines + 1)]
    return LogExcerpt(path, lines, 0.0, inode, 5, lines, lines, True, [], kept)


def origins(**logs: LogExcerpt) -> list[tuple[str, int]]:
    record = LogRecord(SCHEMA, "", "", (), 0.0, {host: HostLogs([log]) for host, log in logs.items()})
    return [(reading.summary.origin, reading.summary.lines) for reading in read_record(record, SIGNATURES)]


def test_a_log_on_a_shared_file_system_is_read_once_and_is_of_no_host() -> None:
    assert origins(n1=excerpt(30), n2=excerpt(30)) == [("", 30)]
    assert origins(n1=excerpt(30), n2=excerpt(40)) == [("", 40)], "it grew between the two visits"
    assert origins(n1=excerpt(30), n2=excerpt(30, inode=8)) == [("n1", 30), ("n2", 30)]
    assert origins(n1=excerpt(30), n2=excerpt(30, text="rank 1 step")) == [("n1", 30), ("n2", 30)]


def test_a_host_that_sends_more_than_was_asked_for_is_cut_off() -> None:
    bomb = base64.b64encode(zlib.compress(b"0" * (80 << 20)))
    answer = read_logs(CommandResult(0, b"m " + bomb + b"\n", b"", 0.0, 0.0), "m")
    assert not answer.files and answer.error == "its answer exceeds 64 MiB"


def test_a_traceback_without_its_first_line_is_sent_with_its_exception(tmp_path: Path) -> None:
    frames = [f'  File "/work/train.py", line {line}, in step\n    loss = model(batch)' for line in range(40)]
    text = "\n".join([*frames, "mypackage.errors.BatchExhausted: no sample is left", *noise(60, 7)])
    tmp_path.joinpath("rank_0.log").write_text(text + "\n")
    (log,) = ask(tmp_path).files
    assert any("BatchExhausted" in line for _, line in log.kept)


def test_the_process_in_which_ray_says_that_an_exception_was_raised_is_the_same_as_in_the_whole_log(
    tmp_path: Path,
) -> None:
    head = "\n".join(noise(60, 5))
    frames = "\n".join(f'  File "/work/a.py", line {line}, in f\n    g()' for line in range(12))
    text = (
        f"{head}\nTraceback (most recent call last):\n{frames}\n"
        "  ray::Worker.step() (pid=4711, ip=10.0.0.7, actor_id=0a)\n"
        f"{frames}\nValueError: no sample is left\n" + "\n".join(noise(60, 6)) + "\n"
    )
    tmp_path.joinpath("driver.log").write_text(text)
    assert cause_rows(judged(ask(tmp_path))) == cause_rows(diagnose_found([str(tmp_path)], SIGNATURES))
    assert "10.0.0.7" in str(cause_rows(judged(ask(tmp_path))))
