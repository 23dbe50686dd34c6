from __future__ import annotations

import base64
import bz2
import gzip
import io
import lzma
import os
import random
import re
import shutil
import subprocess
import tarfile
import time
import zipfile
import zlib
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.diagnose.decide import diagnose
from doctor.diagnose.events import TIME_ENDED
from doctor.diagnose.excerpter.excerpt import LogReader
from doctor.diagnose.excerpter.line_choice import DROPPED, ShapeIndex, WordGrams, launcher_labels
from doctor.diagnose.read.file_names import NameHints, read_names
from doctor.diagnose.read.matcher import Matcher
from doctor.diagnose.read.readings import MAX_UNREAD, read_all
from doctor.diagnose.read.scan import scan
from doctor.diagnose.read.sources import find_sources
from doctor.diagnose.read.stamps import LOOK_BACK, TimesAbove, first_time, read_stamp, stamp_of_message
from doctor.diagnose.separate_jobs import diagnose_jobs
from doctor.diagnose.signature import load_signatures
from doctor.engine.errors import InputError
from tests.diagnose.test_rules import logs, named

SIGNATURES = load_signatures()
MATCHER = Matcher(SIGNATURES.values())
KILLED = b"[rank1]: RuntimeError: Timed out waiting 6000ms for recv operation to complete\n"
LOG = b"step 1\nstep 2\n" + KILLED


def events_of(*paths: Path) -> list[tuple[str, int]]:
    readings = read_all(find_sources([str(path) for path in paths]), SIGNATURES)
    return [(event.signature, event.line) for reading in readings for event in reading.events]


@pytest.mark.parametrize(
    ("name", "pack"),
    [("a.log", bytes), ("a.log.gz", gzip.compress), ("a.log.bz2", bz2.compress), ("a.log.xz", lzma.compress)],
)
def test_a_compressed_file_is_read_like_a_plain_one(tmp_path: Path, name: str, pack) -> None:
    (tmp_path / name).write_bytes(pack(LOG))
    assert events_of(tmp_path) == [("gloo-timeout", 3)]


