"""What a launch line starts in a rehearsal in place of the training program: it writes what the rank got, and ends.

Standard library of Python 3.6 alone; joined with `hidden_modules`, `reading` and `rank_place`, and FOLDER, SECONDS and
MARK are set in it.
"""

import base64
import json
import os
import signal
import socket
import sys
import threading
import time
import zlib

from doctor.remote.runtime.rank_place import host_place, place_text, process_place
from doctor.watch.rehearsal.hidden_modules import hidden_modules

FOLDER, SECONDS, MARK = ("", 30, "")  # where the answer goes, how long the rank lives at most, how its line begins
MAX_VARIABLES, MAX_VALUE = 2000, 2000
LINE, PAUSE = 3000, 0.05  # characters of a printed line, fewer than a launcher reads at once; seconds between two
MOST_CPUS = 8192
IN_USE = "the port is in use"


def number(text, default=-1):
    try:
        return int(text)
    except ValueError:
        return default


def widen(numbers):
    try:
        os.sched_setaffinity(0, range(MOST_CPUS))
        numbers.extend(sorted(os.sched_getaffinity(0)))
    except OSError:
        pass


def permitted():
    """The CPUs that the control group permits: a thread of its own tries all of them."""
    numbers = []
    thread = threading.Thread(target=widen, args=(numbers,))
    thread.start()
    thread.join()
    return numbers


def addresses(name):
    try:
        return sorted(set(row[4][0] for row in socket.getaddrinfo(name, None, 0, socket.SOCK_STREAM)))
    except (OSError, UnicodeError):
        return []


def store_problem():
    """Why the ranks' store takes no connection, or cannot be opened; empty where it can. Before the job only a launcher
    has opened one: else a refusal is the answer of its host, and a connection shows that the port is in use.
    """
    is_open = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    address, port = os.environ.get("MASTER_ADDR", ""), number(os.environ.get("MASTER_PORT", ""))
    try:
        if address and 0 < port < 65536:
            socket.create_connection((address, port), 5).close()
            return "" if is_open else IN_USE
    except ConnectionRefusedError as error:
        return str(error) if is_open else ""
    except (OSError, UnicodeError) as error:
        return str(error)
    return ""


def say(name, text):
    """Prints an answer in lines that a launcher takes from a rank's pipe whole: it mixes those of ranks in between."""
    data = base64.b64encode(zlib.compress(text.encode("utf-8"))).decode("ascii")
    parts = [data[start : start + LINE] for start in range(0, len(data), LINE)]
    for place, part in enumerate(parts):
        sys.stdout.write("\n%s%s %d %d %s\n" % (MARK, name, place, len(parts), part))
        sys.stdout.flush()
        time.sleep(PAUSE)


def began():
    """When this process was started, in clock ticks since the host was."""
    return number(place_text("/proc/self/stat").rpartition(")")[2].split(" ")[20], 0)


def now():
    """In the same unit."""
    return int(float(place_text("/proc/uptime").split(" ")[0]) * os.sysconf("SC_CLK_TCK"))


def main():
    signal.alarm(SECONDS)
    master = os.environ.get("MASTER_ADDR", "")
    answer = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "uid": os.getuid(),
        "folder": os.getcwd(),
        "python": os.path.realpath(sys.executable),
        "version": ".".join(str(part) for part in sys.version_info[:3]),
        "variables": dict((k, os.environ[k][:MAX_VALUE]) for k in sorted(os.environ)[:MAX_VARIABLES]),
        "cpus": sorted(os.sched_getaffinity(0)),
        "permitted": permitted(),
        "memory_nodes": process_place(os.getpid())["memory_nodes"],
        "place": host_place(),
        "limits": dict(
            (line[:25].strip(), line[26:47].strip()) for line in place_text("/proc/self/limits").splitlines()[1:]
        ),
        "shm": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize if os.path.isdir("/dev/shm") else 0,
        "master": addresses(master) if master else [],
        "store": store_problem(),
        "hidden": hidden_modules(),
        "began": began(),
        "ended": now(),
        "links": [name for _, name in socket.if_nameindex()][:1024],
    }
    text = json.dumps(answer)
    name = "%s-%d" % (answer["host"].replace("/", "_"), answer["pid"])
    # Whichever of the two comes back: a folder that hosts do not share, or output that the launcher keeps to itself.
    try:
        with open(os.path.join(FOLDER, "." + name), "w") as file:
            file.write(text)
        os.rename(os.path.join(FOLDER, "." + name), os.path.join(FOLDER, name + ".json"))
    except OSError:
        pass
    say(name, text)
    return 0


if FOLDER:
    sys.exit(main())
