"""What the job's own recorders have left or answer: dumps of torch's flight recorder, and NCCL RAS."""

import os
import re
import shutil
import socket
import stat
import subprocess
import time

from doctor.smoke.programs.agent.procfs import read_text

DUMP_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
# Sources: torch/csrc/distributed/c10d/FlightRecorder.cpp and ProcessGroupNCCL.cpp; torch_npu, ProcessGroupHCCL.cpp.
DUMP_PLACES = ("/tmp/nccl_trace_rank_", "/tmp/hccl_trace_rank_")
DUMP_CACHE = ".cache/torch/comm_lib_trace_rank_"
MAX_ANSWER = 1 << 16
RAS_ADDRESS = "localhost:28028"
RAS_SECONDS = 5


def started_at(pid):
    """When a process was started, in seconds since the epoch; 0 where it is gone."""
    text = read_text("/proc/%d/stat" % pid)
    fields = text[text.rfind(")") + 2 :].split()
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


def ras_answer(addresses=()):
    """What NCCL's RAS says of the job: as its client prints it, or from its socket; empty where there is none."""
    program = shutil.which("ncclras")
    if not program:
        answers = (asked_ras(address) for address in (list(addresses) or [RAS_ADDRESS])[:2])
        return next((answer for answer in answers if answer), "")
    process = subprocess.Popen(
        [program, "-t", str(RAS_SECONDS)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        out, _ = process.communicate(timeout=2 * RAS_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
    return out[:MAX_ANSWER].decode("utf-8", "replace")


def ras_addresses(environs):
    """Where the job's RAS listens on this host: NCCL_RAS_ADDR of its ranks."""
    texts = [environ.get("NCCL_RAS_ADDR", "") for environ in environs if environ.get("NCCL_RAS_ENABLE") != "0"]
    return sorted(set(text for text in texts if re.match(r"[A-Za-z0-9_.:\[\]-]{1,200}:[0-9]{1,5}$", text)))


def asked_ras(address):
    """The answer to ``VERBOSE STATUS`` at an address, ``HOST:PORT``; empty where nobody answers as RAS does.

    Source: NCCL 2.24 and later, src/ras/client.cc and client_support.cc: lines of text, one version each way first.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    limit = time.monotonic() + 2 * RAS_SECONDS
    try:
        # From the same address: a job's variable leads to no other host.
        connection = socket.create_connection((host, int(port)), timeout=RAS_SECONDS, source_address=(host, 0))
    except (OSError, ValueError, OverflowError):
        return ""
    try:
        connection.sendall(b"CLIENT PROTOCOL 2\n")
        if not ras_line(connection, limit).startswith(b"SERVER PROTOCOL "):
            return ""
        connection.sendall(b"TIMEOUT %d\n" % RAS_SECONDS)
        if ras_line(connection, limit) != b"OK\n":
            return ""
        connection.sendall(b"VERBOSE STATUS\n")
        data = b""
        while len(data) < MAX_ANSWER and time.monotonic() < limit:
            block = connection.recv(4096)
            if not block:
                break
            data += block
        return data[:MAX_ANSWER].decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        connection.close()


def ras_line(connection, limit):
    """The next line of an answer, with its end; without one where it is none."""
    line = b""
    while not line.endswith(b"\n") and len(line) < 200 and time.monotonic() < limit:
        letter = connection.recv(1)
        if not letter:
            break
        line += letter
    return line
