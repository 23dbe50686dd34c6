"""The commands that the carrier starts."""

import errno
import os
import signal
import time

from doctor.remote.runtime.processes import die_with_parent, ended, fork_with_pipes, signal_group

CHUNK = 48 << 10
WINDOW = 1 << 20  # bytes of a command's output that may be on their way to the controller
QUEUE_LIMIT = 1 << 18  # bytes that may wait for our stdout before no more output is read
GRACE = 1.0  # seconds between asking a command to end and killing it
LAUNCHER_VARIABLES = ("SLURM_", "SLURMD_", "SRUN_", "OMPI_", "PMIX_", "PMI_", "PRTE_", "ORTE_", "OPAL_")


class Command:
    """One command, from its start until it is forgotten.

    `unconfirmed` counts bytes of its output that the controller has not confirmed, `consumed` bytes of its input that
    the controller was not told of yet. `code` is its exit status, once it has ended; after `deadline` it is killed.
    """

    def __init__(self, number, text):
        self.number, self.stdin_data, self.stdin_ended = number, bytearray(), False
        self.unconfirmed = self.consumed = 0
        self.code = self.deadline = None
        parent = os.getpid()
        self.pid, self.stdin_fd, stdout, stderr = fork_with_pipes(lambda: run_child(parent, text))
        self.readers = {stdout: b"o", stderr: b"e"}
        for fd in (self.stdin_fd, stdout, stderr):
            os.set_blocking(fd, False)

    def push(self):
        """Writes what fits."""
        try:
            while self.stdin_data and self.stdin_fd is not None:
                count = os.write(self.stdin_fd, self.stdin_data[:65536])
                del self.stdin_data[:count]
                self.consumed += count
        except BlockingIOError:
            return
        except OSError:
            self.consumed += len(self.stdin_data)
            self.stdin_data, self.stdin_ended = bytearray(), True
        if self.stdin_ended and not self.stdin_data:
            self.close_stdin()

    def close_stdin(self):
        if self.stdin_fd is not None:
            os.close(self.stdin_fd)
            self.stdin_fd = None

    def pull(self, fd, writer):
        """Sends a piece of the output on. True: there was some, or the end."""
        try:
            piece = os.read(fd, CHUNK)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EINTR):
                return False
            piece = b""
        if piece:
            self.unconfirmed += len(piece)
            writer.send(self.readers[fd], self.number, piece)
        else:
            del self.readers[fd]
            os.close(fd)
            if not self.readers:
                writer.send(b"z", self.number)
        return True

    def report_exit(self, writer):
        """Sends the exit status of the leader, behind what it printed."""
        if self.code is not None or self.unconfirmed >= WINDOW:
            return
        end = ended(self.pid)
        if end is None:
            return
        while any([self.pull(fd, writer) for fd in list(self.readers)]):
            if self.unconfirmed >= WINDOW or len(writer.queue) > QUEUE_LIMIT:
                return
        self.code = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
        writer.send(b"x", self.number, b"%d" % self.code)

    def end(self):
        """Asks it to end; what does not is killed at the deadline."""
        self.close_stdin()
        if self.deadline is None:
            self.deadline = time.monotonic() + GRACE
            signal_group(self.pid, signal.SIGTERM)

    def over(self, now):
        """Whether it is ended for good. The leader is reaped last: until then no other process has its number."""
        if self.deadline is None and (self.code is None or self.readers):
            return False
        leader_ended = ended(self.pid) is not None
        if self.deadline is not None:
            if leader_ended or now > self.deadline:
                signal_group(self.pid)
            # After that it is stuck in the kernel, and given up.
            if not leader_ended and now < self.deadline + GRACE:
                return False
        self.close_stdin()
        for fd in self.readers:
            os.close(fd)
        self.readers = {}
        os.waitpid(self.pid, os.WNOHANG)
        return True


def run_child(parent, text):
    """The command, without the launcher's own variables: it is no task of the launcher's."""
    die_with_parent(parent)
    environ = dict((name, value) for name, value in os.environ.items() if not name.startswith(LAUNCHER_VARIABLES))
    try:
        os.chdir(environ.get("HOME", "/"))
    except OSError:
        os.chdir("/")
    os.execve("/bin/sh", ["/bin/sh", "-c", text], environ)
