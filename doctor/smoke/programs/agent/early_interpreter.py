"""The interpreter of ranks that were not ordered yet, and the files that any ranks inherit."""

import os
import signal

from doctor.smoke.programs.agent.interpreters import unnamed_file
from doctor.smoke.programs.recorder_page import PAGE_SIZE


class InheritedFiles:
    """The files that a host's ranks inherit: flight recorders, events, and rank -> stacks, and -> what it prints."""

    def __init__(self, mine, watcher):
        self.recorders = unnamed_file("box", PAGE_SIZE * len(mine))
        self.stacks = dict((rank, unnamed_file("stacks", 0)) for rank in mine)
        self.events, self.errors = watcher.open_pipes(mine)

    def of(self, ranks):
        """Those that one interpreter inherits."""
        return [self.recorders, self.events] + list(self.stacks.values()) + [self.errors[rank] for rank in ranks]

    def close_written(self):
        """Ours of those that only ranks write to: their end shows that a rank has ended."""
        for fd in [self.events] + list(self.errors.values()):
            os.close(fd)

    def close(self):
        """All of ours: there will be no such ranks."""
        self.close_written()
        for fd in [self.recorders] + list(self.stacks.values()):
            os.close(fd)


class EarlyInterpreter:
    """An interpreter that imports torch, and what it was started for."""

    def __init__(self, pid, stdin, files, mine, argv, environ):
        self.pid, self.stdin, self.files = pid, stdin, files
        self.mine, self.argv, self.environ = mine, argv, environ

    def is_for(self, mine, argv, environ):
        return (self.mine, self.argv, self.environ) == (mine, argv, environ)

    def is_running(self):
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def end(self, watcher):
        """Ends it, and closes what was opened for its ranks.

        It is not waited for, as one that reads a file system without an answer does not end: the watcher reaps it.
        """
        os.kill(self.pid, signal.SIGKILL)
        os.close(self.stdin)
        watcher.ranks_by_pid.pop(self.pid)
        watcher.starting.remove(self.pid)
        watcher.close()
        self.files.close()