def xz_that_wants(exponent: int) -> bytes:
    """A sound .xz of which the header asks for a dictionary of 2 ** exponent bytes."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << exponent}]
    compressor = lzma.LZMACompressor(filters=filters)
    return compressor.compress(LOG) + compressor.flush()


@pytest.mark.parametrize("name", ["a.log.xz", "a.tar.xz"])
def test_an_xz_that_asks_for_too_much_memory_is_a_note_of_its_file(tmp_path: Path, name: str) -> None:
    packed = xz_that_wants(12)
    header = packed.index(b"\x21\x01", 12)
    damaged = bytearray(packed)
    damaged[header + 2] = 37  # a dictionary of 3 GiB
    start, length = 12, (packed[12] + 1) * 4
    damaged[start + length - 4 : start + length] = zlib.crc32(damaged[start : start + length - 4]).to_bytes(4, "little")
    (tmp_path / name).write_bytes(damaged)
    (tmp_path / "b.log").write_bytes(LOG)
    readings = read_all(find_sources([str(tmp_path)]), SIGNATURES)
    assert [[event.signature for event in reading.events] for reading in readings] == [[], ["gloo-timeout"]]
    assert "Memory usage limit" in readings[0].summary.notes[0]
    assert readings[0].summary.incomplete


def test_an_archive_of_xz_and_several_streams_in_one_file_are_read(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.xz", "w:xz") as archive:
        member = tarfile.TarInfo("rank_0.log")
        member.size = len(LOG)
        archive.addfile(member, io.BytesIO(LOG))
    (tmp_path / "b.log.xz").write_bytes(lzma.compress(LOG) + bytes(8) + lzma.compress(LOG))
    assert events_of(tmp_path) == [("gloo-timeout", 3), ("gloo-timeout", 3), ("gloo-timeout", 6)]


def test_the_holes_of_a_sparse_log_are_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "rank0.log", "wb") as file:
        file.write(b"step\n" * 9000 + LOG)
        file.seek(1 << 40)
        file.write(LOG)
        file.truncate(1 << 42)
    began = time.monotonic()
    assert [name for name, _ in events_of(tmp_path)] == ["gloo-timeout"] * 2
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("where", [0, 1, 3])
def test_what_a_crash_leaves_between_the_lines_is_no_sign_of_a_binary_file(where: int, tmp_path: Path) -> None:
    parts = [b"step 1\n", LOG, b"step 2\n"]
    parts.insert(where, b"\0" * 3000)
    (tmp_path / "rank0.log").write_bytes(b"".join(parts))
    (tmp_path / "archive.log").write_bytes(
        b"rank0.log" + b"\0" * 91 + b"".join(b"%07o\0" % n for n in range(300)) + LOG
    )
    assert [name for name, _ in events_of(tmp_path)] == ["gloo-timeout"]


def test_the_time_limit_holds_in_every_file_and_is_noted(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(LOG)
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        for number in range(3):
            member = tarfile.TarInfo(f"rank_{number}.log")
            member.size = len(LOG)
            archive.addfile(member, io.BytesIO(LOG))
    readings = read_all(find_sources([str(tmp_path)]), SIGNATURES, until=time.monotonic() - 1)
    assert [reading.summary.notes for reading in readings] == [[TIME_ENDED]] * 2
    assert all(reading.summary.incomplete for reading in readings)


def test_many_files_behind_the_time_limit_share_one_note(tmp_path: Path) -> None:
    for number in range(MAX_UNREAD + 5):
        (tmp_path / f"rank{number}.log").write_bytes(LOG)
    sources = find_sources([str(tmp_path)])
    *own, last = read_all(sources, SIGNATURES, until=time.monotonic() - 1)
    assert len(own) == MAX_UNREAD and last.summary.name == "5 more files"
    assert {tuple(reading.summary.notes) for reading in (*own, last)} == {(TIME_ENDED,)}
    assert diagnose_jobs([*own, last], SIGNATURES).causes == ()
    (folder,) = find_sources([str(tmp_path)], time.monotonic() - 1)
    assert folder.path == str(tmp_path)
    (reading,) = read_all([folder], SIGNATURES, until=time.monotonic() - 1)
    assert reading.summary.incomplete and reading.summary.notes == [TIME_ENDED]


def test_a_pattern_without_end_is_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(
        """[[signature]]
