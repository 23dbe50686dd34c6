"""The state of a path on the host, and what a step left until the controller has it: in a folder of root's own that a
reboot empties.
"""

import base64
import fcntl
import glob
import hashlib
import json
import os
import re
import stat
import struct

from doctor.remote.runtime.host_texts import filled

LARGEST_FILE = 1 << 20  # bytes
MOST_FILES = 64  # that one pattern may match
GET_FLAGS = 0x80086601 if struct.calcsize("l") == 8 else 0x80046601  # FS_IOC_GETFLAGS of linux/fs.h
FLAGS = {0x10: "immutable (chattr +i)", 0x20: "append-only (chattr +a)"}  # FS_IMMUTABLE_FL, FS_APPEND_FL


def peek(request):
    """What is at a path: its bytes, mode and owner, where it really lies, and whether it could be written."""
    return state_of(request["path"])


def peek_many(request):
    """The same of every file that a pattern matches."""
    return {"files": find_files(request["pattern"])}


def find_files(pattern):
    """The state of each path that matches; a pattern without a star is its own only path."""
    paths = sorted(glob.glob(pattern)) if "*" in pattern else [pattern]
    if len(paths) > MOST_FILES:
        raise OSError(0, filled("more than {0} files match {1}", MOST_FILES, pattern))
    return {path: state_of(path) for path in paths}


def state_of(path):
    """What is at a path: a file with its data, nothing, or something that must not be changed."""
    real = os.path.realpath(path)
    folder, absent_folders = os.path.dirname(real), []
    while not os.path.isdir(folder):
        absent_folders.insert(0, folder)
        folder = os.path.dirname(folder)
    state = {"real": real, "missing": absent_folders, "kind": "absent", "trouble": not_writable(folder)}
    state["link"] = os.readlink(path) if os.path.islink(path) else ""
    if absent_folders and os.path.lexists(absent_folders[0]):
        return dict(state, kind="other", trouble=filled("{0} is not a folder", absent_folders[0]))
    try:
        status = os.lstat(real)
    except OSError as error:
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            state["trouble"] = error.strerror
        return state
    if not stat.S_ISREG(status.st_mode):
        return dict(state, kind="other", trouble="is not a regular file")
    if is_mounted(real):
        return dict(state, kind="other", trouble="is a mount, for example in a container")
    if status.st_size > LARGEST_FILE:
        return dict(state, kind="other", trouble=filled("is longer than {0} bytes", LARGEST_FILE))
    try:
        with open(real, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        return dict(state, kind="other", trouble=error.strerror)
    state["trouble"] = state["trouble"] or locked_by_flag(real)
    return dict(state, kind="file", xattrs=attributes(real), **file_fields(data, status))


def locked_by_flag(path):
    """Which flag of the file system keeps even root from replacing a file or folder; empty where there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        flags = struct.unpack("i", fcntl.ioctl(fd, GET_FLAGS, bytes(8))[:4])[0]
    except OSError:  # a file system without flags
        return ""
    finally:
        os.close(fd)
    return " and ".join(["is " + name for flag, name in sorted(FLAGS.items()) if flags & flag])


def attributes(path):
    """Extended attributes, such as access lists and SELinux's label, which go with the name and not with the bytes."""
    values = {}
    try:
        for name in os.listxattr(path):
            values[name] = base64.b64encode(os.getxattr(path, name)).decode("ascii")
    except OSError:
        pass
    return values


def file_fields(data, status):
    """Data, SHA-256, mode and owner of a file."""
    return {
        "data": base64.b64encode(data).decode("ascii"),
        "sha": hashlib.sha256(data).hexdigest(),
        "mode": stat.S_IMODE(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
    }


def is_mounted(real):
    """A file of its own mount cannot be replaced, only written into. os.path.ismount is wrong on an overlay."""
    with open("/proc/self/mountinfo", "rb") as file:
        mount_points = [line.split()[4] for line in file]
    return os.fsencode(real) in [re.sub(rb"\\([0-7]{3})", unescape, point) for point in mount_points]


def unescape(match):
    """The byte of an octal escape in /proc/self/mountinfo."""
    return bytes([int(match.group(1), 8)])


def not_writable(folder):
    """Why nothing can, or should, be put into a folder."""
    status = os.stat(folder)
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return "the file system is read-only"
    flag = locked_by_flag(folder)
    if flag:
        return folder + " " + flag
    if not os.access(folder, os.W_OK | os.X_OK):
        return "permission denied"
    if os.geteuid() == 0 and status.st_mode & stat.S_IWOTH:
        return "anybody can write to " + folder
    return ""


FOLDER = "/run/doctor-fix"


def remember(token, state):
    """Keeps the state after a step. Only root does: other users have no folder that only they can write to."""
    if os.geteuid() != 0 or not token:
        return
    try:
        folder = open_folder()
        try:
            fd = os.open(name_of(token), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600, dir_fd=folder)
            with os.fdopen(fd, "w") as file:
                json.dump(state, file)
        finally:
            os.close(folder)
    except OSError:  # without it, an undo after a crash compares with less
        pass


def recall(request):
    """The state after a step, None when it is not kept."""
    try:
        folder = open_folder()
        try:
            fd = os.open(name_of(request["token"]), os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
            with os.fdopen(fd) as file:
                return {"state": json.load(file)}
        finally:
            os.close(folder)
    except (OSError, ValueError):
        return {"state": None}


def forget(request):
    """Removes the state after a step, and the folder with the last of them."""
    try:
        folder = open_folder()
        try:
            os.unlink(name_of(request["token"]), dir_fd=folder)
        finally:
            os.close(folder)
        os.rmdir(FOLDER)
    except OSError:
        pass
    return {}


def name_of(token):
    """A token as a file name. Raises OSError for what is none."""
    if not re.match("[0-9a-f]{32}$", token):
        raise OSError("not a token")
    return token


def open_folder():
    """Our folder, made where it is not there. Raises OSError where it is not ours alone."""
    try:
        os.mkdir(FOLDER, 0o700)
    except FileExistsError:
        pass
    fd = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    status = os.fstat(fd)
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        os.close(fd)
        raise OSError(FOLDER + " is not ours alone")
    return fd
