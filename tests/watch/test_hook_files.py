"""The hook's files in a program that closes all files that it finds open, and opens others."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from doctor.smoke.programs.recorder_page import STATES
from doctor.watch import data_folder
from doctor.watch.hook import collectives
from doctor.watch.rank_process import RankProcess

HOOK = Path(data_folder.__file__).parent / "hook"


def test_a_host_gets_each_file_of_the_hook_that_another_one_imports() -> None:
    texts = {name: (HOOK / f"{name}.py").read_text() for name in data_folder.FILES}
    imported = {
        found
        for text in texts.values()
        for found in re.findall(r"(?m)^ *from \.(\w+) import|_PACKAGE \+ \"\.(\w+)\"", text)
    }
    assert {name for pair in imported for name in pair if name} == set(data_folder.FILES) - {"data_hooks"}


PROGRAM = """
import os, sys
from doctor.watch.hook.rank_files import start_recording
files = start_recording(0, 1)
os.closerange(3, 256)
others = [os.open(f"other-{number}", os.O_CREAT | os.O_WRONLY) for number in range(8)]
files.emit("joined", rank=0, world=1, backend="gloo")
print("ready", flush=True)
sys.stdin.readline()
"""


def test_nothing_is_written_into_files_that_are_the_programs_own(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    environ = {**os.environ, "DOCTOR_WATCH": str(tmp_path)}
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=environ, cwd=tmp_path, **streams) as program:  # type: ignore[call-overload]
        assert program.stdout.readline() == "ready\n"
        (page,) = (tmp_path / "ranks").glob("*.page")
        process = RankProcess(page)
        process.read_recorder()
        assert [event["ev"] for event in process.new_events()] == ["rank", "joined"]
        assert process.pid == program.pid and process.stack() == ""
        program.communicate("\n", timeout=60)
    assert [path.read_bytes() for path in tmp_path.glob("other-*")] == [b""] * 8
    assert json.loads(page.with_suffix(".events").read_text().splitlines()[0])["stacks"] > 2


WAITS = """
import ctypes, os, select, signal, subprocess, sys, threading, time
from doctor.watch.hook.rank_files import start_recording
c = ctypes.CDLL(None, use_errno=True)
signal.signal(signal.SIGALRM, lambda *_: None)
class Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("fraction", ctypes.c_long)]
def limit(clock=None):
    ahead = (clock() if clock else 0) + 1
    return ctypes.byref(Time(int(ahead), int(ahead % 1 * 1e9)))
def alarmed(call, *arguments):
    signal.setitimer(signal.ITIMER_REAL, 1)
    return call(*arguments)
none, read, lock, poller = (ctypes.c_char * 128)(), os.pipe()[0], threading.Lock(), select.epoll()
c.sem_init(none, 0, 0)
calls = {
    "nanosleep": lambda: c.nanosleep(limit(), None), "usleep": lambda: c.usleep(999_999),
    "clock_nanosleep": lambda: c.clock_nanosleep(0, 1, limit(time.time), None),
    "poll": lambda: c.poll(None, 0, 1000), "select": lambda: c.select(0, None, None, None, limit()),
    "epoll_wait": lambda: c.epoll_wait(poller.fileno(), (ctypes.c_char * 64)(), 1, 1000),
    "pause": lambda: alarmed(c.pause), "sigsuspend": lambda: alarmed(c.sigsuspend, (ctypes.c_char * 128)()),
    "sigtimedwait": lambda: c.sigtimedwait((ctypes.c_char * 128)(), None, limit()),
    "sem_timedwait": lambda: c.sem_timedwait(none, limit(time.time)),
    "read": lambda: alarmed(c.read, read, ctypes.create_string_buffer(1), 1),
    "signal.pause": lambda: alarmed(signal.pause), "time.sleep": lambda: time.sleep(1),
    "select.select": lambda: select.select([read], [], [], 1),
    "lock": lambda: lock.acquire() and lock.acquire(timeout=1),
    "sigwait": lambda: (signal.pthread_sigmask(0, [14]), alarmed(signal.sigwait, [14])),
    "wait": lambda: subprocess.run(["sleep", "1"]).returncode, "computes": lambda: computed(time.monotonic() + 2),
}
def computed(until):
    while time.monotonic() < until:
        sum(range(10_000))
    return 0
def measured(call):
    ctypes.set_errno(0)
    began = time.monotonic()
    result = call()
    print(repr(result), ctypes.get_errno(), round(time.monotonic() - began, 1), flush=True)
held = threading.Semaphore(0)
if "alone" not in sys.argv:
    threading.Thread(target=held.acquire, daemon=True).start()