id = "our-endless"
title = "x"
role = "root"
phase = "exec"
patterns = ['endless: (a+)+$']
"""
    )
    signatures = load_signatures([tmp_path])
    (tmp_path / "a.log").write_bytes(b"endless: " + b"a" * 60 + b"!\n" + LOG)
    began = time.process_time()
    (reading,) = read_all(find_sources([str(tmp_path / "a.log")]), signatures)
    assert time.process_time() - began < 30
    assert [event.signature for event in reading.events] == ["gloo-timeout"]
    assert reading.summary.notes == ["a pattern of signature our-endless took longer than 1 s: it was left out"]


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tgz"])
def test_the_members_of_a_tar_file_are_read_in_place(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"logs.{kind}"
    with tarfile.open(path, "w:gz" if "gz" in kind else "w") as archive:
        for number in range(2):
            member = tarfile.TarInfo(f"node{number}/rank_{number}.log")
            member.size = len(LOG)
            archive.addfile(member, io.BytesIO(LOG))
    assert events_of(path) == [("gloo-timeout", 3)] * 2
    assert os.listdir(tmp_path) == [path.name]


def test_the_members_of_a_zip_file_are_read_in_place(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "logs.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rank_0.log", LOG)
        archive.writestr("rank_1.log.gz", gzip.compress(LOG))
    assert events_of(tmp_path) == [("gloo-timeout", 3)] * 2


@pytest.mark.parametrize("name", ["a.log.gz", "a.tar.gz", "a.zip", "a.tar"])
def test_a_damaged_archive_is_noted_and_the_rest_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(os.urandom(5000))[:2000])
    (tmp_path / "b.log").write_bytes(LOG)
    readings = read_all(find_sources([str(tmp_path)]), SIGNATURES)
    assert [event.signature for reading in readings for event in reading.events] == ["gloo-timeout"]
    assert any(reading.summary.notes for reading in readings if reading.summary.name.endswith(name))


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(LOG)
    (tmp_path / "b.log").symlink_to("a.log")
    assert events_of(tmp_path, tmp_path / "a.log", tmp_path / "b.log") == [("gloo-timeout", 3)]


def test_a_file_that_goes_away_while_a_folder_is_listed_is_noted(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "a.log").write_bytes(LOG)
    lost = str(tmp_path / "b.log")
    monkeypatch.setattr("doctor.diagnose.read.sources._files_of", lambda path: [f"{path}/a.log", lost])
    readings = read_all(find_sources([str(tmp_path)]), SIGNATURES)
    assert [(reading.summary.name, bool(reading.summary.notes)) for reading in readings] == [
        (f"{tmp_path}/a.log", False),
        (lost, True),
    ]


def test_what_is_no_file_is_refused_in_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "missing", tmp_path / "pipe"):
        with pytest.raises(InputError, match=path.name):
            find_sources([str(path)])
    assert events_of(tmp_path) == []


def test_programs_weights_and_other_binary_files_of_a_folder_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(LOG)
    (tmp_path / "model.ckpt").write_bytes(LOG)
    (tmp_path / "core.1234").write_bytes(b"\x7fELF" + bytes(4000) + LOG)
    assert events_of(tmp_path) == []


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe broken " + KILLED,
        "错误: ".encode("gb18030") + KILLED,
        b"x" * 1_000_000 + b"\n" + KILLED,
        b"45%|####      | 450/1000\r" + KILLED,
        b"\x00" * 100 + b"\n" + KILLED,
        b"loss=0.2500" + KILLED,
        b"\x1b[31m" + KILLED,
    ],
)
def test_lines_that_are_no_clean_text_hide_nothing(line: bytes) -> None:
    reading = scan("a.log", [line], MATCHER, file=0, year=2026)
    assert [event.signature for event in reading.events] == ["gloo-timeout"]
    assert all(event.text.isprintable() for event in reading.events)


@given(cut=st.integers(0, len(LOG)))
def test_where_a_file_is_cut_into_blocks_makes_no_difference(cut: int) -> None:
    full = scan("a.log", [LOG], MATCHER, file=0, year=2026)
    parts = scan("a.log", [LOG[:cut], LOG[cut:]], MATCHER, file=0, year=2026)
    assert parts.events == full.events


@given(data=st.binary(max_size=3000))
def test_arbitrary_bytes_are_read_without_an_error(data: bytes) -> None:
    diagnose([scan("a.log", [data], MATCHER, file=0, year=2026)], SIGNATURES)


LINES = [sample.text.encode() for signature in SIGNATURES.values() for sample in signature.samples]


@given(chosen=st.lists(st.sampled_from(LINES), max_size=12), files=st.integers(1, 4), data=st.data())
def test_any_mixture_of_lines_in_any_files_is_diagnosed_without_an_error(chosen, files, data) -> None:
    parts = [b"\n".join(chosen[number::files]) for number in range(files)]
    readings = [scan(f"rank_{n}.log", [part], MATCHER, file=n, year=2026) for n, part in enumerate(parts)]
    first = diagnose(readings, SIGNATURES)
    again = [scan(f"rank_{n}.log", [part], MATCHER, file=n, year=2026) for n, part in enumerate(parts)]
    assert diagnose(data.draw(st.permutations(again)), SIGNATURES) == first


def test_a_flood_of_one_line_is_counted_and_not_kept() -> None:
    reading = scan("a.log", [KILLED * 20_000], MATCHER, file=0, year=2026)
    assert len(reading.events) < 100
    assert any("repeated" in note for note in reading.summary.notes)


@pytest.mark.parametrize(
    ("line", "rank", "pid", "time"),
    [
        ("[rank3]:[E1120 12:00:00.500000 ProcessGroupNCCL.cpp:1] x", 3, "", "11-20 12:00:00"),
        ("[rank12]:[E513 09:08:07.1 ProcessGroupNCCL.cpp:1] x", 12, "", "05-13 09:08:07"),
        ("E1120 12:00:00.123000 4711 torch/distributed/elastic/x.py:1] y", None, "", "11-20 12:00:00"),
        ("[rank3]:W1120 12:00:00.123 4711 torch/distributed/c10d.py:1] y", 3, "4711", "11-20 12:00:00"),
        ("[ERROR] HCCL(77,python):2026-11-20-12:00:00.001.002 [a.cc:1]", None, "77", "11-20 12:00:00"),
        ("[CRITICAL] DEVICE(77,fffd6,python):2026-11-20-12:00:00.001.002 [a.cc:1]", None, "77", "11-20 12:00:00"),
        ("[ERROR] 2026-11-20-12:00:00 (PID:77, Device:0, RankID:5) ERR02200", 5, "77", "11-20 12:00:00"),
        ("n1:77:78 [0] NCCL INFO x", None, "77", None),
        ("[1,7]<stderr>:x", 7, "", None),
        ("3: x", 3, "", None),
        ("Nov 20 12:00:00 n1 kernel: x", None, "", "11-20 12:00:00"),
        ("2026-13-45 99:99:99 x", None, "", None),
    ],
)
def test_the_head_of_a_line(line: str, rank: int | None, pid: str, time: str | None) -> None:
    stamp = read_stamp(line, 2026)
    displayed = None if stamp.time is None else f"{datetime.fromtimestamp(stamp.time, timezone.utc):%m-%d %H:%M:%S}"
    assert (stamp.rank, stamp.pid, displayed) == (rank, pid, time)


@pytest.mark.parametrize(("printer", "pid"), [("EngineCore pid=247", "258"), ("Worker_TP1 pid=300", "247")])
def test_an_error_of_a_device_is_of_the_process_that_its_block_names(printer: str, pid: str) -> None:
    """vLLM's engine prints what its worker was told (vllm-ascend 10122); a block of another printer is no part."""
    head, error = (
        "(EngineCore pid=247) ERROR 06-08 14:11:34 [core.py:1136]",
        "record event failed, runtime result = 507015",
    )
    block = f"({printer}) ERROR 06-08 14:11:34 [core.py:1136] DEVICE[3] PID[258]: "
    lines = [f"{head} {error}[FUNC:ReportCallError][FILE:log_inner.cpp][LINE:148]", f"{head} ", block]
    stamp = stamp_of_message(lines[0], [line.encode() for line in lines], 0, 2026)
    assert (stamp.pid, stamp.device) == (pid, 3 if pid == "258" else None)


