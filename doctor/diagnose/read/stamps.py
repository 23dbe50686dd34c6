"""The head of a log line: its time, and what it shows of the process that wrote it.

Formats, with their sources:

- CANN plog and MindSpore: ``[ERROR] HCCL(123,python):2025-10-24-22:03:14.946.261 [file.cc:908]``
- torch_npu: ``[ERROR] 2025-10-24-22:03:14 (PID:123, Device:0, RankID:3) ERR02200``
- c10d (glog): ``[rank3]:[E1120 12:00:00.123456789 file.cpp:1]``; the day has two digits, the month one or two
- torchrun's agent (glog): ``E1120 12:00:00.123000 4711 torch/distributed/...``; torch 2.3 has the thread's number;
  JAX, XLA and ray: ``E0511 18:18:50.796514 915 file.cc:505]``, and ``E0000 00:00:1700000000.123456 915 file.cc:505]``
  before abseil's logging is initialized
- NCCL: ``host:pid:tid [device] NCCL INFO ...``, in new versions with ``[2026-11-20 12:00:00]`` before it, in old
  ones (2.1 to 2.3) without ``NCCL``
- vLLM: ``ERROR 03-29 12:59:53 [core.py:1099]``; ray puts ``(RayWorkerWrapper pid=858)`` before a line of an actor,
  vLLM ``(VllmWorker rank=3 pid=9)`` and ``(Worker_TP3 pid=9)``, behind the label of the engine; SGLang:
  ``[2025-03-09 00:57:15 TP4]``
- Open MPI's crash report: ``[n1:4711] *** Process received signal ***``; fields ``rank`` and ``host`` of a line of JSON
- UCX: ``[1700000000.123456] [n1:4711:0] file.c:1 UCX  ERROR``
- OLMo: ``[2024-04-18 15:55:06] CRITICAL [olmo.util:158, rank=6]``; Composer: ``15,331: rank2[3924][MainThread]:``
- ISO 8601, Python's logging, syslog, ``dmesg -T``; ``srun --label``, ``mpirun --tag-output``, ``[default3]:``
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

import msgspec

from doctor.diagnose.excerpter.line_choice import MAX_LINE, MPIRUN_LABEL

_WORLD_RANK = re.compile(r"\[rank(\d{1,6})\]:")
_NCCL_MESSAGE = re.compile(rb"\[rank(\d{1,6})\]:[^\n]{0,600}\bNCCL error: ")
"""The first line of torch's message of an error of NCCL, which has up to three more; only the first has the label.
Source: pytorch/pytorch torch/csrc/distributed/c10d/NCCLUtils.cpp, getNcclErrorDetailStr."""
KUBELET = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6,9}(?:Z|[+-]\d\d:\d\d) (?:std(?:out|err) [FP] )?")
"""What Kubernetes puts before each line: in the files of containers, and with ``kubectl logs --timestamps``."""
_CANN_PID = re.compile(r"\[PID: (?P<pid>\d{1,10})\]")
_CANN_MESSAGE = re.compile(rb"\[PID: \d{1,10}\]|\bE[A-Z0-9]\d{4}: ")
"""In the first line of an error of CANN; its other lines are indented and have no head of their own."""
_CANN_INDENT = " " * 8
_CANN_DEVICE = re.compile(r"\bDEVICE\[(?P<device>\d{1,4})\] PID\[(?P<pid>\d{1,10})\]: *$")
"""Behind the errors of a call, before what the device told: vLLM's engine prints those of its workers, too."""
_NCCL_LINES = (re.compile(rb"nccl\w{4,40}: "), re.compile(rb"Last error:\s*$"))
_PLOG = re.compile(
    r"\[(?:DEBUG|INFO|WARNING|ERROR|CRITICAL|EXCEPTION|EVENT|TRACE)\] ?[A-Z_0-9]{1,20}"
    r"\((?P<pid>\d{1,10})[,:][^)]{0,80}\): ?"
    r"(?P<time>\d{4}-\d\d-\d\d[- ]\d\d:\d\d:\d\d\.\d{3}\.\d{3})"
)
_TORCH_NPU = re.compile(
    r"\[ERROR\] (?P<time>\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d) "
    r"\(PID:(?P<pid>\d{1,10}), Device:(?P<device>-?\d{1,5}), RankID:(?P<rank>-?\d{1,7})\)"
)
_NPU_ERROR = re.compile(r"error code ?(?:is|:) ?\d|failed, detail:|terminated with exception")
"""In the first line of torch_npu's message of an error, whose next line has the head: NPUException.h, OpApiCommon.h."""
_C10D = re.compile(
    r"\[[IWEF](?P<month>\d{1,2})(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d\.\d{1,9}) [\w.]{1,80}\.(?:cpp|ts|hpp|h):\d"
)
_GLOG = re.compile(
    r"(?<![\w\[])[IWEF](?:0000 00:00:(?P<epoch>\d{10}\.\d{1,9})|(?P<month>\d\d)(?P<day>\d\d) "
    r"(?P<clock>\d\d:\d\d:\d\d\.\d{1,9})) {1,10}"
    r"(?:\d{1,10} (?=torch/distributed/(?:elastic/|launch|run\.py))|(?P<pid>\d{1,10}) |\d{11,20} )"
    r"[\w/.-]{1,200}\.(?:py|cc|cpp|cu|h|hpp):\d"
)
_NCCL = re.compile(
    r"(?:\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] )?(?<![\w.-])(?P<host>\d{0,9}[A-Za-z][\w.-]{0,79}):"
    r"(?P<pid>\d{1,10}):\d{1,10} "
    r"\[(?P<device>\d{1,3})\] (?:[\w/.]{1,100}:\d{1,6} )?(?:NCCL|WARN|INFO) "
)
_VLLM = re.compile(
    r"(?<![\w-])(?:ERROR|CRITICAL|WARNING|INFO|DEBUG) (?P<month>\d\d)-(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d) "
    r"\[?[\w./-]{1,80}:\d"
)
_ACTOR = re.compile(
    r"^(?:\[[A-Z ]{2,30}\] )?(?:\((?:[A-Za-z]{1,40}|EngineCore_(?:DP)?(?:0|(?P<copy>\d{1,4}))) pid=\d{1,10}\) ){0,2}"
    r"\((?:(?:Vllm)?Worker(?:_DP0)?(?:_PP0)?(?:_PCP0)?[_ ]TP(?P<tp>\d{1,6})(?:_(?:DCP|EP)\d{1,6}){0,2} "
    r"|[\w.:<> -]{1,60} )?"
    r"(?:rank=(?P<rank>\d{1,6}) )?"
    r"pid=(?P<pid>\d{1,10})(?:, ip=(?P<ip>[\d.]{1,40}))?\) "
)
_SGLANG = re.compile(
    r"^(?:[\w.-]{1,60} +\| )?\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: DP\d{1,5})? TP(?P<rank>\d{1,6})(?: EP\d{1,5})?\] "
)
_OMPI = re.compile(
    r"\[(?P<host>\d{0,9}[A-Za-z][\w.-]{0,79}):(?P<pid>\d{1,10})(?: ?:\d{1,10}){0,2}\] "
    r"(?:\*\*\* |Signal|Failing at |Caught signal |\[ ?\d)"
)
"""Where Open MPI, and UCX with the thread, print how a process crashed: opal/util/stacktrace.c, ucs/debug/debug.c."""
_MVAPICH = re.compile(r"\[(?P<host>[A-Za-z][\w.-]{0,79}):mpi_rank_(?P<rank>\d{1,7})\]\[")
"""Before each message of MVAPICH2: src/mpid/ch3/channels/common/src/util/error_handling.c."""
_SHELL = re.compile(r": line \d{1,6}: +(?P<pid>\d{1,10}) (?:Segm|Abort|Kill|Term|Bus|Ill|Float)[a-z]{2,11}\b")
"""How a shell says by which signal a program of its script ended."""
_UCX = re.compile(r"\] \[(?P<host>\w[\w.-]{0,79}):(?P<pid>\d{1,10}) ?:\d{1,6}\] +\w{1,40}\.c:\d{1,5} +UCX  ")
_JSON_RANK = re.compile(r'"(?:global_)?rank": ?"?(?P<rank>\d{1,6})\b')
_JSON_HOST = re.compile(r'"(?:host|hostname|host_name)": ?"(?P<host>[\w.-]{1,80})"')
_ISO = re.compile(r"(?P<time>\d{4}-\d\d-\d\d[T _-]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)")
_SYSLOG = re.compile(
    r"(?P<month>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d)"
    r"(?: (?P<year>\d{4}))?"
)
COPIED = re.compile(r"^(?:[\w./-]{0,200}/)?worker_(?P<copied>\d{1,6})\.log[:-]\d{1,9}[:-]")
"""Before each line of its workers' logs that msrun shows behind a failure: by grep -rn -C 5."""
_RANK = re.compile(
    r"^\s{0,8}(?:\[(?P<label>\d{1,6})\]:? (?!\[\d{4}-)|(?P<srun>\d{1,6}): )"
    r"|\[(?:[\w.]{1,60}(?::\d{1,6})?, )?rank[ =]?(?P<rank>\d{1,6})\]|\[Rank[ :](?P<upper>\d{1,6})\]"
    r"|, ?\d{3}: rank(?P<composer>\d{1,6})\[\d{1,10}\]\["
    rf"|^{MPIRUN_LABEL}|{COPIED.pattern}"
)
_LOCAL_RANK = re.compile(r"^\[(?:default|[a-z_]{1,20})(?P<local>\d{1,4})\]:")
_HEAD = 400
"""Bytes of a line in which its stamp is looked for."""
_CLOCK = re.compile(rb"\d\d:\d\d:\d")  # in the head of a line that shows a time
_MONTH_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_HOST = re.compile(
    r"^(?:(?P<pdsh>(?:\d{1,3}\.){3}\d{1,3}): |(?P<tests>[A-Za-z][\w.-]{0,79}): Test (?:CUDA|NCCL) failure)"
)
"""What pdsh puts before each line, and how nccl-tests begins the line of a failure."""
_HEADS = (
    ("", _PLOG),
    ("(PID:", _TORCH_NPU),
    ("", _C10D),
    ("] ", _GLOG),
    ("] ", _NCCL),
    ("", _VLLM),
    ("] ", _OMPI),
    (":mpi_rank_", _MVAPICH),
    (": line ", _SHELL),
    ("UCX  ", _UCX),
    ("-", _ISO),
    ("", _SYSLOG),
)
"""In the order in which they are tried, each with a text that it contains: looking for that costs next to nothing."""


