"""Data that the collector reads on a host without starting a process."""

import os

from doctor.remote.runtime.host_texts import filled
from doctor.remote.runtime.reading import find_tool, matching_paths, require_sys


def absent_tool(tool, path):
    """Why a command cannot be run: none of its tools is in a directory of the PATH; empty when it can be."""
    if not tool or any(find_tool(name, path) for name in tool.split()):
        return ""
    return filled("{0} is not installed", tool.split()[0])


def device_numbers(pattern):
    """The numbers that end the names matched by a glob, in order: /dev/davinci10 gives 10."""
    numbers = []
    for path in matching_paths(pattern):
        digits = path[len(path.rstrip("0123456789")) :]
        if digits:
            numbers.append(int(digits))
    return [str(number) for number in sorted(numbers)]


def device_settings(probe):
    """By device, its lines ``key_N=value`` of the probe's file; empty where there is none, or none with a setting."""
    if not os.path.isfile(probe["stand_in"]):
        return {}
    output = read_file(probe["stand_in"], probe.get("limit", 65536))
    text = output.get("out", "")
    lines = [line for line in text.splitlines() if "=" in line and not line.lstrip().startswith("#")]
    settings = {
        key: "".join(line + "\n" for line in lines if line.partition("=")[0].rstrip().endswith("_" + key))
        for key in device_numbers(probe["each"])
    }
    return settings if lines or output.get("ended") == "error" else {}


def path_error(path):
    """The output for a path that does not exist, or that cannot be checked."""
    try:
        require_sys(path)
    except OSError as error:
        return {"ended": "error", "err": error.strerror or str(error)}
    return {"ended": "absent", "err": filled("{0} does not exist", path)}


def read_file(path, limit):
    """A file as an output: its first `limit` bytes, or why it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return path_error(path)
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
