"""One `doctor fix` at a time works on a host."""

import fcntl
import os
import pwd
import time

from doctor.fix.executor.file_changes import RequestRejected
from doctor.remote.runtime.host_texts import filled

ROOT_LOCK = "/run/doctor-fix.lock"
WAIT = 0.1  # seconds between two attempts


def lock_host(seconds):
    """The lock's descriptor and path, held as long as this process lives. It is a file that no other user can open.

    Raises RequestRejected when another process holds it for longer than `seconds`.
    """
    path = lock_path()
    if not path:
        return None, ""
    deadline = time.monotonic() + seconds
    while True:
        fd, holder = try_lock(path)
        if fd is not None:
            return fd, path
        if time.monotonic() > deadline:
            raise RequestRejected(filled("another doctor fix is running on it{0}", holder))
        time.sleep(WAIT)


def try_lock(path):
    """The locked descriptor, or None and who has the lock. Raises RequestRejected where the file is not ours."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise RequestRejected(filled("its lock {0} cannot be opened: {1}", path, error.strerror)) from None
    status = os.fstat(fd)
    if status.st_uid != os.geteuid():
        os.close(fd)
        raise RequestRejected(filled("its lock {0} belongs to user {1}", path, status.st_uid))
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Who held it before may have removed the name: then another file is the lock by now.
        if os.stat(path).st_ino == os.fstat(fd).st_ino:
            os.ftruncate(fd, 0)
            os.write(fd, b"%d" % os.getpid())
            return fd, ""
        holder = ""
    except OSError:
        pid = os.pread(fd, 20, 0).decode("ascii", "replace")
        holder = filled(" (process {0})", pid) if pid.isdigit() else ""
    os.close(fd)
    return None, holder


def lock_path():
    """A file in a folder where no other user can create one; empty where there is no such folder."""
    if os.geteuid() == 0:
        return ROOT_LOCK
    candidates = ["/run/user/%d" % os.geteuid()]
    try:
        candidates.append(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        pass
    with open("/proc/sys/kernel/random/boot_id") as file:
        name = ".doctor-fix-%s.lock" % file.read().strip()  # a home folder may be that of many hosts
    for folder in candidates:
        try:
            status = os.stat(folder)
        except OSError:
            continue
        if status.st_uid == os.geteuid() and not status.st_mode & 0o022 and os.access(folder, os.W_OK | os.X_OK):
            return os.path.join(folder, name)
    return ""


def unlock(fd, path):
    """Ends the lock, and removes its file while no other process can hold the lock."""
    if fd is not None:
        try:
            os.unlink(path)
        except OSError:
            pass
        os.close(fd)
