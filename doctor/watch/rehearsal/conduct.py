"""Runs a rehearsed launch line, bounded in time and output, and brings back what each rank got; leaves nothing."""

from __future__ import annotations

import base64
import os
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from doctor.engine.bounded_read import read_bounded
from doctor.engine.decoding import inflate
from doctor.engine.errors import InputError
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.remote.bootstrap import assemble
from doctor.watch.rehearsal.rank_view import RankView, StubAnswer, view_of
from doctor.watch.rehearsal.substitute import CannotRehearse, Rehearsed, rehearsed_line

PREFIX = ".doctor-rehearsal-"
MARK = "doctor-rehearsal-answer: "
MAX_OUTPUT = 8 << 20
"""Bytes that are read of the launcher's output; the rest is thrown away."""
MAX_ANSWER = 4 << 20
MAX_RANKS = 16384
MOST_RUNS = 16
END_SECONDS = 5.0
"""For the launcher to end its ranks, before it is killed."""


class RehearsalResult(NamedTuple):
    """What came of it."""

    views: tuple[RankView, ...]
    line: Rehearsed
    code: int | None
    """Of the launcher; None: its time was over."""
    seconds: float
    output: tuple[str, ...]
    """Last lines that the launcher printed."""
    unread: int = 0
    """Answers that could not be read."""
    schedulers: tuple[RankView, ...] = ()
    """Processes of the program that are no ranks: those of MindSpore that only bring the others together."""
    later: tuple[tuple[RankView, ...], ...] = ()
    """Of each later run of the program, as by a loop."""

    @property
    def is_over(self) -> bool:
        """The launcher has ended well, or runs its program again after all ranks of the first run had ended."""
        return self.code == 0 or (self.code is None and bool(self.later))


def rehearse(argv: Sequence[str], environ: Mapping[str, str], seconds: float) -> RehearsalResult:
    """Starts the line with a stub. Raises: InputError where the program cannot be replaced."""
    name = f"{PREFIX}{secrets.token_hex(6)}"
    stub = f"{name}.py"
    try:
        first = rehearsed_line(argv, environ, stub, name)
        folder = _folder(os.path.join(first.folder, first.start, first.program))
        results = folder / f"{name}.d"
        line = rehearsed_line(argv, environ, stub, str(results))
        _require_programs(line)
    except CannotRehearse as error:
        raise InputError(filled("this line cannot be rehearsed: {0}", error)) from None
    path = folder / stub
    try:
        results.mkdir(mode=0o700)
        with path.open("x", encoding="utf-8") as file:  # never through a link that somebody laid there meanwhile
            constants = (str(results), max(2, int(seconds)), MARK)
            file.write(assemble("doctor.watch.rehearsal.stub").replace('("", 30, "")', repr(constants), 1))
        return _run(line, results, seconds)
    except OSError as error:
        raise InputError(
            filled("{0}: {1}; expected a folder that can be written", printable(str(folder), 200), error.strerror)
        ) from None
    finally:
        with suppress(OSError):
            path.unlink()
        shutil.rmtree(results, ignore_errors=True)
        with suppress(OSError):  # where an interpreter has compiled it
            for compiled in (folder / "__pycache__").glob(f"{name}*"):
                compiled.unlink()


def _folder(program: str) -> Path:
    folder = Path(os.path.abspath(program)).parent
    if not folder.is_dir():
        raise CannotRehearse(filled("{0}: there is no such folder on this host", printable(str(folder), 200)))
    return folder


def _require_programs(rehearsed: Rehearsed) -> None:
    """A file, or one that the job's PATH has, and the launcher. Raises: CannotRehearse, InputError."""
    line = rehearsed.line
    path = rehearsed.environ.get("PATH", os.defpath)
    folders = dict.fromkeys((rehearsed.start, line.folder))  # a wrapper script lies in that of the launcher
    is_there = any(os.path.exists(os.path.join(rehearsed.folder, folder, line.program)) for folder in folders)
    if not line.is_module and not is_there and shutil.which(line.program, path=path) is None:
        raise CannotRehearse(filled("{0}: there is no such file on this host", printable(line.program, 200)))
    launcher = rehearsed.argv[0]
    if shutil.which(launcher, path=path) is None:
        raise InputError(filled("{0}: there is no such program on this host", printable(launcher, 200)))


