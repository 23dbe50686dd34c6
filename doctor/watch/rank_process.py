"""One rank of a watched program: its page, its events and its process, as this host shows them.

The kernel counts waits for a CPU that something else had, and waits for the CPU quota, alike in the books of a thread.
A control group without any of its quota left rests until its next period: `throttled_usec` has these seconds, over all
CPUs, and the waits of the ranks in it have as many. What is taken off by that is the job's own slowness, as a quota is
its container's setting.
"""

from __future__ import annotations

import mmap
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from doctor.analysis.outliers.peers import BUSY_RATIO, BUSY_SHARE, OwnWork
from doctor.engine.sanitize import rank_names
from doctor.engine.texts import filled
from doctor.smoke.programs.agent.flight_recorder import COLLECTIVE, INPUT, FlightRecorder
from doctor.smoke.programs.agent.procfs import catches, cpu_times, process_status, stat_fields
from doctor.smoke.programs.agent.rank_monitor import RankMonitor, helper_times
from doctor.smoke.programs.cpu_quota import has_quota, quota_folders, throttling
from doctor.smoke.programs.recorder_page import PAGE_SIZE, STEP, STEP_SLOTS, STEPS_AT, TIMES, TIMES_AT
from doctor.transport.program import filled_here, take_texts
from doctor.watch.effort import Effort
from doctor.watch.local_wait import undisturbed_thread
from doctor.watch.pace import WARM_STEPS, Entry, StepTimes
from doctor.watch.paths import RankPaths
from doctor.watch.verdict import UNKNOWN_END

STACK_SIGNAL = signal.SIGRTMIN + 11
"""As in the hook."""
MOST_EVENT_BYTES = 1 << 20
_CURRENT = re.compile(rb"^Current thread 0x", re.M)
STACK_SECONDS = 0.5
"""For a rank to write its stacks."""
LONGEST_STACK = 65536
THREADS_SECONDS = 2.0
"""Between two readings of how long all threads and children of a rank waited for a CPU."""
SEARCH_SECONDS = 1.0
"""Between two searches for a process in a container."""


class QuotaWait:
    """Of one rank: the quota that has held it back the most, and its waits, since it was first looked at."""

    def __init__(self) -> None:
        self.folder = ""
        self.held = self.waited = 0.0
        self._first: dict[str, float] = {}
        self._first_waited = -1.0

    def look(self, pid: int, waited: float) -> None:
        """``waited``: seconds for a CPU, of all its threads so far."""
        if self._first_waited < 0:
            self._first_waited = waited
        self.waited = max(self.waited, waited - self._first_waited)
        for folder in quota_folders(pid):
            seconds = throttling(folder)[2] if has_quota(folder) else 0.0
            held = seconds - self._first.setdefault(folder, seconds)
            if held > self.held:
                self.folder, self.held = folder, held

    def share(self, others: Iterable[QuotaWait]) -> float:
        """Of its waits, what its quota has made. ``others``: of all ranks of the host; some are in the same group.

        >>> some = QuotaWait()
        >>> some.folder, some.held, some.waited = "/sys/fs/cgroup", 3.0, 4.0
        >>> some.share([some])
        0.75
        """
        waited = sum(other.waited for other in others if other.folder == self.folder) if self.folder else 0.0
        return min(1.0, self.held / waited) if waited > 0 else 0.0


class CpuWaits:
    """By rank: the share of its time in which it waited for a CPU that something else had."""

    def __init__(self) -> None:
        self.shares: dict[int, float] = {}

    def busy_ranks(self) -> list[int]:
        return sorted(rank for rank, share in self.shares.items() if share > BUSY_SHARE)

    def are_known_in(self, work: Mapping[int, OwnWork]) -> bool:
        """Whether it is known how long in a step those ranks waited for a CPU that did so for much of their time."""
        return all(work[rank].starved for rank in self.busy_ranks() if rank in work)

    def sentence(self, work: Mapping[int, OwnWork]) -> str:
        """How far the paces of the busy ranks were not compared."""
        text = "Of the ranks' paces only {2} times the others' counts: {0} waited for a CPU, up to {1} % of the time"
        if not self.are_known_in(work):
            text = "The paces of the ranks were not compared: {0} waited for a CPU, up to {1} % of the time"
        most = max(self.shares.values())
        return filled(text, rank_names(self.busy_ranks()), f"{100 * most:.0f}", f"{BUSY_RATIO:g}")


