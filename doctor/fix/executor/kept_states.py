"""What a step left, kept on the host until the controller has it: in a folder of root's own that a reboot empties."""

import json
import os
import re
import stat

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