@pytest.mark.parametrize(
    ("name", "rank", "local_rank", "host", "device"),
    [
        ("logs/node003/worker_12.log", 12, None, "node003", None),
        ("logs/abc/attempt_0/3/stderr.log", None, 3, "", None),
        ("worker-1/ascend/log/debug/device-3/device-9_2025.log", None, None, "worker-1", 3),
        ("rank_7.log", 7, None, "", None),
        ("10.0.0.7/plog/plog-1234_20251024220314.log", None, None, "10.0.0.7", None),
        ("train.log", None, None, "", None),
    ],
)
def test_what_a_file_name_shows_beside_others_of_its_form(name: str, rank, local_rank, host: str, device) -> None:
    beside = re.sub(r"(node|worker_|worker-|rank_)(\d+)", lambda match: f"{match[1]}{int(match[2]) + 1:03}", name)
    hints, _ = read_names([name, beside])
    assert (hints.rank, hints.local_rank, hints.host, hints.device) == (rank, local_rank, host, device)


@pytest.mark.parametrize(
    "names",
    [
        ("lora_r16.log",),
        ("exp-r8-lr3.log",),
        ("task_2.log",),
        ("rank_7.log",),
        ("npu_507035_device1_norank.log",),
        ("gpu_4090/train.log", "gpu_4090/eval.log"),
        ("train-20261121.log",),
        ("lora_r8.log", "lora_r16.log", "lora_r64.log"),
        ("task_5.log", "task_9.log"),
        ("job_77/rank_0.log", "job_78/rank_0.log"),
    ],
    ids="+".join,
)
def test_a_number_in_which_no_names_differ_as_ranks_do_is_no_rank_host_or_device(names: tuple[str, ...]) -> None:
    assert set(read_names(names)) == {NameHints()}


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (("rank_1.log", "rank_2.log.gz", "rank_3.log.zst"), [1, 2, 3]),
        (("n0/rank_0.log", "n1/rank_1.log"), [0, 1]),
        (("r0.log", "r1.log", "r3.log"), [0, 1, 3]),
        (("rank_0_20261121120000.log", "rank_1_20261121120007.log"), [0, 1]),
        (("rank_17.log", "rank_301.log"), [17, 301]),
        (("lora_r16_rank0.log", "lora_r16_rank1.log"), [0, 1]),
    ],
)
def test_a_number_in_which_several_names_differ_is_a_rank(names: tuple[str, ...], ranks: list[int]) -> None:
    assert [hints.rank for hints in read_names(names)] == ranks