class TimedRecorder(FlightRecorder):
    """A flight recorder that also keeps when the calls were made, and what each step took."""

    def __init__(self, memory: Any, offset: int) -> None:
        super().__init__(memory, offset)  # type: ignore[no-untyped-call]
        self.entries: list[Entry] = []
        self.steps: list[StepTimes] = []
        self._next_step = 1

    def read(self) -> bool:
        is_new = bool(super().read())  # type: ignore[no-untyped-call]
        latest = self.latest.step if is_new and self.latest else 0
        # Of a step that is over before the latest moment, all calls have been read.
        self._next_step = max(self._next_step, latest - STEP_SLOTS + 1)
        while self._next_step <= latest:
            place = STEPS_AT + self._next_step % STEP_SLOTS * STEP.size
            times = StepTimes(*STEP.unpack_from(self.memory, self.offset + place))
            if times.step == self._next_step:
                self.steps.append(times)
            self._next_step += 1
        return is_new

    def take(self, call: Any) -> None:
        super().take(call)  # type: ignore[no-untyped-call]
        self.entries.append(Entry(call[0], call[1], call[8], call[9], bool(call[5])))


class RankProcess(RankMonitor):
    """Reads what one process of the job writes, and looks at it through /proc. Nothing of it is trusted."""

    def __init__(self, page: Path, find_pid: Callable[[int, Path], int] = lambda pid, _: pid) -> None:
        """``find_pid``: from the number that a process has for itself to the one that it has here, or 0.

        Raises: OSError, ValueError for a page that is not complete yet.
        """
        with page.open("rb") as file:
            memory = mmap.mmap(file.fileno(), PAGE_SIZE, prot=mmap.PROT_READ)
        super().__init__(-1, memory, 0)  # type: ignore[no-untyped-call]
        self.recorder = self.timed = TimedRecorder(memory, 0)
        self.name = page.stem
        self._page, self._find_pid, self._search_at = page, find_pid, 0.0
        self._pid_of_name = int(page.stem.partition("-")[0])
        self._events_path, self._stacks_path = page.with_suffix(".events"), page.with_suffix(".stacks")
        self._events_at = 0
        self._half_line = b""
        self._stacks_descriptor = -1
        """What the process has its file of stacks open as."""
        self._error_at = (0, 0)
        """Collectives and steps of the rank at its last error."""
        self.cpu_wait = 0.0
        """Share of the time since its first steps in which the main thread was ready and had no CPU."""
        self.cpu_seconds = 0.0
        """For which the main thread waited for a CPU so far, and meanwhile for another thread or child that did."""
        self.quota = QuotaWait()
        self._others_waited, self._others_at, self._own_time = 0.0, 0.0, 0.0
        self._helpers: dict[object, float] = {}
        self.paths = RankPaths()
        self._cpu_wait_began: tuple[float, float] | None = None
        self.told_end = False
        self.died_at = 0.0
        self.born = ""
        self.effort = Effort()

    def read_recorder(self) -> None:
        """Takes over what is new. The process must be this user's and carry the number that its files are named for."""
        if not self.pid and not self.ended and time.monotonic() >= self._search_at:
            self._find_process()
        if self.timed.read():
            self.effective = self.cpu = 0.0
            self.effort.begin(time.monotonic())
            if self.state != "X":
                self.state, self.waits_for = "R", ""
            self._measure_cpu_wait()
        self._forget_error()

    def _measure_cpu_wait(self) -> None:
        """How long it waited for a CPU, by the kernel's books; stays as it is where these are not shown."""
        latest = self.timed.latest
        if not self.pid or latest is None or latest.step <= WARM_STEPS:
            return
        times, now = cpu_times(self.pid, False), time.monotonic()  # type: ignore[no-untyped-call]
        if times is None:
            return
        if now - self._others_at > THREADS_SECONDS:
            self._look_at_helpers(now, times)
            self.paths.look(self.pid)
        self.cpu_seconds = max(self.cpu_seconds, times[1] + self._others_waited)
        began = self._cpu_wait_began
        if began is None:
            self._cpu_wait_began = now, times[1]
        elif now > began[0]:
            self.cpu_wait = min(max(0.0, times[1] - began[1]) / (now - began[0]), 1.0)

    def _look_at_helpers(self, now: float, times: Sequence[float]) -> None:
        """Their waits make a step longer one by one, and only while the main thread waits for them."""
        helpers = {thread: spent[1] for thread, spent in helper_times(self.pid, True).items()}  # type: ignore[no-untyped-call]
        rested = now - self._others_at - (times[0] + times[1] - self._own_time)
        more = (seconds - self._helpers.get(thread, 0.0) for thread, seconds in helpers.items())
        if self._others_at:
            self._others_waited += max(0.0, min(rested, max(more, default=0.0)))
        self._helpers, self._others_at, self._own_time = helpers, now, times[0] + times[1]
        self.quota.look(self.pid, times[1] + sum(helpers.values()))

    def _forget_error(self) -> None:
        """An error that a library printed, and after which the rank went on, has not ended it."""
        latest = self.timed.latest
        if self.error and latest and (self.timed.calls > self._error_at[0] or latest.step > self._error_at[1]):
            self.error = ""

    def _find_process(self) -> None:
        if self.timed.writer() == self._pid_of_name:  # type: ignore[no-untyped-call]
            self._search_at = time.monotonic() + SEARCH_SECONDS
            self.pid = self._find_pid(self._pid_of_name, self._page)
            self.born = _start_time(self.pid) if self.pid else ""

    def new_events(self) -> list[dict[str, object]]:
        """The events since the last time; what is no event of ours is left out."""
        try:
            with self._events_path.open("rb") as file:
                file.seek(self._events_at)
                data = file.read(max(0, MOST_EVENT_BYTES - self._events_at))
        except OSError:
            return []
        self._events_at += len(data)
        *lines, self._half_line = (self._half_line + data).split(b"\n")
        events = []
        for line in lines:
            try:
                event = msgspec.json.decode(line, type=dict[str, object])
                take_texts(line)
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                continue
            events.append(event)
            self._note(event)
        return events

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("ev") == "error":
            calls, step = event.get("calls"), event.get("step")
            self._error_at = (calls, step) if isinstance(calls, int) and isinstance(step, int) else (1 << 62, 1 << 62)
            self.error = str(event.get("text", ""))[:600]
            self._forget_error()
        if event.get("ev") == "rank" and isinstance(event.get("stacks"), int):
            self._stacks_descriptor = event["stacks"]
        self.told_end = self.told_end or event.get("ev") == "end"

    def look_for_end(self, timeout_of: Callable[[int], str] = lambda _: "") -> None:
        """Notes that the process has gone, with its exit status where the kernel still shows it.

        ``timeout_of``: what is known of a rank that waited until its backend ended it.
        """
        if self.ended or not self.pid:
            return
        status = process_status(self.pid)  # type: ignore[no-untyped-call]
        if status and status[0] not in "ZX" and _start_time(self.pid) == self.born:
            return
        self.died_at = time.monotonic()
        if not (self.error or self.told_end):
            self._note({"ev": "error", "text": timeout_of(self.rank)})
        code = _exit_code(self.pid) if status and status[0] == "Z" else None
        if code is not None:
            self.end(code, "")  # type: ignore[no-untyped-call]
            filled_here(self.dead)
            return
        self.read_recorder()
        self.ended, self.state = True, "X"
        if self.error:
            self.dead = "exit status 1"
        else:
            self.dead = "exit status 0" if self.told_end else UNKNOWN_END
            self.oom = (not self.told_end and self.killed_for_memory(self.died_at)) or None  # type: ignore[no-untyped-call]

    def observe(self, clock: float) -> None:
        """What /proc shows of a rank that gives no sign: also whether its processes get on, where it makes no call."""
        super().observe(clock)  # type: ignore[no-untyped-call]
        latest = self.timed.latest
        if self.ended or not self.pid or latest is None or latest.state == COLLECTIVE or self.state in "TtFX":
            return
        self.effort.look(self.pid, clock, self.age(clock), loads=latest.state == INPUT)  # type: ignore[no-untyped-call]

    def snapshot(self, clock: float, ranks: Mapping[int, int] = MappingProxyType({})) -> dict[str, Any] | None:
        """As of a smoke run's rank, with how long it has been at rest, and by what it gets on where it does.

        ``ranks``: by pid, those of this host. One that keeps a lock for which another asks is waited for.
        """
        fields: dict[str, Any] | None = super().snapshot(clock)  # type: ignore[no-untyped-call]
        if fields is not None:
            fields["rest"] = round(min(self.effort.rest(clock), fields.get("age", 0.0)), 3)
            owners = [ranks[pid] for pid in self.effort.lock_owners if pid in ranks]
            fields["effort"] = filled("waits for {0}", rank_names(owners[:1])) if owners else self.effort.kind
        return fields

    def times(self) -> tuple[int, int, int]:
        """Nanoseconds that the rank has spent with compute, in collectives, and waiting for input."""
        compute, collective, loading, _ = TIMES.unpack_from(self.timed.memory, TIMES_AT)
        return compute, collective, loading

    def stack(self) -> str | None:
        """The Python stacks of all threads, innermost call first.

        Empty where the process does not write them, None where it did not within `STACK_SECONDS`.
        """
        if (
            self.ended or not self.pid or self.state in "TtF" or not catches(self.pid, STACK_SIGNAL)  # type: ignore[no-untyped-call]
        ):
            return ""
        if not _has_open(self.pid, self._stacks_descriptor, self._stacks_path):
            return ""  # it has closed it: what it would write goes into another file
        try:
            thread = undisturbed_thread(self.pid)
            if not thread:
                return ""
            os.truncate(self._stacks_path, 0)  # the process appends
            os.kill(thread, STACK_SIGNAL)
            self.effort.forget_switches()
            limit, size, last_size = time.monotonic() + STACK_SECONDS, 0, -1
            while time.monotonic() < limit and (not size or size != last_size):
                last_size = size
                time.sleep(0.01)
                size = self._stacks_path.stat().st_size
            with self._stacks_path.open("rb") as file:
                file.seek(max(0, size - LONGEST_STACK))
                return _main_as_current(file.read(LONGEST_STACK)).decode("utf-8", "replace") or None
        except OSError:
            return ""


def _main_as_current(stacks: bytes) -> bytes:
    """The stacks as if the main thread, which stands last, had taken the signal."""
    others, gap, main = stacks.rpartition(b"\n\n")
    main = main.replace(b"Thread 0x", b"Current thread 0x", 1) if main.startswith(b"Thread 0x") else main
    return _CURRENT.sub(b"Thread 0x", others) + gap + main


def _has_open(pid: int, descriptor: int, path: Path) -> bool:
    """Whether a process has this file open under this number."""
    try:
        return Path(f"/proc/{pid}/fd/{descriptor}").samefile(path)
    except OSError:
        return False


def _start_time(pid: int) -> str:
    return "".join(stat_fields(pid)[19:20])  # type: ignore[no-untyped-call]


def _exit_code(pid: int) -> int | None:
    """The wait status of a process that its parent has not reaped yet."""
    code = "".join(stat_fields(pid)[49:50])  # type: ignore[no-untyped-call]
    return int(code) if code.isdecimal() else None