LOOK_BACK = 200
"""Lines before an event in which its time is looked for."""
ENDING_S = 60.0
"""Seconds within which the lines about the end of a job are printed; Slurm's KillWait is 30 (slurm.conf(5))."""
STILL_S = 600.0
"""Seconds without a line from which on a job that was ended is said to have stood still."""


class Stamp(msgspec.Struct, frozen=True):
    """What the head of a line shows; None or empty for what it does not."""

    time: float | None = None
    pid: str = ""
    rank: int | None = None
    local_rank: int | None = None
    device: int | None = None
    host: str = ""


def _labelled_rank(text: str, head: str, actor: re.Match[str] | None) -> int | None:
    outer = _RANK.search(head)
    inner = _RANK.match(head, outer.end()) if outer else None  # torch's label behind that of a launcher
    labels = (
        inner if inner and inner["rank"] else outer,
        _SGLANG.match(head),
        _JSON_RANK.search(text) if head.startswith("{") else None,
    )
    numbers = (number for match in labels if match for number in match.groups() if number is not None)
    rank = next(map(int, numbers), None)
    if rank is None and actor and (actor["tp"] or actor["rank"]) and not actor["copy"]:
        return int(actor["tp"] or actor["rank"])
    return rank


def read_stamp(text: str, year: int) -> Stamp:
    """The head of one line. ``year`` is taken where the line shows none.

    >>> read_stamp("[rank3]:[E1120 12:00:00.5 ProcessGroupNCCL.cpp:1] ...", 2026).rank
    3
    """
    head = text[:400]
    local, actor, cann = _LOCAL_RANK.search(head), _ACTOR.match(head), _CANN_PID.search(head)
    pid = cann["pid"] if cann else actor["pid"] if actor else ""
    is_json = head.startswith("{")
    rank = _labelled_rank(text, head, actor)
    labelled = (_JSON_HOST.search(text) or [""] * 2)[1] if is_json else (actor and actor["ip"]) or ""
    local_rank = int(local["local"]) if local else None
    for literal, pattern in _HEADS:
        match = pattern.search(head) if literal in head else None
        if match:
            break
    else:
        named = _HOST.match(head)
        host = (named["pdsh"] or named["tests"]) if named else ""
        return Stamp(pid=pid, rank=rank, local_rank=local_rank, host=labelled or host)
    fields = match.groupdict()
    time = _time(fields, year)
    if time is None and pattern not in (_ISO, _SYSLOG):
        time = next((_time(dated.groupdict(), year) for form in (_ISO, _SYSLOG) if (dated := form.search(head))), None)
    shown_rank = int(fields["rank"]) if fields.get("rank") else -1
    device = int(fields["device"]) if fields.get("device") else -1
    return Stamp(
        time=time,
        pid=fields.get("pid") or pid,
        rank=rank if rank is not None else shown_rank if shown_rank >= 0 else None,
        local_rank=local_rank,
        device=device if device >= 0 else None,
        host=fields.get("host") or labelled,
    )


