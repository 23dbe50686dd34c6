"""Files written and restored: each change replaces the file in one step, and only if nobody else changed it."""

import base64
import os

from doctor.fix.executor.file_state import state_of

TEMPORARY = ".doctor-fix-"


class RequestRejected(Exception):
    """Nothing was done, and why."""

    pass


def write(request):
    """The file as it is to be; `sha` is what must be there before, empty for no file."""
    path, state = request["path"], state_of(request["path"])
    if state["real"] != path:
        raise RequestRejected("is now a link to %s" % state["real"])
    if state["trouble"]:
        raise RequestRejected(state["trouble"])
    if state.get("sha", "") != request["sha"]:
        raise RequestRejected("has changed since it was inspected")
    new_folders = []
    try:
        for folder in request["missing"]:
            if not os.path.isdir(folder):
                os.mkdir(folder, 0o755)
                new_folders.append(folder)
        replace(path, base64.b64decode(request["data"]), request["mode"], request["uid"], request["gid"])
    except OSError:
        remove_empty(new_folders)
        raise
    return {"sha": state_of(path).get("sha")}


def replace(path, data, mode, uid, gid):
    """Replaces a file by a rename, with mode, owner and attributes set and the data synced to disk."""
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
    sync_folder(folder)


def sync_folder(folder):
    """Writes the entries of a folder to disk."""
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


def restore(request):
    """The file as it was; `old` and `new` as `peek` describes it, without a sha for no file."""
    path, old, new = request["path"], request["old"], request["new"]
    state = state_of(path)
    if state["real"] != path:
        raise RequestRejected("is now a link to %s" % state["real"])
    sha = state.get("sha", "")
    if state["kind"] == "other":
        raise RequestRejected(state["trouble"])
    same = sha == old["sha"] and (not sha or all(state[key] == old[key] for key in ("mode", "uid", "gid")))
    if same:
        result = "already as before"
    elif sha not in (new, old["sha"]) and not request["force"]:
        raise RequestRejected("was changed since, by somebody or by a newer plan, which must be undone first")
    elif state["trouble"]:
        raise RequestRejected(state["trouble"])
    elif old["sha"]:
        result = "restored"
        replace(path, base64.b64decode(old["data"]), old["mode"], old["uid"], old["gid"])
    else:
        result = "removed"
        os.unlink(path)
        sync_folder(os.path.dirname(path))
    remove_empty(request["missing"])
    return {"took": result}


def remove_empty(folders):
    """Removes the folders from the last to the first; those with something in them stay."""
    for folder in reversed(folders):
        try:
            os.rmdir(folder)
        except OSError:  # somebody has put something into it
            pass
