"""The Python stacks of processes: by py-spy, which does not stop them, or written by themselves on a signal."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import time

from doctor.smoke.programs.agent.procfs import read_text
from doctor.watch.attach.inspector.live_environment import memory_maps

MOST_FRAMES = 40
MAX_DUMP = 1 << 20
TRIES = 3


def find_py_spy(pids, preferred):
    """The path of py-spy: as named, beside an interpreter of the job, or on the PATH; empty where there is none."""
    places = [preferred] if preferred else []
    for pid in pids[:4]:
        try:
            places.append(os.path.join(os.path.dirname(os.readlink("/proc/%d/exe" % pid)), "py-spy"))
        except OSError:
            pass
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as file:
                first = file.read(4096).split(b"\0")[0].decode("utf-8", "replace")
            if first.startswith("/"):
                places.append(os.path.join(os.path.dirname(first), "py-spy"))
            # Ray's workers have other command lines: beside the packages that they have mapped.
            packages = re.findall(r" (/[^\n]{1,300}?)/lib/python3\.\d+/site-packages/", memory_maps(pid))
            places += [os.path.join(folder, "bin", "py-spy") for folder in sorted(set(packages))[:4]]
        except OSError:
            pass
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
    """By pid: the frames of its main thread, innermost first, as [function, file, line], and why others have none."""
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
                out, err = b"", b"py-spy did not answer in time"
            frames = main_frames(out[:MAX_DUMP], pid)
            waiting[pid] += 1
            if frames:
                stacks[pid] = frames
                problems.pop(pid, None)
                del waiting[pid]
                continue
            lines = err.decode("utf-8", "replace").strip().splitlines()
            problems[pid] = (lines[-1] if lines else "py-spy showed no stack")[:200]
            if waiting[pid] >= TRIES:
                del waiting[pid]
    return stacks, problems


def spy_environ():
    """Nothing of the caller's environment changes what py-spy does."""
    return {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "NO_COLOR": "1"}


def main_frames(data, pid):
    """The main thread's frames in what py-spy printed; empty where it cannot be read."""
    try:
        threads = json.loads(data.decode("utf-8", "replace"))
        main = [
            thread
            for thread in threads
            if thread.get("os_thread_id") == pid or thread.get("thread_name") == "MainThread"
        ]
        if not main and len(threads) == 1:
            main = threads
        return [
            frame_of(thread["name"], thread["filename"], thread["line"]) for thread in main[0]["frames"][:MOST_FRAMES]
        ]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return []


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
        frames = re.findall(r'^  File "([^"\n]{1,300})", line (\d{1,7}) in ([^\n]{1,100})', blocks[-1], re.M)
        if frames:
            stacks[pid] = [frame_of(name, file, line) for file, line, name in frames[:MOST_FRAMES]]
    return stacks


def catches(pid, number):
    """Whether a process has a handler for a signal: without one it could end it."""
    match = re.search(r"^SigCgt:\s*([0-9a-f]+)", read_text("/proc/%d/status" % pid), re.M)
    return bool(match and int(match.group(1), 16) >> (number - 1) & 1)


def signal_number(name):
    """The number of USR1 and its like; 0 for what is no such name."""
    return int(getattr(signal, "SIG" + name, 0)) if name in ("USR1", "USR2", "QUIT", "TRAP", "ABRT") else 0