files = start_recording(0, 1)
print("ready", flush=True)
if "thread" in sys.argv:
    side = threading.Thread(target=measured, args=[calls[sys.argv[1]]])
    side.start()
    side.join()
else:
    measured(calls[sys.argv[1]])
"""
CALLS = re.findall(r'"([a-z_.]+)": lambda', WAITS)
FOR_MAIN = {"pause", "sigsuspend", "read", "signal.pause", "sigwait"}
"""Ended by an alarm, which the main thread gets."""
BESIDE: dict[str, list[str]] = {}
"""By call: how it ends without doctor."""


def ends_as(call: str, folder: Path, *how: str, stacks: int) -> tuple[list[str], str]:
    """Result, errno and seconds of a program's call, during which doctor reads its stacks so many times."""
    (folder / "ranks").mkdir(parents=True)
    environ = {**os.environ, "DOCTOR_WATCH": str(folder)}
    argv = [sys.executable, "-c", WAITS, call, *how]
    with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        (page,) = (folder / "ranks").glob("*.page")
        process = RankProcess(page)
        process.read_recorder()
        process.new_events()
        seen = ""
        for _ in range(stacks):
            time.sleep(0.1)
            seen = process.stack() or seen  # empty behind the program's end
        return program.stdout.read().split(), seen


@pytest.mark.parametrize(
    ("call", "how"),
    [*((call, ()) for call in CALLS), *((call, ("thread",)) for call in CALLS if call not in FOR_MAIN),
     *((call, ("alone",)) for call in CALLS)],
)  # fmt: skip
def test_a_call_of_the_program_ends_as_it_does_without_doctor(call: str, how: tuple[str, ...], tmp_path: Path) -> None:
    """Also where no thread waits for a lock; then there may be no stack."""
    beside = BESIDE.get(call) or ends_as(call, tmp_path / "beside", stacks=0)[0]
    BESIDE[call] = beside
    result, seen = ends_as(call, tmp_path / "watched", *how, stacks=3)
    assert result[:-1] == beside[:-1], (result, beside)
    assert call == "computes" or float(result[-1]) == pytest.approx(float(beside[-1]), abs=0.7)
    assert how == ("alone",) or seen.count("Current thread 0x") == 1
    main = seen.rpartition("\n\n")[2]
    assert not seen or ("in measured" in main) == (how != ("thread",)), seen


PRINTS_AN_ERROR = """
import sys
import time
from doctor.watch.hook.rank_files import start_recording
from doctor.watch.hook.training import report_exceptions
files = start_recording(0, 1)
report_exceptions()
files.next_step()
try:
    raise ImportError("a module of another NumPy")
except ImportError:
    sys.excepthook(*sys.exc_info())  # as PyErr_Print of a library in C
if sys.argv[1] == "goes on":
    files.next_step()
"""


def recorded(folder: Path, program: str, argument: str) -> RankProcess:
    """What this program, run as a rank with this argument, left in the folder."""
    (folder / "ranks").mkdir()
    environ = {**os.environ, "DOCTOR_WATCH": str(folder)}
    subprocess.run([sys.executable, "-c", program, argument], env=environ, timeout=60, check=True)
    (page,) = (folder / "ranks").glob("*.page")
    return RankProcess(page)


@pytest.mark.parametrize(("then", "error", "ends"), [("goes on", "", True), ("ends", "ImportError: a module", False)])
def test_an_error_that_a_library_prints_is_not_the_ranks_own_where_it_goes_on(
    then: str, error: str, ends: bool, tmp_path: Path
) -> None:
    process = recorded(tmp_path, PRINTS_AN_ERROR, then)
    process.new_events()
    process.read_recorder()
    assert process.error.startswith(error) and bool(process.error) == bool(error)
    assert process.told_end == ends


HAS_A_BUSY_THREAD = """
import sys
import threading
from doctor.watch.hook.rank_files import start_recording
files = start_recording(0, 1)
is_busy = threading.Event()
def keep():
    is_busy.set()
    while sys.argv[1]:
        sum(range(100))
threading.Thread(target=keep, daemon=True).start()
is_busy.wait()
for step in range(30):
    for _ in range(step % 3):
        files.begin(0, "all_reduce", "float32", -1, 8)
    files.next_step()
"""


@pytest.mark.parametrize("keeps", ["keeps it", ""])
def test_a_step_is_recorded_with_its_calls_and_how_soon_the_interpreter_is_had_again(
    keeps: str, tmp_path: Path
) -> None:
    process = recorded(tmp_path, HAS_A_BUSY_THREAD, keeps)
    process.read_recorder()
    assert [step.calls for step in process.timed.steps] == [0, 1, 2] * 10
    waits = [step.interpreter for step in process.timed.steps]
    assert max(waits) >= 400 if keeps else min(waits) < 400  # 5 ms, or none