def first_time(lines: Iterable[bytes], year: int) -> float | None:
    """The time that the first line shows of those that show one."""
    times = (_time_of(line, year) for line in lines)
    return next((time for time in times if time is not None), None)


def _time_of(line: bytes, year: int) -> float | None:
    if not _CLOCK.search(line, 0, _HEAD):
        return None
    return read_stamp(line[:_HEAD].decode("utf-8", "replace"), year).time


class TimesAbove:
    """The times of lines that show none: each line is read once, however many lines are asked for."""

    def __init__(self, year: int) -> None:
        self._year = year
        self._last: tuple[Sequence[bytes], int, int, float | None] = ((), 0, 0, None)
        """The lines, the place that was asked for, where its time stands, and the time."""

    def at(self, lines: Sequence[bytes], at: int) -> float | None:
        """The last time that the line shows, or one of the `LOOK_BACK` - 1 lines above it."""
        first = max(0, at + 1 - LOOK_BACK)
        before, last_at, place, time = self._last
        last = last_at if before is lines and first <= last_at <= at else first - 1
        if last < first or place < first:
            place, time = first, None
        for above in range(at, last, -1):
            if (seconds := _time_of(lines[above], self._year)) is not None:
                place, time = above, seconds
                break
        self._last = lines, at, place, time
        return time