@pytest.mark.parametrize(
    ("names", "hosts"),
    [
        (("fr0001/rank_0.log", "fr0001/rank_1.log", "fr0002/rank_2.log"), ["fr0001", "fr0001", "fr0002"]),
        (("fr0001/rank_0.log", "fr0002/rank_0.log"), ["", ""]),  # of two runs
        (("lora8/rank_0.log", "lora16/rank_1.log", "lora32/rank_3.log"), ["", "", ""]),
        (("attempt1/rank_0.log", "attempt2/rank_1.log"), ["", ""]),
    ],
)
def test_folders_whose_ranks_make_up_one_job_are_its_hosts(names: tuple[str, ...], hosts: list[str]) -> None:
    assert [hints.host for hints in read_names(names)] == hosts


def test_a_name_alone_accuses_no_rank_and_no_host(tmp_path: Path) -> None:
    (tmp_path / "npu_507035_lora_r16.log").write_text("OSError: [Errno 28] No space left on device\n")
    (cause,) = diagnose(read_all(find_sources([str(tmp_path)]), SIGNATURES), SIGNATURES).causes
    assert [(culprit.rank, culprit.host) for culprit in cause.culprits] == [(None, "")]
    assert "npu_507035_lora_r16.log" in cause.summary


ZSTD = bytes.fromhex("28b52ffd2404c1000068656c6c6f0a") + b"\x41" * 60
has_zstd = pytest.mark.skipif(not shutil.which("zstd"), reason="the program zstd is not installed")


def zstd(data: bytes, *options: str) -> bytes:
    return subprocess.run(["zstd", "-qc", *options], input=data, stdout=subprocess.PIPE, check=True).stdout


@has_zstd
def test_logs_and_archives_that_zstd_compressed_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.log.zst").write_bytes(zstd(LOG) + zstd(LOG))
    (tmp_path / "rank_1.log").write_bytes(LOG)
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        archive.add(tmp_path / "rank_1.log", "rank_1.log")
    (tmp_path / "b.tar.zst").write_bytes(zstd((tmp_path / "b.tar").read_bytes()))
    assert [line for _, line in events_of(tmp_path / "a.log.zst")] == [3, 6]
    assert [line for _, line in events_of(tmp_path / "b.tar.zst")] == [3]


