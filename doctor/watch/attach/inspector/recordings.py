"""What the job's own recorders have left or answer: dumps of torch's flight recorder, and NCCL RAS."""

import os
import shutil
import stat
import subprocess

from doctor.smoke.programs.agent.procfs import read_text

DUMP_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
# Sources: torch/csrc/distributed/c10d/FlightRecorder.cpp and ProcessGroupNCCL.cpp; torch_npu, ProcessGroupHCCL.cpp.
DUMP_PLACES = ("/tmp/nccl_trace_rank_", "/tmp/hccl_trace_rank_")
DUMP_CACHE = ".cache/torch/comm_lib_trace_rank_"
MAX_ANSWER = 1 << 16


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


def ras_answer():
    """What NCCL's RAS says of the job, as its client prints it; empty where there is none."""
    program = shutil.which("ncclras")
    if not program:
        return ""
    process = subprocess.Popen(
        [program, "-t", "5"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        out, _ = process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
    return out[:MAX_ANSWER].decode("utf-8", "replace")
