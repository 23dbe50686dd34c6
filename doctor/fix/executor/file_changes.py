"""Files written and removed: each change replaces the file in one step, and only if no other process changed it."""

import base64
import os

from doctor.fix.executor.file_state import state_of
from doctor.remote.runtime.host_texts import filled

TEMPORARY = ".doctor-fix-"


class RequestRejected(Exception):
    """Nothing was done, and why."""

    pass


def write(request):
    """The file as it is to be; `sha` is what must be there before, empty for no file. Without `data` it is removed.

    `missing` are folders: made for a file, and removed with it where they are empty.
    """
    path, state = request["path"], state_of(request["path"])
    if state["real"] != path:
        raise RequestRejected(filled("is now a link to {0}", state["real"]))
    if state["trouble"]:
        raise RequestRejected(state["trouble"])
    if state.get("sha", "") != request["sha"]:
        raise RequestRejected("has changed since it was inspected")
    if request["data"] is None:
        remove(path, request["missing"])
        return {"sha": ""}
    new_folders = []
    try:
        for folder in request["missing"]:
            if not os.path.isdir(folder):
                os.mkdir(folder, 0o755)
                new_folders.append(folder)
        replace(path, request)
    except OSError:
        remove_empty(new_folders)
        raise
    return {"sha": state_of(path).get("sha")}


def remove(path, folders):
    """Removes a file, and the folders that were made for it."""
    if os.path.lexists(path):
        os.unlink(path)
        sync_folder(os.path.dirname(path))
    remove_empty(folders)


def replace(path, request):
    """Replaces a file by a rename, with mode, owner and attributes set and the data synced to disk."""
    folder = os.path.dirname(path)
    tidy({"path": path})
    name = os.path.join(folder, TEMPORARY + os.urandom(6).hex())
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(base64.b64decode(request["data"]))
            uid, gid = request["uid"], request["gid"]
            if uid is not None and (uid, gid) != (os.geteuid(), os.getegid()):
                os.fchown(file.fileno(), uid, gid)
            os.fchmod(file.fileno(), request["mode"])
            for key, value in (request["xattrs"] or {}).items():
                set_attribute(file.fileno(), key, base64.b64decode(value))
            file.flush()
            os.fsync(file.fileno())
        os.rename(name, path)
    except BaseException:
        os.unlink(name)
        raise
    sync_folder(folder)


def set_attribute(fd, name, value):
    """SELinux's label and access lists; not every file system takes all of them."""
    try:
        os.setxattr(fd, name, value)
    except OSError:
        pass


def tidy(request):
    """Removes what a power failure in the middle of a write left beside a file. Only for who holds the host's lock."""
    folder = os.path.dirname(os.path.realpath(request["path"]))
    try:
        names = [name for name in os.listdir(folder) if name.startswith(TEMPORARY)]
    except OSError:
        return {}
    for name in names:
        try:
            path = os.path.join(folder, name)
            if os.lstat(path).st_uid == os.geteuid():
                os.unlink(path)
        except OSError:
            pass
    return {}


def relink(request):
    """Puts a symbolic link in the place of a file that a tool has put in the place of the link."""
    path, state = request["path"], state_of(request["path"])
    if state["link"] or state.get("sha", "") != request["sha"]:
        raise RequestRejected("has changed since it was inspected")
    name = os.path.join(os.path.dirname(path), TEMPORARY + os.urandom(6).hex())
    os.symlink(request["link"], name)
    try:
        os.rename(name, path)
    except BaseException:
        os.unlink(name)
        raise
    sync_folder(os.path.dirname(path))
    return {}


def sync_folder(folder):
    """Writes the entries of a folder to disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_empty(folders):
    """Removes the folders from the last to the first; those with something in them stay."""
    for folder in reversed(folders):
        try:
            os.rmdir(folder)
        except OSError:  # somebody has put something into it
            pass
