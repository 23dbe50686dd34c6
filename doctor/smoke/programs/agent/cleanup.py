"""The end of all that the agent started."""

import os
import re
import signal
import stat
import time

from doctor.remote.runtime.reading import names_in, read_text
from doctor.smoke.programs.agent.procfs import all_processes, process_status

MOST_KNOWN, MOST_FOLDERS = 100000, 16


class Descendants:
    """The processes that come from the agent.

    `sessions` are those that it began; `pids` all processes that were ever found to be its own; `dying` those of them
    that were killed and still wait for a CPU, or a thaw, to end: they run no more of their program.
    """

    def __init__(self, mark):
        self.mark = mark  # an environment variable that all of them have
        self.sessions, self.pids, self.dying = set(), set(), set()
        self.folders = set(["/tmp", "/var/tmp", os.environ.get("TMPDIR") or "/tmp"])
        self.began = time.time()

    def note(self, pid, folder):
        """What a process says of itself: its number, and where it makes its temporary files."""
        if isinstance(pid, int) and len(self.pids) < MOST_KNOWN:
            self.pids.add(pid)
        if isinstance(folder, str) and len(self.folders) < MOST_FOLDERS:
            self.folders.add(folder)

    def kill_all(self):
        """Kills them all: [pid, state, command line] of those that remain.

        Never waits for what cannot die, such as a frozen process.
        """
        deadline = time.monotonic() + 1.0
        while True:
            remaining = self.alive()
            for pid in remaining:
                for number in (signal.SIGKILL, signal.SIGCONT):
                    try:
                        os.kill(pid, number)
                    except OSError:
                        pass
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except OSError:
                pass
            if not remaining or time.monotonic() > deadline:
                break
            time.sleep(0.005)
        self.dying = set(remaining)
        # One that could run was killed, and waits for a CPU to end on; one without a command line gave up its memory.
        stuck = [[pid, state, command_line(pid)] for pid, state in remaining.items() if state != "R"]
        return [row for row in stuck if row[2]]

    def alive(self):
        """By pid: the state of all that descend from us, as orphans come to us.

        Where the kernel gives us none, what is in a session that we began and has our mark.
        """
        table, descendants = all_processes(), set([os.getpid()])
        before = 0
        while before != len(descendants):
            before = len(descendants)
            for pid, (_, parent, session) in table.items():
                is_ours = parent in descendants
                if not is_ours and session in self.sessions and pid not in descendants:
                    is_ours = self.mark in read_text("/proc/%d/environ" % pid, 1 << 20).split("\0")
                descendants.update([pid] * is_ours)
        self.pids |= descendants
        return dict((pid, table[pid][0]) for pid in descendants if pid != os.getpid() and table[pid][0] not in "ZX")

    def remove_leftovers(self):
        """What killed ranks and loader workers had no time to remove: shared memory, semaphores, folders of sockets.

        Nothing that another process made, or one that still runs its program.
        """
        self.remove("/dev/shm", r"(?:sem\.)?torch_(\d+)_")
        for folder in self.folders:
            self.remove(folder, r"pymp-d(\d{7})$")
            for name in names_in(folder):
                if name.startswith("torchinductor_"):  # torch makes it when it is imported, for what it compiles
                    remove_path(os.path.join(folder, name), self.began)

    def remove(self, folder, pattern):
        """What is named so in a folder, with the pid of an ended process of ours."""
        for name in names_in(folder):
            match = re.match(pattern, name)
            pid = int(match.group(1)) if match else None
            if pid and pid in self.pids and (pid in self.dying or (process_status(pid) or "Z")[0] in "ZX"):
                remove_path(os.path.join(folder, name))


def remove_path(path, empty_since=0.0):
    """A file, or a folder with the files in it, of this user; links are not followed. What resists stays.

    `empty_since`: only a folder that was made, or became empty, after this time.
    """
    try:
        status = os.lstat(path)
        if status.st_uid != os.getuid() or status.st_ctime < empty_since:
            return
        if stat.S_ISDIR(status.st_mode):
            for name in () if empty_since else os.listdir(path):
                os.unlink(os.path.join(path, name))
            os.rmdir(path)
        else:
            os.unlink(path)
    except OSError:
        pass


def command_line(pid):
    """The command line of a process, with spaces between the words, from its first 200 bytes."""
    return read_text("/proc/%d/cmdline" % pid, 200).replace("\0", " ")
