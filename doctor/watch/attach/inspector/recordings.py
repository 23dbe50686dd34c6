"""What the job's own recorders have left or answer: dumps of torch's flight recorder, NCCL RAS, HCCL."""

import os
import re
import socket
import stat
import time

from doctor.remote.runtime.reading import link_at, names_in, open_at_once, read_text
from doctor.smoke.programs.agent.procfs import stat_fields
from doctor.watch.attach.inspector.connected import user_of

DUMP_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_HCCL_DEBUG_INFO_TEMP_FILE")
# Sources: torch/csrc/distributed/c10d/FlightRecorder.cpp and ProcessGroupNCCL.cpp; torch_npu, ProcessGroupHCCL.cpp.
DUMP_PLACES = ("/tmp/nccl_trace_rank_", "/tmp/hccl_trace_rank_")
DUMP_CACHE = ".cache/torch/comm_lib_trace_rank_"
MAX_ANSWER = 1 << 16
RAS_ADDRESS = "localhost:28028"
RAS_SECONDS = 5
"""For the processes of a job to answer each other; NCCL's own default."""
RAS_PATIENCE = 1.0
"""For one process to answer at all; the same as that of NCCL's client."""
RAS_TRIES = 16
LINE = (b"\n", 200, 1)
RAS_LIMIT = 30.0
HEARTBEAT = re.compile(
    rb"HeartbeatAbnormal|Heartbeat Lost Occurred|Cluster Exception Location ?\[|crimer rank \[[^\]\n]{1,80}\] status\["
)
MAX_LOG = 4 << 20
"""Bytes at the end of a log that are searched."""
MOST_NAMES = 100000


def started_at(pid):
    """When a process was started, in seconds since the epoch; 0 where it is gone."""
    fields = stat_fields(pid)
    for line in read_text("/proc/stat", 1 << 20).splitlines():
        if line.startswith("btime ") and len(fields) > 19:
            return int(line.split()[1]) + int(fields[19]) / float(os.sysconf("SC_CLK_TCK"))
    return 0.0


def recorder_dumps(pid, rank, environ):
    """The dumps that a rank has written since its start; only files of its own user."""
    prefixes = [environ[name] for name in DUMP_VARIABLES if environ.get(name, "").startswith("/")]
    prefixes += DUMP_PLACES
    if environ.get("HOME", "").startswith("/"):
        prefixes.append(os.path.join(environ["HOME"], DUMP_CACHE))
    paths, start = [], started_at(pid)
    for prefix in prefixes:
        path = "%s%d" % (prefix[:1000], rank)
        try:
            status, owner = os.stat(path), os.stat("/proc/%d" % pid).st_uid
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and status.st_uid == owner and start and status.st_mtime >= start - 1:
            paths.append(path)
    return paths


def heartbeat_logs(pid, environ):
    """The logs of a rank, on files of its own user, in which HCCL's heartbeat says something.

    Sources: CANN, log reference (``$HOME/ascend/log/{debug,run}/plog/plog-PID_TIME.log``, ASCEND_PROCESS_LOG_PATH);
    hicann/hccl, docs/zh/user_guide/fault_diagnosis/task_exec_stage.md (the lines).
    """
    folders = [environ.get("ASCEND_PROCESS_LOG_PATH", ""), os.path.join(environ.get("HOME", ""), "ascend/log")]
    numbers = [str(pid)] + re.findall(r"^NSpid:(?:\t[0-9]+)*\t([0-9]+)$", read_text("/proc/%d/status" % pid), re.M)
    of_rank = re.compile(r"plog-(?:%s)_[0-9]{8,20}\.log$" % "|".join(numbers))
    places = [link_at("/proc/%d/fd/%d" % (pid, number)) for number in (1, 2)]
    for folder in folders:
        for part in ("debug", "run") if folder.startswith("/") else ():
            plogs = os.path.join(folder[:1000], part, "plog")
            names = [name for name in sorted(names_in(plogs))[:MOST_NAMES] if of_rank.match(name)]
            places += [os.path.join(plogs, name) for name in names[-4:]]
    paths = [place for place in sorted(set(places)) if place.startswith("/")]
    return [path for path in paths if speaks_of_heartbeat(path, user_of(pid))][:4]


def speaks_of_heartbeat(path, owner):
    """Whether the end of a regular file of this user has a line of HCCL's heartbeat."""
    try:
        with open(path, "rb", 0, opener=lambda name, flags: open_at_once(name, flags | os.O_NOFOLLOW)) as file:
            status = os.fstat(file.fileno())
            is_own = stat.S_ISREG(status.st_mode) and status.st_uid == owner
            data = os.pread(file.fileno(), MAX_LOG, max(0, status.st_size - MAX_LOG)) if is_own else b""
    except OSError:
        return False
    return bool(HEARTBEAT.search(data))


def ras_answer(addresses=()):
    """What NCCL's RAS says of the job, from its socket; empty where there is none."""
    answers = (asked_ras(address) for address in (list(addresses) or [RAS_ADDRESS])[:2])
    return next((answer for answer in answers if answer), "")


def ras_addresses(environs):
    """Where the job's RAS listens on this host: NCCL_RAS_ADDR of its ranks."""
    texts = [environ.get("NCCL_RAS_ADDR", "") for environ in environs if environ.get("NCCL_RAS_ENABLE") != "0"]
    return sorted(set(text for text in texts if re.match(r"[A-Za-z0-9_.:\[\]-]{1,200}:[0-9]{1,5}$", text)))


def asked_ras(address):
    """The answer to ``VERBOSE STATUS`` at an address, ``HOST:PORT``; empty where no process answers as RAS does.

    All processes of the job on this host listen on one port (SO_REUSEPORT), and the kernel chooses one. One that
    is stopped accepts, and does not answer: the next connection comes to another, so it is tried again.

    Source: NCCL 2.24.3 to 2.30, src/ras/client.cc (order of the lines, the second of patience, the new connection) and
    client_support.cc (`rasClientInitSocket`, the commands and their answers; its end closes the connection).
    """
    limit = time.monotonic() + RAS_LIMIT
    for _ in range(RAS_TRIES):
        connection = ras_connection(address)
        if connection is None or time.monotonic() > limit:
            return ""
        try:
            connection.sendall(b"CLIENT PROTOCOL 2\n")
            if not ras_text(connection, limit, *LINE).startswith("SERVER PROTOCOL "):
                return ""
            connection.sendall(b"TIMEOUT %d\n" % RAS_SECONDS)
            if ras_text(connection, limit, *LINE) != "OK\n":
                return ""
            # Its own limit for the other processes, and as long again where some of them are slow.
            connection.settimeout(2 * RAS_SECONDS + RAS_PATIENCE)
            connection.sendall(b"VERBOSE STATUS\n")
            return ras_text(connection, limit)
        except socket.timeout:
            continue
        except OSError:
            return ""
        finally:
            connection.close()
    return ""


def ras_connection(address):
    """A connection to RAS; None where no process listens."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        # From the same address: a job's variable leads to no other host.
        return socket.create_connection((host, int(port)), timeout=RAS_PATIENCE, source_address=(host, 0))
    except (OSError, ValueError, OverflowError):
        return None


def ras_text(connection, limit, end=None, most=MAX_ANSWER, size=4096):
    """An answer up to this end, with it, or to that of the connection. ``size``: of what is read at once."""
    data = b""
    while len(data) < most and not (end and data.endswith(end)) and time.monotonic() < limit:
        block = connection.recv(size)
        if not block:
            break
        data += block
    return data[:most].decode("utf-8", "replace")
