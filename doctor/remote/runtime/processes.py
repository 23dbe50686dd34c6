"""Processes that a program starts on a host: each in a session of its own, so that all of it can be ended."""

import _signal as signal  # type: ignore[import-not-found]  # `signal` without its slow enumerations
import os
import select
import time

from doctor.remote.runtime.signals import TERMINATION_SIGNALS, restore_default_signals


def fork_child(body, stdin, stdout, stderr, failure_code=127, own_session=True):
    """Runs `body` in a child with these three file descriptors; returns the child's pid.

    `body` replaces the process or ends it. What it raises goes to the child's stderr, and the child ends with
    `failure_code`.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        if own_session:
            os.setsid()
        restore_default_signals()
        for target, fd in enumerate((stdin, stdout, stderr)):
            os.dup2(fd, target)
        body()
    except BaseException as error:
        os.write(2, ("%s: %s\n" % (type(error).__name__, error)).encode("ascii", "replace"))
    os._exit(failure_code)


def fork_with_pipes(body, failure_code=127):
    """Like `fork_child`; returns the pid and our ends of the child's stdin, stdout and stderr."""
    return with_pipes(lambda stdin, stdout, stderr: fork_child(body, stdin, stdout, stderr, failure_code))


def spawn_with_pipes(argv, environ):
    """Starts a program in this process's directory; returns the same as `fork_with_pipes`."""
    return with_pipes(lambda *ends: spawn(argv, environ, ends))


def with_pipes(start):
    """Calls `start` with the child's ends of three pipes; returns the pid that it returns, and our ends."""
    stdin, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
    ends = (stdin[0], stdout[1], stderr[1])
    pid = start(*ends)
    for fd in ends:
        os.close(fd)
    return pid, stdin[1], stdout[0], stderr[0]


def spawn(argv, environ, ends):
    """Without a copy of this process where the platform allows it (from Python 3.8), at a third of the CPU time."""
    try:
        return posix_spawn(argv, environ, dict(enumerate(ends)), own_session=True)
    except (NotImplementedError, OSError):  # no setsid; or no such program, which the child reports
        return fork_child(lambda: os.execvpe(argv[0], argv, environ), *ends)


def posix_spawn(argv, environ, ends, own_session):
    """The pid of a program, whose file descriptors are those of `ends`. Raises: OSError, NotImplementedError."""
    if not (hasattr(os, "posix_spawn") and os.path.isabs(argv[0])):
        raise NotImplementedError
    options = {"setsid": True} if own_session else {}
    return os.posix_spawn(
        argv[0],
        argv,
        environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in ends.items()],
        setsigmask=(),
        setsigdef=TERMINATION_SIGNALS + (signal.SIGPIPE, signal.SIGCHLD),
        **options,
    )


def ended(pid):
    """How a child ended, as `os.waitid` has it; None while it runs. It is not reaped: its number stays its own."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def exit_code(status):
    """The exit code of a wait status; a signal's number below zero."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def signal_group(pid, number=signal.SIGKILL):
    """Sends a signal to the whole process group of a child that was not reaped, or to the child alone.

    Just after the fork there is no group yet: the child has not reached its ``setsid``.
    """
    for send in (os.killpg, os.kill):
        try:
            send(pid, number)
            return
        except OSError:
            pass


def run_tool(argv, environ, seconds):
    """Exit code, stdout and stderr of a program, in this process's group. Raises: OSError, also when it is late."""
    pipes = [os.pipe(), os.pipe()]
    ends = {1: pipes[0][1], 2: pipes[1][1]}
    try:
        pid = posix_spawn(argv, environ, ends, own_session=False)
    except (NotImplementedError, OSError):
        pid = fork_child(lambda: os.execve(argv[0], argv, environ), 0, ends[1], ends[2], own_session=False)
    for end in ends.values():
        os.close(end)
    poll, outputs, deadline = select.poll(), {pipes[0][0]: [], pipes[1][0]: []}, time.monotonic() + seconds
    reading = set(outputs)
    for fd in outputs:
        poll.register(fd, select.POLLIN)
    while reading and time.monotonic() < deadline:
        for fd, _ in poll.poll(max(1, int(1000 * (deadline - time.monotonic())))):
            piece = os.read(fd, 65536)
            outputs[fd].append(piece)
            if not piece:
                poll.unregister(fd)
                reading.discard(fd)
    for fd in outputs:
        os.close(fd)
    if reading:
        os.kill(pid, 9)
    code = exit_code(os.waitpid(pid, 0)[1])
    if reading:
        raise OSError(110, "no answer in %d s" % seconds)
    out, err = (b"".join(pieces) for pieces in outputs.values())
    return code, out, err


def prctl(option, value):
    """Sets an attribute of this process; does nothing where Python or the kernel lacks the means."""
    try:
        import ctypes  # in here: it takes as long to load as all else together

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (ImportError, OSError, AttributeError):  # then stdin's end is the only sign
        pass


def die_with_parent(parent):
    """Has the kernel kill this process when its parent ends; ends it at once if the parent has ended already."""
    prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(0)


def become_reaper():
    """Orphans of what this process started come to it, not to an init that a container may lack."""
    prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