@has_zstd
def test_a_zstd_that_asks_for_too_much_memory_or_is_cut_is_a_note_of_its_file(tmp_path: Path) -> None:
    packed = bytearray(zstd(LOG))
    packed[5] = 21 << 3  # of the header: a window of 2 GiB
    (tmp_path / "a.log.zst").write_bytes(packed)
    (tmp_path / "b.log.zst").write_bytes(zstd(LOG)[:-9])
    readings = read_all(find_sources([str(tmp_path)]), SIGNATURES)
    assert all("could be read only in part: zstd" in reading.summary.notes[0] for reading in readings)


@has_zstd
def test_the_deadline_holds_for_a_zstd_of_endless_lines(tmp_path: Path) -> None:
    with (tmp_path / "a.log.zst").open("wb") as file:
        file.write(zstd(b"step 1\n" * (1 << 20)) * 4000)
    began = time.monotonic()
    (reading,) = read_all(find_sources([str(tmp_path)]), SIGNATURES, until=began)
    assert TIME_ENDED in reading.summary.notes and reading.summary.bytes < 1 << 30


def test_a_rank_whose_log_is_compressed_by_zstd_is_not_called_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no program unpacks it
    for rank in (0, 1, 2):
        (tmp_path / f"rank_{rank}.log").write_bytes(KILLED.replace(b"rank1", b"rank%d" % rank))
    (tmp_path / "rank_3.log.zst").write_bytes(ZSTD)
    diagnosis = diagnose(read_all(find_sources([str(tmp_path)]), SIGNATURES), SIGNATURES)
    assert not diagnosis.causes and diagnosis.undecidable
    assert any("unpack it with zstd -d" in note for file in diagnosis.files for note in file.notes)
    (tmp_path / "rank_3.log.zst").unlink()
    (tmp_path / "rank_3.log").write_text("step 1\n")
    diagnosis = diagnose(read_all(find_sources([str(tmp_path)]), SIGNATURES), SIGNATURES)
    assert [culprit.rank for cause in diagnosis.causes for culprit in cause.culprits] == [3]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become a user that may not open a folder")
def test_a_folder_that_may_not_be_opened_is_said_and_no_rank_is_called_silent_for_it(tmp_path: Path) -> None:
    for rank in (0, 1, 2):
        text = f"rank {rank} world_size=4\n".encode() + KILLED.replace(b"rank1", b"rank%d" % rank)
        (tmp_path / f"rank_{rank}.log").write_bytes(text)
    (tmp_path / "n3").mkdir(mode=0o700)
    (tmp_path / "n3" / "train.log").write_text("[rank3]: OSError: [Errno 28] No space left on device\n")
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    os.seteuid(65534)
    try:
        readings = read_all(find_sources([str(tmp_path)]), SIGNATURES)
    finally:
        os.seteuid(0)
    diagnosis = diagnose_jobs(readings, SIGNATURES)
    assert not diagnosis.causes and diagnosis.undecidable
    assert any("n3: cannot be opened: Permission denied" in text for text in diagnosis.undecidable.needed)