def kubelet_time(line: bytes, year: int) -> float | None:
    """The time that Kubernetes puts before the line, if it does."""
    outer = KUBELET.match(line)
    return read_stamp(outer.group().decode(), year).time if outer else None


def first_of_message(text: str, before: Sequence[bytes]) -> str:
    """The first line, with its head, of CANN's error to which this indented line belongs; else the line itself.

    >>> first_of_message("        there is an exception of", [b"[rank7]: EZ9903: failed", b"        Solution: ..."])
    '[rank7]: EZ9903: failed'
    """
    if not text.startswith(_CANN_INDENT):
        return text
    first = next((line for line in reversed(before) if not line.startswith(_CANN_INDENT.encode())), b"")[:MAX_LINE]
    return first.decode("utf-8", "replace") if _CANN_MESSAGE.search(first) else text


def stamp_of_message(text: str, lines: Sequence[bytes], at: int, year: int) -> Stamp:
    """The stamp of a line, with what the lines around it show that belong to the same message of CANN or torch_npu."""
    stamp = read_stamp(first_of_message(text, lines[max(0, at - 8) : at]), year)
    for line in lines[at + 1 : at + 8] if "[FUNC:" in text else ():
        below = line[:MAX_LINE].decode("utf-8", "replace")
        if (device := _CANN_DEVICE.search(below)) and read_stamp(below, year).pid == stamp.pid:
            return msgspec.structs.replace(stamp, pid=device["pid"], device=int(device["device"]))
    return completed(stamp, text, lines[at + 1 : at + 3])


