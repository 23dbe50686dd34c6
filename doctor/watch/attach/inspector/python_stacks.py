"""The Python stacks of processes: by py-spy, which does not stop them, or written by themselves on a signal."""

import itertools
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import time

from doctor.remote.runtime.reading import link_at, names_in, read_text
from doctor.remote.runtime.stack_frames import is_of_program, is_own, without_own_frames
from doctor.smoke.programs.agent.procfs import catches
from doctor.smoke.programs.agent.system_calls import memory_maps

MOST_FRAMES = 40
MAX_DUMP = 1 << 20
TRIES = 3
LATE = "py-spy did not answer in time"
LOCALS_SECONDS = 5.0
RANK_ARGUMENTS = ("rank", "global_rank", "process_id", "process_index")
MOST_THREADS = 4096
# Function and file where a thread waits for another of its process: joined, its result, a task or an event.
HANDS_OVER = re.compile(
    r"\w+ .*(?:/threading\.py|/concurrent/futures/_base\.py)$|main_loop .*/ray/_private/worker\.py$"
    r"|_run_once .*/asyncio/base_events\.py$|serve_forever .*/socketserver\.py$"
)
# Of an actor of Ray whose calls an event loop works for: the functions of its main thread and of that loop's.
SERVES_CALLS, LOOPS = "main_loop .*/ray/_private/worker", "_run_once .*/asyncio/base_events"
# Where one of a pool, of a logger or of a server has nothing to do.
RESTS_IN = re.compile(
    HANDS_OVER.pattern + r"|get .*/(?:queue|multiprocessing/queues)\.py$"
    r"|\w+ .*/(?:selectors|socketserver|multiprocessing/connection)\.py$"
)
SERVES = "/grpc/_server.py"  # by its threads, each with a call of another process
RUNS = re.compile("/torch(?:_npu)?/distributed/")
COMMUNICATES = re.compile(r"\w+ .*/(?:torch|torch_npu|mindspore|deepspeed|mpi4py|jax)/")


def find_py_spy(pids, preferred):
    """The path of py-spy: as named, beside an interpreter of the job, or on the PATH; empty where there is none."""
    places = [preferred] if preferred else []
    for pid in pids[:4]:
        programs = [link_at("/proc/%d/exe" % pid), read_text("/proc/%d/cmdline" % pid, 4096).split("\0")[0]]
        places += [os.path.join(os.path.dirname(path), "py-spy") for path in programs if path.startswith("/")]
        # Ray's workers have other command lines: beside the packages that they have mapped.
        packages = re.findall(r" (/[^\n]{1,300}?)/lib/python3\.\d+/site-packages/", memory_maps(pid))
        places += [os.path.join(folder, "bin", "py-spy") for folder in sorted(set(packages))[:4]]
    places += [shutil.which("py-spy") or "", os.path.expanduser("~/.local/bin/py-spy"), "/usr/local/bin/py-spy"]
    return next((place for place in places if place and os.access(place, os.X_OK) and is_trusted(place)), "")


def is_trusted(path):
    """Whether only root, or who runs this, can have written a program: root runs nothing of a job's owner."""
    try:
        status = os.stat(path)
        folder = os.stat(os.path.dirname(os.path.realpath(path)))
    except OSError:
        return False
    owners = (0, os.geteuid())
    return status.st_uid in owners and folder.st_uid in owners and not (status.st_mode | folder.st_mode) & stat.S_IWOTH


def spied_stacks(pids, program, deadline):
    """By pid: (thread, frames) of the one that does its work, and why others have none.

    Frames are [function, file, line], the innermost first.
    """
    stacks, problems, waiting = {}, {}, dict((pid, 0) for pid in pids)
    while waiting and time.monotonic() < deadline:
        started = {}
        for pid in waiting:
            command = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
            started[pid] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=spy_environ()
            )
        for pid, process in started.items():
            try:
                out, err = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                out, err = b"", LATE.encode("ascii")
            thread_frames = working_thread(out[:MAX_DUMP], pid)
            waiting[pid] += 1
            if thread_frames:
                stacks[pid] = thread_frames
                problems.pop(pid, None)
                del waiting[pid]
                continue
            lines = err.decode("utf-8", "replace").strip().splitlines()
            problems[pid] = (lines[-1] if lines else "py-spy showed no stack")[:200]
            if waiting[pid] >= TRIES:
                del waiting[pid]
    return stacks, problems


def frames_with_locals(pid, program, deadline):
    """The frames of the main thread as py-spy prints them, with local variables; none where the time is over."""
    command = [program, "dump", "--nonblocking", "--locals", "--json", "--pid", str(pid)]
    seconds = min(LOCALS_SECONDS, deadline - time.monotonic())
    try:
        data = subprocess.check_output(command, stderr=subprocess.DEVNULL, timeout=seconds, env=spy_environ())
        threads = json.loads(data.decode("utf-8", "replace"))
        main = [entry for entry in threads if entry["os_thread_id"] == pid or entry["thread_name"] == "MainThread"]
        return [dict(frame, locals=frame["locals"] or ()) for entry in main[:1] for frame in entry["frames"]]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return []


