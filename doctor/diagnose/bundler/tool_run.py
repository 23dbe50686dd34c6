"""Commands of a request: each runs in a session of its own, for a limited time, with a limit of what it may write."""

import os
import resource
import select
import shutil
import tempfile
import time

from doctor.remote.runtime.processes import ended, exit_code, signal_group, spawn_with_pipes
from doctor.remote.runtime.streams import BoundedOutput

MAX_PRINTED = 1 << 20  # bytes of what a command prints
LOOK_SECONDS = 0.5  # between two looks at what a support tool has written
GIVE_UP_SECONDS = 2  # that a killed process is waited for
FOLDERS = ("/var/tmp", "/tmp")
RUNNING = []  # the pid of the command that runs now


class ToolRun:
    """One command; `text` is what it printed on both outputs, `problem` why that is not all.

    `nobody_waits` returns whether the caller has stopped waiting for the bundle.
    """

    def __init__(self, script, folder, seconds, limit, nobody_waits):
        self.argv = ["/bin/sh", "-c", 'exec 2>&1; cd "$1" || exit 125\n' + script, "sh", folder]
        self.folder, self.seconds, self.limit, self.nobody_waits = folder, seconds, limit, nobody_waits
        self.printed = BoundedOutput(MAX_PRINTED)
        self.problem = ""

    def run(self, environ):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        if self.limit:
            bound = self.limit if hard == resource.RLIM_INFINITY else min(self.limit, hard)
            resource.setrlimit(resource.RLIMIT_FSIZE, (bound, hard))
        try:
            pid, stdin, out, err = spawn_with_pipes(self.argv, environ)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        RUNNING.append(pid)
        os.close(stdin)
        try:
            self.read(pid, out)
        finally:
            signal_group(pid)
            RUNNING.clear()
            self.end(pid)
            os.close(out)
            os.close(err)

    def read(self, pid, out):
        """Takes in what it prints until it has ended, is late, or has written too much."""
        deadline, open_ = time.monotonic() + self.seconds, True
        while open_ or ended(pid) is None:
            wait = min(LOOK_SECONDS, max(0, deadline - time.monotonic()))
            if open_ and select.select([out], [], [], wait)[0]:
                piece = os.read(out, 65536)
                self.printed.add(piece)
                open_ = bool(piece)
            elif not open_:
                time.sleep(min(wait, 0.05))
            elif ended(pid) is not None:  # what it left behind holds its output open
                return
            if time.monotonic() >= deadline:
                self.problem = "did not end in its time"
            elif self.limit and folder_size(self.folder) >= self.limit:
                self.problem = "wrote more than it may"
            elif self.nobody_waits():
                self.problem = "was interrupted"
            if self.problem:
                return

    def end(self, pid):
        """Reaps it; one that the kernel does not let go is left to itself."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while ended(pid) is None:
            if time.monotonic() > deadline:
                return
            time.sleep(0.02)
        code = exit_code(os.waitpid(pid, 0)[1])
        if code and not self.problem:
            self.problem = "ended with an error"
        if self.printed.cut and not self.problem:
            self.problem = "printed more than doctor keeps"

    @property
    def text(self):
        return bytes(self.printed.data)


def folder_size(folder):
    """Bytes of the files below a folder."""
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                pass
    return size


def new_folder(room):
    """A new folder of our own where there is so much room. Raises: OSError."""
    places = [os.environ.get("TMPDIR", "")] + list(FOLDERS)
    for place in places:
        if place.startswith("/") and os.access(place, os.W_OK):
            status = os.statvfs(place)
            if status.f_bavail * status.f_frsize >= room:
                return tempfile.mkdtemp(prefix="doctor-bundle-", dir=place)
    raise OSError(28, "no folder for temporary files has enough room")


def remove_folder(folder):
    """Removes what a tool wrote."""
    shutil.rmtree(folder, ignore_errors=True)
