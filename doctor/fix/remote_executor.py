"""The hands of `doctor fix` on a host. Standard library only, Python 3.6 and later, ASCII.

It comes over stdin, is never written to disk, and does one request a line, in order: {"op": ..., ...}. Every answer is
one line of JSON behind a marker. It knows nothing of playbooks: who asks decides, writes down how to take a step back,
and only then asks for it. When stdin ends it ends too, but first comes to the end of what it has begun: a step that
was broken off midway is worse than one that was made.
"""

import base64
import glob
import hashlib
import json
import os
import pwd
import re
import select
import signal
import socket
import stat
import subprocess
import sys
import time

TOOL_DIRECTORIES = (
    "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin",
    "/usr/local/Ascend/driver/tools", "/usr/local/dcmi",
)  # fmt: skip
DRIVER_LIBRARIES = "/usr/local/Ascend/driver/lib64"
LARGEST = 1 << 20  # bytes of a file
GRACE = 0.5  # seconds for output to end after the command itself has
TEMPORARY = ".doctor-fix-"


class Refused(Exception):
    """Nothing was done, and why."""


def environment():
    environ = dict(os.environ, LC_ALL="C")
    path = [part for part in environ.get("PATH", "").split(":") if part]
    environ["PATH"] = ":".join(path + [part for part in TOOL_DIRECTORIES if part not in path])
    if os.path.isdir(DRIVER_LIBRARIES):
        parts = [environ.get("LD_LIBRARY_PATH", ""), DRIVER_LIBRARIES]
        parts += [DRIVER_LIBRARIES + "/driver", DRIVER_LIBRARIES + "/common"]
        environ["LD_LIBRARY_PATH"] = ":".join(part for part in parts if part)
    return environ


def signals(action):
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, action)


def run(sh, seconds, limit):
    """A command to its end: status, and the first `limit` bytes of what it said, stdout and stderr apart."""
    child = subprocess.Popen(
        ["/bin/sh", "-c", sh], cwd="/", env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True, preexec_fn=lambda: signals(signal.SIG_DFL),
    )  # fmt: skip
    kept = {child.stdout.fileno(): bytearray(), child.stderr.fileno(): bytearray()}
    out, err = kept.values()
    late, cut = time.time() + seconds, False
    said = {}
    while kept:
        if child.poll() is not None:
            late = min(late, time.time() + GRACE)
        ready = select.select(list(kept), [], [], 0.1)[0]
        for fd in ready:
            piece = os.read(fd, 65536)
            room = limit - len(kept[fd])
            kept[fd].extend(piece[:room])
            cut = cut or len(piece) > room
            if not piece:
                del kept[fd]
        if not ready and time.time() > late:
            break
    if child.poll() is None:
        try:
            child.wait(max(late - time.time(), 0.01))
        except subprocess.TimeoutExpired:
            said["trouble"] = "did not end within %g s, and was ended" % seconds
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    child.stdout.close()
    child.stderr.close()
    said.update(code=child.returncode, out=bytes(out).decode("utf-8", "replace"), cut=cut)
    said["err"] = bytes(err).decode("utf-8", "replace")
    return said