class TestFilesThatChange:
    """A log changes between the moment it is found and the end of its reading, on this machine and on hosts."""

    def test_what_was_appended_is_read_and_said(self, tmp_path: Path) -> None:
        path = tmp_path / "a.log"
        path.write_bytes(b"step 1\n")
        sources = find_sources([str(path)])
        path.write_bytes(b"step 1\n" + KILLED)
        (reading,) = read_all(sources, SIGNATURES)
        assert [event.signature for event in reading.events] == ["gloo-timeout"]
        assert reading.summary.notes == [f"grew by {len(KILLED)} bytes while it was read: a program still writes to it"]
        assert not reading.summary.incomplete

    def test_a_program_that_writes_without_end_ends_the_reading(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("doctor.diagnose.read.sources.MAX_GROWTH", 2 << 20)
        path = tmp_path / "a.log"
        path.write_bytes(LOG)
        sources = find_sources([str(path)])
        path.write_bytes(LOG + (b"x" * 1000 + b"\n") * (8 << 10))
        (reading,) = read_all(sources, SIGNATURES)
        assert [event.signature for event in reading.events] == ["gloo-timeout"]
        assert reading.summary.bytes <= 3 << 20

    @pytest.mark.parametrize("rest", [b"", b"step 2\n"])
    def test_a_log_that_lost_bytes_is_no_witness_of_silence(self, tmp_path: Path, rest: bytes) -> None:
        path = tmp_path / "a.log"
        path.write_bytes(b"step 1\n" + KILLED)
        sources = find_sources([str(path)])
        path.write_bytes(rest)
        (reading,) = read_all(sources, SIGNATURES)
        assert reading.summary.incomplete
        assert reading.summary.notes == ["was cut or replaced while it was read: a part may be missing"]

    def test_a_log_that_does_not_change_has_no_note(self, tmp_path: Path) -> None:
        (tmp_path / "a.log").write_bytes(LOG)
        (reading,) = read_all(find_sources([str(tmp_path)]), SIGNATURES)
        assert reading.summary.notes == [] and not reading.summary.incomplete

    @pytest.mark.parametrize(
        ("change", "note", "complete"),
        [(KILLED, "grew by", True), (None, "was cut or replaced", False), (b"", "", True)],
    )
    def test_on_a_host(self, tmp_path: Path, change: bytes | None, note: str, complete: bool) -> None:
        path = tmp_path / "a.log"
        path.write_bytes(LOG)
        index = ShapeIndex([])
        reader = LogReader(index, 1 << 20)

        def read_blocks(blocks) -> None:
            LogReader.read_blocks(reader, blocks)
            path.write_bytes(b"" if change is None else LOG + change)

        reader.read_blocks = read_blocks
        reader.read(str(path), path.name)
        assert reader.complete is complete
        assert [text[: len(note)] for text in reader.notes] == ([note] if note else [])


def test_base64_in_a_log_is_no_line_of_a_signature_and_hides_none() -> None:
    draw = random.Random(5)
    encoded = base64.b64encode(draw.randbytes(6_000)).decode()
    wrapped = "\n".join(encoded[at : at + 76] for at in range(0, len(encoded), 76))
    line = "[rank1]: ValueError: bad batch"
    for text in (f"{wrapped}\n{line}\n{wrapped}\n", f"{line} {encoded}\n", f"x\n{line}\n{encoded}\n"):
        assert named(logs(train=text)) == [("python-exception", "local fault", [1])]
    path = "/opt/software/distributed/training/libraries/programs/launchers/orted"
    words = WordGrams([b"lunhrs"], False)
    assert words[path.encode().translate(None, DROPPED).split()[0]] == [b"lunhrs"]


def test_the_time_of_a_line_with_the_number_of_a_thread_is_read_and_the_number_is_no_process() -> None:
    stamp = read_stamp("E0813 06:09:49.845341 140336920782592 torch/_inductor/subproc_pool.py:205] ptxas fatal", 2026)
    assert stamp.time is not None and not stamp.pid
    assert read_stamp("E0813 06:09:49.845341 4711 torch/_inductor/subproc_pool.py:205] x", 2026).pid == "4711"


@pytest.mark.parametrize(
    ("line", "pid", "time"),
    [
        (
            "E0511 18:18:50.796514     915 session_master.cc:505] Session is failing",
            "915",
            "2026-05-11 18:18:50.796514",
        ),
        ("F0000 00:00:1700000000.123456    7 parse.cc:12] bad", "7", "2023-11-14 22:13:20.123456"),
        ("2020-11-24 20:22:28.106 /bin/bash: line 27:   318 Killed     sh start.sh", "318", "2020-11-24 20:22:28.106"),
    ],
)
def test_heads_of_native_code_have_a_time(line: str, pid: str, time: str) -> None:
    stamp = read_stamp(line, 2026)
    assert stamp.pid == pid and stamp.time is not None
    assert abs(stamp.time - datetime.fromisoformat(time).replace(tzinfo=timezone.utc).timestamp()) < 1e-3


@pytest.mark.parametrize(
    "label",
    [
        "[1,3]<stderr>:",
        "Sat Nov 28 02:31:33 2026[1,3]<stderr>:",
        "[1,3]<stderr>: ",
        "[prterun-n1-4711@1,3]<stderr>: ",
        "[1,3][n1:4711]<stderr>: ",
        "[3]<stderr>: ",
        "[Sat Nov 28 02:31:33 2026][3]<stderr>: ",
        "[1,mpirank:3,algo-1]<stderr>:",
    ],
)
def test_the_labels_of_open_mpi_4_and_5_name_the_rank(label: str) -> None:
    """--tag-output and --timestamp-output of 4; --output tag, tag-fullname, tag-detailed, rank and timestamp of 5."""
    text = (
        f'{label}Traceback (most recent call last):\n{label}  File "t.py", line 1, in <module>\n{label}ValueError: no\n'
    )
    (cause,) = logs(mpirun=text).causes
    assert cause.culprits[0].rank == 3, cause
    assert launcher_labels(text.encode()) == (3,)


def test_a_list_of_two_numbers_at_the_beginning_of_a_line_is_no_label() -> None:
    assert read_stamp("[1,3] is no shape for these: ValueError: bad", 2026).rank is None


def test_mpirun_s_label_before_each_part_of_a_line_is_no_part_of_its_text() -> None:
    """mpirun --tag-output labels each write, and Python writes the last line of a traceback in parts."""
    text = (
        '[1,1]<stderr>:Traceback (most recent call last):\n[1,1]<stderr>:  File "t.py", line 1, in <module>\n'
        "[1,1]<stderr>:ValueError[1,1]<stderr>:: [1,1]<stderr>:no such tool[1,1]<stderr>:\n"
    )
    (cause,) = logs(mpirun=text).causes
    assert cause.evidence[0].text.endswith("ValueError: no such tool") and cause.culprits[0].rank == 1
    dated = text.replace("[1,1]", "Sat Nov 28 02:31:33 2026[1,1]")  # --timestamp-output as well
    (cause,) = logs(mpirun=dated).causes
    assert cause.evidence[0].text.endswith("ValueError: no such tool") and cause.culprits[0].rank == 1
    stamped = (
        "Fri Aug 11 12:31:45 2023[1,3]<stdout>:n1:50:81 [3] transport.cc:154 NCCL WARN Cuda failure 'invalid argument'"
    )
    (cause,) = logs(mpirun=stamped).causes
    assert cause.culprits[0].rank == 3


def test_lines_with_the_shape_of_a_literal_are_read_only_in_blocks_that_hold_it() -> None:
    """``file`` and ``failed`` are of one shape."""
    matcher = Matcher(load_signatures().values())
    file, failed = b"metadata of the file 7", b"[rank1]: collective Error: Hccl failed"
    for block, expected in (([file] * 1000, 0), ([file] * 1000 + [failed], 1001), ([file] * 10, 10)):
        shapes = [line.translate(None, DROPPED) for line in block]
        needed = matcher.needed(matcher.hot_shapes(shapes), shapes, b"\n".join(block))
        assert sum(map(needed.__contains__, shapes)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_the_time_above_a_line_is_that_of_reading_all_lines_above_it(seed: int) -> None:
    draw = random.Random(seed)
    lines = [b"2026-11-20 12:00:%02d x" % (n % 60) if draw.random() < 0.004 else b"no time" for n in range(2000)]
    places = [draw.randrange(2000) for _ in range(40)]
    times = TimesAbove(2026)
    for place in places + sorted(places):
        assert times.at(lines, place) == first_time(reversed(lines[: place + 1][-LOOK_BACK:]), 2026)