class Recorded:
    """The files of a rank that only keep its state."""

    state = "compute"

    def become(self, state: str) -> None:
        self.state = state


class Options:
    def __init__(self, asynchronous: bool) -> None:
        self.asyncOp = asynchronous


@pytest.mark.parametrize(
    ("work", "asynchronous", "state"),
    [
        pytest.param(None, False, "compute", id="put behind the stream of a device: torch 2.8 and later over NCCL"),
        pytest.param(Options(True), False, "collective", id="the program waits for it at once"),
        pytest.param(Options(True), True, "compute", id="the program goes on"),
    ],
)
def test_in_which_state_a_rank_is_after_its_call(
    work: object, asynchronous: bool, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that goes on computing must not be taken for one in its last collective."""
    files = Recorded()
    monkeypatch.setattr(collectives, "recording", lambda: files)

    def call(group: object, options: Options) -> object:
        collectives.WAITS.call = ("all_reduce", 1)
        files.become("collective")
        return work

    assert collectives.wrap_method(call)(object(), Options(asynchronous)) is work  # type: ignore[no-untyped-call]
    assert files.state == state


TWO_THREADS = """
import sys
import threading
from doctor.watch.hook.rank_files import start_recording
files = start_recording(0, 1)
def call(state="collective"):
    return files.begin(0, "all_reduce", "float32", -1, 8, state)
def aside(*calls):
    thread = threading.Thread(target=lambda: [call() for call in calls])
    thread.start()
    thread.join()
def goes_on():
    files.become("compute")
def loads():
    files.become("input")
    goes_on()
def steps():
    files.enter_backward()
    call("enqueued")
    files.leave_backward()
    files.next_step()
steps()
exec(sys.argv[1])
"""
IN_BACKWARD = "files.enter_backward(); call('enqueued'); "


@pytest.mark.parametrize(
    ("does", "state"),
    [
        pytest.param(IN_BACKWARD + "aside(loads)", "enqueued", id="a thread loads ahead"),
        pytest.param(IN_BACKWARD + "aside(call, goes_on)", "enqueued", id="a thread has saved a checkpoint"),
        pytest.param(IN_BACKWARD + "call(); goes_on()", "enqueued", id="a hook has reduced something itself"),
        pytest.param(IN_BACKWARD + "files.next_step()", "enqueued", id="a parameter's own optimizer has stepped"),
        pytest.param("files.enter_backward(); call(); goes_on()", "enqueued", id="a hook's is awaited in C++"),
        pytest.param("call(); aside(loads)", "collective", id="the main thread waits in Python"),
        pytest.param("call(); aside(call, goes_on)", "collective", id="both threads are in collectives"),
        pytest.param("call('enqueued'); loads()", "enqueued", id="a functional collective is not awaited yet"),
        pytest.param("aside(call)", "collective", id="only a thread is in a collective"),
        pytest.param("aside(call, goes_on)", "compute", id="that one has ended"),
        pytest.param("call(); goes_on(); aside(call)", "collective", id="one after the other"),
        pytest.param("steps(); call(); goes_on()", "compute", id="a backward pass that is over"),
        pytest.param("aside(steps, call); aside(loads)", "compute", id="the thread of the steps has ended"),
    ],
)
def test_a_collective_ends_only_by_what_its_own_thread_does(does: str, state: str, tmp_path: Path) -> None:
    """A rank in an all_reduce that the others have not entered must not be taken for one that rests elsewhere."""
    process = recorded(tmp_path, TWO_THREADS, does)
    process.read_recorder()
    assert process.timed.latest is not None and STATES[process.timed.latest.state] == state
    assert len(process.timed.entries) == 1 + does.count("call") + does.count("steps")


@pytest.mark.torch
def test_the_state_of_numpys_generator_has_one_digest_however_it_was_read() -> None:
    from doctor.watch.hook.digest import _numpy_state, generator_digest  # imports torch

    numpy = pytest.importorskip("numpy")
    numpy.random.seed(5)
    numpy.random.rand(700)
    quick = generator_digest("numpy", _numpy_state(numpy))
    assert quick == generator_digest("numpy", numpy.random.get_state()) == generator_digest("numpy", _as_dict(numpy))
    numpy.random.rand()
    assert generator_digest("numpy", _numpy_state(numpy)) != quick


def _as_dict(numpy: ModuleType) -> dict[str, object]:
    state: dict[str, object] = numpy.random.get_state(legacy=False)
    return state