def completed(stamp: Stamp, text: str, below: Sequence[bytes]) -> Stamp:
    """The stamp of a line with the process that torch_npu names in the next line of its message, where it names none.

    >>> below = [b"[ERROR] 2026-01-01-00:00:00 (PID:7, Device:3, RankID:-1) ERR00100 PTA"]
    >>> completed(Stamp(), "error code is 507014", below).device
    3
    """
    line = next((line for line in below if line.strip()), b"")[:MAX_LINE].decode("utf-8", "replace")
    if not _NPU_ERROR.search(text) or not _TORCH_NPU.search(line):
        return stamp
    second = read_stamp(line, 1970)
    rank = second.rank if stamp.rank is None else stamp.rank
    alike = stamp.pid in ("", second.pid) and second.rank in (None, rank) and stamp.device in (None, second.device)
    time = stamp.time or second.time
    return Stamp(time, second.pid, rank, stamp.local_rank, second.device, stamp.host) if alike else stamp


def _time(fields: dict[str, str | None], year: int) -> float | None:
    written = fields.get("time")
    if written:
        return _parse_date(written)
    if epoch := fields.get("epoch"):
        return float(epoch)
    clock, day = fields.get("clock"), fields.get("day")
    if not clock or not day:
        return None
    month = fields["month"] or ""
    number = _MONTHS.get(month) or int(month)
    return _parse_date(f"{int(fields.get('year') or year):04}-{number:02}-{int(day):02} {clock}")


@lru_cache(maxsize=4096)
def _day_start(year: int, month: int, day: int) -> float | None:
    try:
        if not (1970 <= year <= 2999 and 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1]):
            return None
    except ValueError:
        return None
    return float(calendar.timegm((year, month, day, 0, 0, 0)))


def _parse_date(written: str) -> float | None:
    """Seconds since 1970 of ``2025-10-24-22:03:14.946.261`` and its like; None for no date of a calendar."""
    start = _day_start(int(written[0:4]), int(written[5:7]), int(written[8:10]))
    hour, minute, second = int(written[11:13]), int(written[14:16]), int(written[17:19])
    if start is None or hour > 23 or minute > 59 or second > 60:
        return None
    fraction = "".join(letter for letter in written[20:] if letter.isdigit())
    return start + hour * 3600 + minute * 60 + second + (float("0." + fraction) if fraction else 0.0)


def world_rank(text: str, before: Sequence[bytes]) -> int | None:
    """The rank in the world by the label that torch puts before this line, or before the message of NCCL that it is of.

    ``before``: the lines before it, at most three. A rank further on in the line is that of a process group.

    >>> world_rank("[rank3]: boom", [])
    3
    >>> world_rank("Last error:", [b"[rank1]: ... NCCL error: remote", b"ncclRemoteError: A call failed"])
    1
    """
    if match := _WORLD_RANK.search(text):
        return int(match[1])
    for line in reversed(before):
        if first := _NCCL_MESSAGE.search(line[:MAX_LINE]):
            return int(first[1])
        if not any(form.match(line) for form in _NCCL_LINES):
            return None
    return None


def silence_before(lines: Sequence[bytes], end: float, year: int) -> dict[str, str]:
    """For how many seconds nothing had been printed before ``end``, in ``still_s``: 0 where the lines before stood as
    far apart. Empty where too few of them show a time. What is printed while a job is ended counts for nothing.
    """
    stamps = (read_stamp(line[:400].decode("utf-8", "replace"), year).time for line in lines)
    times = sorted({time for time in stamps if time is not None and time < end - ENDING_S})
    if len(times) < 3:
        return {}
    usual = max(later - earlier for earlier, later in pairwise(times))
    silent = end - times[-1]
    return {"still_s": f"{silent:.0f}" if silent > max(STILL_S, 4 * usual) else "0"}