def rank_in_locals(frames):
    """The rank that the outermost of the program's functions has been given as an argument; None where none has.

    As mp.spawn gives it. ``frames``: as `frames_with_locals` returns.
    """
    variables = [entry for frame in frames if is_of_program(frame["filename"]) for entry in frame["locals"]]
    ranks = [entry["repr"] for entry in variables if entry["arg"] and entry["name"] in RANK_ARGUMENTS]
    return int(ranks[-1]) if ranks and re.match(r"-?\d{1,9}$", ranks[-1]) else None


def spy_environ():
    """Nothing of the caller's environment changes what py-spy does."""
    return {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "NO_COLOR": "1"}


def working_thread(data, pid):
    """(id, frames) of the thread that does a process's work, in what py-spy printed; None where it cannot be read.

    It is the main thread, or, where that one only waits for others, the one that does something.
    """
    try:
        threads = [(int(thread.get("os_thread_id") or 0), str(thread.get("thread_name")), frames_of(thread))
                   for thread in json.loads(data.decode("utf-8", "replace"))]  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    main = next((entry for entry in threads if entry[0] == pid or entry[1] == "MainThread"), None)
    main = threads[0] if main is None and len(threads) == 1 else main
    if main is None or not main[2]:
        return None
    if is_in(main[2], HANDS_OVER):
        others = [entry for entry in threads if entry is not main and any(is_work(frame[1]) for frame in entry[2])]
        others = [entry for entry in others if not is_in(entry[2], RESTS_IN, is_work)]
        busy = [entry for entry in others if is_in(entry[2], COMMUNICATES)]
        others = busy or [entry for entry in others if any(SERVES in frame[1] for frame in entry[2])] or others
        if not others and is_in(main[2], re.compile(SERVES_CALLS)):
            others = [entry for entry in threads if is_in(entry[2], re.compile(LOOPS))]
        thread = thread_here(pid, others[0][0]) if len(others) == 1 else 0
        if thread:
            return thread, others[0][2]
    return pid, main[2]


def is_work(path):
    """Whether a function of this file is the program's, or one that a pool may run for it."""
    return is_of_program(path) or bool(RUNS.search(path))


def is_in(frames, pattern, is_beyond=is_of_program):
    """Whether one of the functions of libraries that the program has called is of this pattern."""
    innermost = itertools.takewhile(lambda frame: not is_beyond(frame[1]), frames)
    return any(pattern.match("%s %s" % (name.rpartition(".")[2], path)) for name, path, _ in innermost)


def frames_of(thread):
    """The frames of a thread, cut, without those of doctor's own hook."""
    frames = [frame for frame in thread["frames"] if not is_own(frame["filename"])]
    return [frame_of(frame["name"], frame["filename"], frame["line"]) for frame in frames[:MOST_FRAMES]]


def thread_here(pid, number):
    """The id that a thread has here; in a container it has another there. 0 where it is not known."""
    names = names_in("/proc/%d/task" % pid)
    if str(number) in names and number:
        return number
    for name in names[:MOST_THREADS]:
        inner = re.search(r"^NSpid:.*\s([0-9]+)$", read_text("/proc/%d/task/%s/status" % (pid, name)), re.M)
        if inner and int(inner.group(1)) == number:
            return int(name)
    return 0


def frame_of(name, file, line):
    """A frame with texts of bounded length."""
    return [str(name)[:100], str(file)[-200:], int(line)]


def signalled_stacks(pids, number):
    """The stacks that processes write into their stderr on a signal, where they have a handler, and stderr is a file.

    Only for a signal that the user named: whether its handler writes stacks, the kernel does not tell.
    """
    places, stacks = {}, {}
    for pid in pids:
        if not catches(pid, number):
            continue
        try:
            fd = os.open("/proc/%d/fd/2" % pid, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            continue
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            continue
        places[pid] = (fd, status.st_size)
        os.kill(pid, number)
    time.sleep(0.5 if places else 0)
    for pid, (fd, size) in places.items():
        text = os.pread(fd, 1 << 16, size).decode("utf-8", "replace")
        os.close(fd)
        blocks = re.split(r"^(?:Current thread|Thread) 0x", text, flags=re.M)
        # The main thread is the last that faulthandler writes.
        block = without_own_frames(blocks[-1])
        frames = re.findall(r'^  File "([^"\n]{1,300})", line (\d{1,7}) in ([^\n]{1,100})', block, re.M)
        if frames:
            stacks[pid] = [frame_of(name, file, line) for file, line, name in frames[:MOST_FRAMES]]
    return stacks


def signal_number(name):
    """The number of USR1 and its like; 0 for what is no such name."""
    return int(getattr(signal, "SIG" + name, 0)) if name in ("USR1", "USR2", "QUIT", "TRAP", "ABRT") else 0
