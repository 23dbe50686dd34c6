"""Asks hosts for their logs: one visit to each, all at once, each bounded in bytes and in time."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from doctor.diagnose.fetch.saved_logs import HostLogs, LogExcerpt, Omission
from doctor.diagnose.signature import Signature
from doctor.engine.decoding import prepare_decoding
from doctor.engine.quantities import seconds_text
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.remote.request import new_marker
from doctor.transport import Transport
from doctor.transport.program import HostProgram, visit_hosts

EXCERPTER = HostProgram("doctor.diagnose.excerpter.excerpter", "it did not read its logs (exit status {0}){1}")
MARGIN = 2.0
"""Seconds by which the program on a host ends before our own limit, so that what it has read arrives."""
MAX_ANSWER = 6 << 20
"""Bytes of one answer, compressed; a transport cuts one of 8 MiB off."""
MAX_FILES = 4000
"""Logs of one host; those after that, the oldest, are not read."""
INFLATED_FACTOR = 8
"""Bytes of an answer as JSON, for each byte of lines that was asked for. A host is not trusted to keep to it."""
MIN_INFLATED = 64 << 20
_MAX_EXAMPLES = 3


class LogRequest(msgspec.Struct, frozen=True):
    """What every host is asked."""

    places: tuple[str, ...]
    """Files, folders and patterns; ``~`` is the login user's home."""
    since: float = 0.0
    """Seconds; files that were last written before that are not read. 0: all are."""
    limit: int = 16 << 20
    """Bytes of lines from one host."""
    timeout: float = 60.0
    """Seconds for a host's answer, once connected."""
    budget: float = 0.0
    """Seconds for all hosts; 0 is none."""
    skipped: frozenset[str] = frozenset()
    """Suffixes of files that hold no log."""
    within: tuple[str, ...] = ()
    sudo: bool = False
    kernel: bool = False
    """Also the messages of each host's kernel."""


class _EndReport(msgspec.Struct, frozen=True):
    end: bool
    files: int
    stopped: str
    unmatched: list[str]
    omitted: list[Omission]
    kernel: str = ""


def ask_hosts(
    hosts: Sequence[str],
    transport: Transport,
    request: LogRequest,
    signatures: Mapping[str, Signature],
    workers: int,
    progress: Callable[[str, bool], None] = lambda host, answered: None,
) -> dict[str, HostLogs]:
    """The logs of each host; of one that cannot be read, why. An interrupt closes all connections."""
    fixed = json.dumps(_fixed_fields(request, signatures.values()))[1:]
    deadline = time.monotonic() + request.budget if request.budget else float("inf")
    answers: dict[str, HostLogs] = {}

    def visit(host: str) -> HostLogs:
        seconds = min(request.timeout, deadline - time.monotonic())
        if seconds <= 0:
            return HostLogs(error=filled("not asked: the time limit of {0} had passed", seconds_text(request.budget)))
        marker, answer = new_marker(), LogAnswer()
        text = f'{{"marker": "{marker}", "seconds": {max(seconds - MARGIN, 0.5)}, {fixed}'.encode("ascii")
        start = EXCERPTER.request(marker, text, within=request.within, as_root=request.sudo)
        limit = INFLATED_FACTOR * request.limit + MIN_INFLATED
        return answer.logs(EXCERPTER.ask(transport, host, start, seconds, limit, answer.read_part))

    def take(host: str, logs: HostLogs) -> None:
        answers[host] = logs
        progress(host, not logs.error)

    visit_hosts(hosts, transport, visit, workers, take)
    return {host: answers[host] for host in hosts}


def _fixed_fields(request: LogRequest, signatures: Iterable[Signature]) -> dict[str, object]:
    """What is asked, the same of every host."""
    literals, quiet = chosen_literals(signatures)
    return {
        "patterns": request.places,
        "age": request.since,
        "kernel": request.kernel,
        "files": MAX_FILES,
        "bytes": request.limit,
        "sent": MAX_ANSWER,
        "skipped": sorted(request.skipped),
        "literals": literals,
        "quiet": quiet,
    }


def chosen_literals(signatures: Iterable[Signature]) -> tuple[list[str], list[str]]:
    """The literals by which lines are chosen, and those that count in lines at INFO level, too.

    Noise is no use to any rule, and the last lines show progress.
    """
    useful = [item for item in signatures if item.role != "benign" and "progress" not in item.traits]
    return _literals(useful), _literals(signature for signature in useful if signature.quiet)


def _literals(signatures: Iterable[Signature]) -> list[str]:
    return sorted({pattern.literal for signature in signatures for pattern in signature.compiled})


class LogAnswer:
    """The answer of one host, as far as it came. Each log is a part: a cut loses only the rest."""

    def __init__(self) -> None:
        self._files: list[LogExcerpt] = []
        self._end: _EndReport | None = None

    def read_part(self, data: bytes) -> bool:
        """Whether it was the last. Raises: ValueError for what is no part of an answer."""
        if b'"end": true' in data[:12]:
            self._end = msgspec.json.decode(data, type=_EndReport)
        else:
            self._files.append(printable_log(msgspec.json.decode(data, type=LogExcerpt)))
        return self._end is not None

    def logs(self, error: str) -> HostLogs:
        """What came; ``error`` is why that is not all."""
        if self._end is None:
            return HostLogs(self._files, error=error)
        omitted = []
        for item in self._end.omitted[:100]:
            examples = [printable(path, 400) for path in item.examples[:_MAX_EXAMPLES]]
            omitted.append(Omission(printable(item.reason), item.count, examples))
        unmatched = [printable(place) for place in self._end.unmatched[:100]]
        return HostLogs(self._files, omitted, unmatched, error, printable(self._end.kernel, 200))


def printable_log(log: LogExcerpt) -> LogExcerpt:
    """The excerpt with lines as text, in the encoding that they are in, and with a name that can be shown."""
    kept = [(number, decoded(line.encode("latin-1", "replace"))) for number, line in log.kept]
    if any(later[0] <= earlier[0] for earlier, later in itertools.pairwise(kept)) or (kept and kept[0][0] < 1):
        raise ValueError("line numbers do not rise")
    return msgspec.structs.replace(
        log, path=printable(log.path, 1000), notes=[printable(note) for note in log.notes[:20]], kept=kept
    )


def decoded(line: bytes) -> str:
    """A line of a log as text: UTF-8, else GBK, else with what is neither replaced."""
    for encoding in ("utf-8", "gb18030"):
        try:
            return line.decode(encoding)
        except UnicodeDecodeError:
            continue
    return line.decode("utf-8", "replace")


LogIdentity = tuple[str, int, int, tuple[tuple[int, str], ...]]
_COMPARED_LINES = 20


def log_identity(log: LogExcerpt) -> LogIdentity:
    """What two views of one file have in common, even while it grows: path, inode, and its first lines.

    Of a dump, which has no lines, its bytes.
    """
    return log.path, log.inode, log.crc if log.dump else 0, tuple(log.kept[:_COMPARED_LINES])


def shared_logs(answers: Mapping[str, HostLogs]) -> dict[LogIdentity, LogExcerpt]:
    """The files that several hosts have in common, as on a shared file system, each as it was read furthest."""
    logs: dict[LogIdentity, list[LogExcerpt]] = {}
    for answer in answers.values():
        for log in (log for log in answer.files if not log.kernel):
            logs.setdefault(log_identity(log), []).append(log)
    return {
        identity: max(views, key=lambda log: (log.complete, log.read))
        for identity, views in logs.items()
        if len(views) > 1
    }


prepare_decoding(_EndReport, LogExcerpt)