def _run(line: Rehearsed, results: Path, seconds: float) -> RehearsalResult:
    started = time.monotonic()
    with subprocess.Popen(
        line.argv,
        env={**line.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=line.folder or None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        assert process.stdout
        output = _Output(process.stdout)
        try:
            code: int | None = process.wait(seconds)
            while code == 0 and _group_lives(process.pid) and time.monotonic() < started + seconds:
                time.sleep(0.05)  # msrun without --join ends before its ranks
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
            output.join()
    views, unread = _views([*_files(results)])
    printed, _ = _views([*_whole(output.answers)])
    views = tuple(sorted({_key(view): view for view in (*printed, *views)}.values(), key=_order))
    lines = tuple(printable(text, 300) for text in output.last_lines())
    every = tuple(view for view in views if not view.is_scheduler)
    ranks, *later = runs_of(every) or [()]
    schedulers = tuple(view for view in views if view.is_scheduler)
    took = time.monotonic() - started
    return RehearsalResult(ranks, line, code, took, lines, unread, schedulers, tuple(later))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the launcher and all of its session; a launcher that is asked first ends its ranks on other hosts."""
    for number, patience in ((signal.SIGTERM, END_SECONDS), (signal.SIGKILL, END_SECONDS)):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            if number == signal.SIGKILL or not _group_lives(process.pid):
                return


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


class _Output:
    """The launcher's output: answers of ranks that could not write a file, and its last lines."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.answers: list[bytes] = []
        self._tail: list[bytes] = []
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: IO[bytes]) -> None:
        size, mark = 0, MARK.encode()
        with suppress(OSError, ValueError):
            for text in iter(lambda: stream.readline(MAX_ANSWER), b""):
                size += len(text)
                if size > MAX_OUTPUT * 8:
                    continue
                _, separator, answer = text.partition(mark)
                if separator:  # a launcher may put the rank's number before it
                    self.answers.append(answer)
                elif text.strip() and size <= MAX_OUTPUT:
                    self._tail = [*self._tail[-19:], text]

    def join(self) -> None:
        self._thread.join(2.0)

    def last_lines(self) -> list[str]:
        return [text.decode("utf-8", "replace").rstrip() for text in self._tail]


def _whole(lines: Sequence[bytes]) -> Iterator[bytes]:
    """The answers whose lines came back, all of them; what a launcher has mixed or lost is in the files, if at all."""
    parts: dict[tuple[bytes, int], dict[int, bytes]] = {}
    for line in lines:
        fields = line.split()
        if len(fields) == 4 and fields[1].isdigit() and fields[2].isdigit() and max(map(len, fields[1:3])) < 5:
            parts.setdefault((fields[0], int(fields[2])), {})[int(fields[1])] = fields[3]
    for (_, total), answer in parts.items():
        if answer.keys() == set(range(total)):
            with suppress(ValueError):
                data = base64.b64decode(b"".join(answer[place] for place in range(total)), validate=True)
                yield inflate(data, MAX_ANSWER)


def _files(results: Path) -> Iterator[bytes]:
    names = sorted(name for name in os.listdir(results) if name.endswith(".json"))
    for name in names[:MAX_RANKS]:
        with suppress(OSError):
            yield read_bounded(results / name, MAX_ANSWER)


def _views(answers: Sequence[bytes]) -> tuple[tuple[RankView, ...], int]:
    views, unread = dict[tuple[str, int], RankView](), 0
    for data in answers:
        try:
            view = view_of(msgspec.json.decode(data, type=StubAnswer))
        except (msgspec.DecodeError, UnicodeError, ValueError):
            unread += 1
            continue
        views[_key(view)] = view
    return tuple(sorted(views.values(), key=_order)), unread


def runs_of(views: Sequence[RankView]) -> list[tuple[RankView, ...]]:
    """Each run of the program, `MOST_RUNS` at most."""
    runs: list[tuple[RankView, ...]] = []
    while views and len(runs) < MOST_RUNS:
        runs.append(_first_run(views))
        kept = {*map(_key, runs[-1])}
        views = [view for view in views if _key(view) not in kept]
    return runs


def _first_run(views: Sequence[RankView]) -> tuple[RankView, ...]:
    """Without those of later runs: a process that began on its host when all with its rank there had ended."""
    ends = dict[tuple[str, int | None], int]()
    kept = list[RankView]()
    for view in sorted(views, key=lambda view: view.began):
        ended = ends.get((view.host, view.rank), 0)
        if not (view.rank is not None and view.began and 0 < ended <= view.began):
            ends[view.host, view.rank] = max(ended, view.ended or 1 << 62)
            kept.append(view)
    return tuple(sorted(kept, key=_order))


def _key(view: RankView) -> tuple[str, int]:
    return view.host, view.pid


def _order(view: RankView) -> tuple[bool, int, str]:
    return view.rank is None, view.rank or 0, view.host