def peek(path):
    """What is at a path: its bytes, mode and owner, where it really lies, and whether it could be written."""
    real = os.path.realpath(path)
    folder, missing = os.path.dirname(real), []
    while not os.path.isdir(folder):
        missing.insert(0, folder)
        folder = os.path.dirname(folder)
    seen = {"real": real, "missing": missing, "kind": "absent", "trouble": not_writable(folder)}
    if missing and os.path.lexists(missing[0]):
        return dict(seen, kind="other", trouble=missing[0] + " is no folder")
    try:
        status = os.lstat(real)
    except OSError as error:
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            seen["trouble"] = error.strerror
        return seen
    if not stat.S_ISREG(status.st_mode):
        return dict(seen, kind="other", trouble="is no plain file")
    if is_mounted(real):
        return dict(seen, kind="other", trouble="is mounted from elsewhere, as in a container")
    if status.st_size > LARGEST:
        return dict(seen, kind="other", trouble="is longer than %d bytes" % LARGEST)
    try:
        with open(real, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        return dict(seen, kind="other", trouble=error.strerror)
    return dict(seen, kind="file", **described(data, status))


def is_mounted(real):
    """A file of its own mount cannot be replaced, only written into. os.path.ismount is wrong on an overlay."""
    with open("/proc/self/mountinfo", "rb") as file:
        places = [line.split()[4] for line in file]
    return os.fsencode(real) in [re.sub(rb"\\([0-7]{3})", unescape, place) for place in places]


def unescape(found):
    return bytes([int(found.group(1), 8)])


def described(data, status):
    return {
        "data": base64.b64encode(data).decode("ascii"),
        "sha": hashlib.sha256(data).hexdigest(),
        "mode": stat.S_IMODE(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
    }


def not_writable(folder):
    """Why nothing can, or should, be put into a folder."""
    status = os.stat(folder)
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return "the file system is read-only"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "permission denied"
    if os.geteuid() == 0 and status.st_mode & stat.S_IWOTH:
        return "anybody may write in " + folder
    return ""


def write(path, data, mode, uid, gid, sha, missing):
    """The file as it is to be, in one step; `sha` is what must be there before, empty for no file."""
    there = peek(path)
    if there["real"] != path:
        raise Refused("is a link by now: to %s" % there["real"])
    if there["trouble"]:
        raise Refused(there["trouble"])
    if there.get("sha", "") != sha:
        raise Refused("has changed since it was looked at")
    made = []
    try:
        for folder in missing:
            if not os.path.isdir(folder):
                os.mkdir(folder, 0o755)
                made.append(folder)
        put(path, base64.b64decode(data), mode, uid, gid)
    except OSError:
        unmake(made)
        raise
    return {"sha": peek(path).get("sha")}


def put(path, data, mode, uid, gid):
    folder = os.path.dirname(path)
    name = os.path.join(folder, TEMPORARY + os.urandom(6).hex())
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            if uid is not None and (uid, gid) != (os.geteuid(), os.getegid()):
                os.fchown(file.fileno(), uid, gid)
            os.fchmod(file.fileno(), mode)
            copy_attributes(path, file.fileno())
            file.flush()
            os.fsync(file.fileno())
        os.rename(name, path)
    except BaseException:
        os.unlink(name)
        raise
    settle(folder)


def settle(folder):
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def copy_attributes(path, fd):
    """SELinux's label and access lists go with the name, not with the bytes."""
    try:
        for name in os.listxattr(path):
            os.setxattr(fd, name, os.getxattr(path, name))
    except OSError:
        pass


def restore(path, old, new, missing, force):
    """The file as it was; `old` and `new` as `peek` describes it, without a sha for no file."""
    there = peek(path)
    if there["real"] != path:
        raise Refused("is a link by now: to %s" % there["real"])
    sha = there.get("sha", "")
    if there["kind"] == "other":
        raise Refused(there["trouble"])
    same = sha == old["sha"] and (not sha or all(there[key] == old[key] for key in ("mode", "uid", "gid")))
    if same:
        took = "was as before already"
    elif sha not in (new, old["sha"]) and not force:
        raise Refused("was changed since, by somebody or by a newer plan that is to be undone first")
    elif there["trouble"]:
        raise Refused(there["trouble"])
    elif old["sha"]:
        took = "restored"
        put(path, base64.b64decode(old["data"]), old["mode"], old["uid"], old["gid"])
    else:
        took = "removed"
        os.unlink(path)
        settle(os.path.dirname(path))
    unmake(missing)
    return {"took": took}


def unmake(folders):
    for folder in reversed(folders):
        try:
            os.rmdir(folder)
        except OSError:  # somebody has put something into it
            pass


def busy():
    """Who uses the accelerators. `hidden`: processes that could not be looked into."""
    found = {"holders": [], "hidden": 0, "trouble": ""}
    npus = [path for path in glob.glob("/dev/davinci[0-9]*") if path[12:].isdigit()]
    for pid in [name for name in os.listdir("/proc") if name.isdigit()] if npus else []:
        try:
            held = [os.readlink(path) for path in glob.glob("/proc/%s/fd/*" % pid) if os.path.islink(path)]
            os.listdir("/proc/%s/fd" % pid)
            if any(re.match("/dev/davinci[0-9]+$", path) for path in held):
                found["holders"].append(process(pid, "an NPU"))
        except PermissionError:
            found["hidden"] += 1
        except OSError:
            pass
    if glob.glob("/dev/nvidia[0-9]*"):
        ask_nvidia(found)
    return found


def ask_nvidia(found):
    said = run("nvidia-smi --query-compute-apps=pid --format=csv,noheader", 20, 65536)
    if said["code"]:
        found["trouble"] = "nvidia-smi does not tell who uses the GPUs"
    for pid in said["out"].split():
        if pid.isdigit():
            found["holders"].append(process(pid, "a GPU"))


def process(pid, what):
    try:
        uid = os.stat("/proc/" + pid).st_uid
        with open("/proc/%s/comm" % pid, errors="replace") as file:
            name = file.read().strip()
    except OSError:
        return {"pid": int(pid), "name": "?", "user": "?", "what": what}
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return {"pid": int(pid), "name": name, "user": user, "what": what}


def lock(seconds):
    """Held as long as this process lives, and no file that stays. One `doctor fix` at a time works on a host."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    late = time.time() + seconds
    while True:
        try:
            held.bind("\0doctor-fix-%d" % os.geteuid())
            return held
        except OSError:
            time.sleep(0.1)
        if time.time() > late:
            raise Refused("another doctor fix is at work on it")


OPERATIONS = {"run": run, "peek": peek, "write": write, "restore": restore, "busy": busy}


def answer(request):
    operation = OPERATIONS[request.pop("op")]
    try:
        return operation(**request)
    except Refused as error:
        return {"refused": str(error)}
    except OSError as error:
        return {"refused": error.strerror or str(error)}


def lines():
    kept = b""
    while True:
        piece = os.read(0, 65536)
        if not piece:
            return
        *whole, kept = (kept + piece).split(b"\n")
        for line in whole:
            yield line


def main(request):
    signals(signal.SIG_IGN)
    os.umask(0o022)
    request = json.loads(request.decode("ascii"))
    marker, held = request["marker"], None

    def say(**words):
        data = ("\n%s %s\n" % (marker, json.dumps(words))).encode("ascii")
        try:
            while data:
                data = data[os.write(1, data) :]
        except OSError:  # nobody listens: what was begun is done all the same
            pass

    try:
        held = lock(request["lock"]) if request["lock"] >= 0 else None
    except Refused as error:
        say(refused=str(error))
        os._exit(4)
    say(uid=os.geteuid(), python=".".join(str(part) for part in sys.version_info[:3]), name=os.uname()[1])
    for line in lines():
        say(**answer(json.loads(line.decode("ascii"))))
    del held
    os._exit(0)
