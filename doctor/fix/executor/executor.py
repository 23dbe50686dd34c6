"""The executor's loop: takes the host's lock, and answers one request after another; steps go to the host's log."""

import fcntl
import glob
import json
import os
import pwd
import re
import signal
import socket
import sys
import time

from doctor.fix.executor.file_changes import RequestRejected, relink, tidy, write
from doctor.fix.executor.file_state import forget, peek, peek_many, recall
from doctor.fix.executor.step_commands import pass_through, run, run_shell
from doctor.remote.runtime.framing import marked_line
from doctor.remote.runtime.host_texts import filled, with_texts
from doctor.remote.runtime.signals import on_termination
from doctor.remote.runtime.streams import LineBuffer, write_all

SOCKETS = ("/dev/log", "/run/systemd/journal/dev-log")
AUTH_NOTICE = 4 << 3 | 5
LINE_BYTES = 900  # RFC 3164 allows 1024 with the header


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


def busy(_request):
    """Processes that use the accelerators. `hidden`: number of processes that could not be inspected."""
    holders, hidden, problem = [], 0, ""
    npus = [path for path in glob.glob("/dev/davinci[0-9]*") if path[12:].isdigit()]
    for pid in [name for name in os.listdir("/proc") if name.isdigit()] if npus else []:
        try:
            targets = [os.readlink(path) for path in glob.glob("/proc/%s/fd/*" % pid) if os.path.islink(path)]
            os.listdir("/proc/%s/fd" % pid)
            if any(re.match("/dev/davinci[0-9]+$", path) for path in targets):
                holders.append(device_user(pid, "an NPU"))
        except PermissionError:
            hidden += 1
        except OSError:
            pass
    if glob.glob("/dev/nvidia[0-9]*"):
        gpu_holders, problem = gpu_users()
        holders += gpu_holders
    return {"holders": holders, "hidden": hidden, "trouble": problem}


def gpu_users():
    """The processes that nvidia-smi lists, and why it does not, if so."""
    result = run_shell("nvidia-smi --query-compute-apps=pid --format=csv,noheader", 20, 65536)
    problem = "nvidia-smi does not list the GPUs' processes" if result["code"] else ""
    return [device_user(pid, "a GPU") for pid in result["out"].split() if pid.isdigit()], problem


def device_user(pid, device):
    """A process that has a device open: its pid, name and user."""
    try:
        uid = os.stat("/proc/" + pid).st_uid
        with open("/proc/%s/comm" % pid, errors="replace") as file:
            name = file.read().strip()
    except OSError:
        return {"pid": int(pid), "name": "?", "user": "?", "what": device}
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return {"pid": int(pid), "name": name, "user": user, "what": device}


def log_line(request):
    """Writes one line; `logged` is False where the host has no log that listens."""
    return {"logged": write_log(request["text"])}


def log_outcome(text, result):
    """A line for a request that was answered, however it ended."""
    if "refused" in result:
        outcome = "not made: " + result["refused"]
    elif result.get("trouble") or result.get("code"):
        outcome = "failed: " + (result.get("trouble") or "status %d" % result["code"])
    else:
        outcome = "done"
    write_log("%s: %s" % (text, outcome))


def write_log(text):
    """Whether the line was taken. Line ends and control characters in it do not make another line."""
    clean = "".join(character if character.isprintable() else " " for character in text)
    data = ("<%d>doctor-fix[%d]: %s" % (AUTH_NOTICE, os.getpid(), clean)).encode("utf-8", "replace")[:LINE_BYTES]
    for path in SOCKETS:
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            with socket.socket(socket.AF_UNIX, kind) as connection:
                connection.settimeout(1)
                try:
                    connection.connect(path)
                    connection.send(data if kind == socket.SOCK_DGRAM else data + b"\0")
                    return True
                except OSError:
                    continue
    return False


OPERATIONS = {
    "run": run,
    "filter": pass_through,
    "peek": peek,
    "peek_many": peek_many,
    "write": write,
    "relink": relink,
    "tidy": tidy,
    "recall": recall,
    "forget": forget,
    "busy": busy,
    "log": log_line,
}


def answer(request):
    """The answer to one request; a request that failed or was rejected gives its reason as `refused`.

    One with the text `log` is written to the host's log with its outcome, also where the caller has stopped waiting.
    """
    try:
        result = OPERATIONS[request["op"]](request)
    except RequestRejected as error:
        result = {"refused": str(error)}
    except OSError as error:
        result = {"refused": error.strerror or str(error)}
    if request.get("log"):
        log_outcome(request["log"], result)
    return result


def send(marker, message):
    """Writes one marked line to stdout."""
    try:
        write_all(1, b"\n" + marked_line(marker, json.dumps(with_texts(message)).encode("ascii")))
    except OSError:  # no reader is left: what was begun is done all the same
        pass


def main(request, _program):
    """Locks the host, then answers the requests from stdin one by one. Exits with 4 when the lock is held."""
    on_termination(signal.SIG_IGN)
    os.umask(0o022)
    request = json.loads(request.decode("ascii"))
    marker, lock = request["marker"].encode("ascii"), (None, "")
    try:
        lock = lock_host(request["lock"]) if request["lock"] >= 0 else lock
    except RequestRejected as error:
        send(marker, {"refused": str(error)})
        os._exit(4)
    send(marker, {"uid": os.geteuid(), "python": "%d.%d.%d" % sys.version_info[:3], "name": os.uname()[1]})
    lines = LineBuffer()
    while True:
        piece = os.read(0, 65536)
        if not piece:
            break
        for line in lines.split(piece):
            send(marker, answer(json.loads(line.decode("ascii"))))
    unlock(*lock)
    os._exit(0)
