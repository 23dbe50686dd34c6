"""Data that the collector reads on a host without starting a process."""

import os

from doctor.remote.runtime.host_texts import filled
from doctor.remote.runtime.reading import matching_paths


def absent_tool(tool, path):
    """Why a command cannot be run: its tool is in no directory of the PATH; empty when it can be."""
    if not tool:
        return ""
    for directory in path.split(":"):
        if directory and os.access(os.path.join(directory, tool), os.X_OK):
            return ""
    return filled("{0} is not installed", tool)


def device_numbers(pattern):
    """The numbers that end the names matched by a glob, in order: /dev/davinci10 gives 10."""
    numbers = []
    for path in matching_paths(pattern):
        digits = path[len(path.rstrip("0123456789")) :]
        if digits:
            numbers.append(int(digits))
    return [str(number) for number in sorted(numbers)]


def read_file(path, limit):
    """A file as an output: its first `limit` bytes, or why it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return {"ended": "absent", "err": filled("{0} does not exist", path)}
    except OSError as error:
        return {"ended": "error", "err": error.strerror}
    data = b""
    try:
        while len(data) <= limit:
            piece = os.read(fd, limit + 1 - len(data))
            if not piece:
                break
            data += piece
    except OSError as error:
        return {"ended": "error", "err": error.strerror}
    finally:
        os.close(fd)
    output = {"out": data[:limit].decode("utf-8", "replace")}
    if len(data) > limit:
        output["cut"] = True
    return output
