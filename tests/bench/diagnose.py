"""How fast `doctor diagnose` reads logs, as ratios to `wc -l` and `grep -c` over the same file.

python -m tests.bench.diagnose [MB]
python -m tests.bench.diagnose MB FILES   # the whole command over a job of FILES files of MB each; on all cores

The file is a plog as a healthy process writes it at INFO level, with errors at its end. Times are CPU seconds, the best
of three; memory is the growth of the peak while the file is read. For a job, memory is the largest sum over all
processes of the command (proportional set size: shared pages count once).
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from doctor.diagnose.read.matcher import Matcher
from doctor.diagnose.read.readings import read_source
from doctor.diagnose.read.sources import find_sources
from doctor.diagnose.signature import load_signatures

HEAD = "{pid},python3):2025-06-19-09:26:{s}.{ms}.{us} "
TEMPLATES = (
    f"[INFO] RUNTIME({HEAD}[stream.cc:{{n}}] [{{tid}}] StreamSetup:stream id={{n}}, sq={{n}}",
    (
        f"[INFO] HCCL({HEAD}[op_base.cc:{{n}}] [{{tid}}]Entry-HcclAllReduce: tag[AllReduce_10.1.2.3%eth0_60000_0_17], "
        "sendBuf[0x{hex}], recvBuf[0x{hex}], count[{n}], dataType[fp16], op[sum]"
    ),
    f"[DEBUG] GE({HEAD}[graph.cc:{{n}}]{{tid}} ExecuteAsync: graph {{n}} queued, input 0x{{hex}}",
    f"[INFO] ASCENDCL({HEAD}[memory.cpp:{{n}}]{{tid}} aclrtMalloc: size {{n}}, address 0x{{hex}}",
    f"[EVENT] PROFILING({HEAD}[msprof.cpp:{{n}}] [{{tid}}] step {{n}} took {{us}} us",
)
ERROR = (
    "[ERROR] HCCL({pid},python3):2025-06-19-09:28:34.062.662 [hccl_socket_manager.cc:778] [116451][Wait][LinkEstablish]"
    "wait socket establish timeout, role[1] rank[10] timeout[130]"
)


def write_log(path: Path, megabytes: int) -> None:
    """A plog of this size."""
    draw = random.Random(1)
    block = []
    for number in range(40_000):
        values = {
            "pid": 114650,
            "tid": draw.randrange(100_000, 200_000),
            "s": f"{draw.randrange(60):02}",
            "ms": f"{draw.randrange(1000):03}",
            "us": f"{draw.randrange(1000):03}",
            "n": draw.randrange(1, 5000),
            "hex": f"{draw.getrandbits(44):x}",
        }
        block.append(TEMPLATES[number % len(TEMPLATES)].format(**values))
    text = ("\n".join(block) + "\n").encode()
    with open(path, "wb") as file:
        for _ in range(max(1, megabytes * 1_000_000 // len(text))):
            file.write(text)
        file.write(ERROR.format(pid=114650).encode() + b"\n")


def _child_seconds(*command: str) -> float:
    best = float("inf")
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def tree_bytes(pid: int) -> int:
    """Bytes of memory of a process and its descendants; pages that they share count once."""
    total = 0
    pids = [str(pid)]
    while pids:
        number = pids.pop()
        try:
            rollup = Path(f"/proc/{number}/smaps_rollup").read_text()
            total += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) * 1024
            pids += Path(f"/proc/{number}/task/{number}/children").read_text().split()
        except (OSError, StopIteration):
            continue
    return total


def measure_job(megabytes: int, files: int, folder: Path) -> tuple[float, float, int]:
    """Seconds, CPU seconds and the largest memory in bytes of the command over a job's logs."""
    first = folder / "plog-100000_20250619092621.log"
    write_log(first, megabytes)
    for number in range(1, files):
        shutil.copyfile(first, folder / f"plog-{100000 + number}_20250619092621.log")
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, "-m", "doctor", "diagnose", str(folder), "--json"]
    most = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as job:
        while job.poll() is None:
            most = max(most, tree_bytes(job.pid))
            time.sleep(0.2)
    seconds, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, most


def main() -> None:
    """Prints the figures."""
    if len(sys.argv) > 2:
        with tempfile.TemporaryDirectory() as folder:
            each, files = int(sys.argv[1]), int(sys.argv[2])
            elapsed, busy, most = measure_job(each, files, Path(folder))
        total = each * files
        print(f"{total} MB in {files} files: {elapsed:.0f} s, {total / busy:.0f} MB for each CPU second,", end=" ")
        print(f"{busy / elapsed:.1f} cores busy, at most {most / 1e6:.0f} MB of memory")
        return
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plog-114650_20250619092621.log")
        write_log(path, megabytes)
        size = path.stat().st_size / 1e6
        signatures = load_signatures()
        (source,) = find_sources([str(path)])
        matcher = Matcher(signatures.values())
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            readings = list(read_source(source, matcher))
            best = min(best, time.process_time() - start)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
        assert len(readings) == 1 and readings[0].events
        count = _child_seconds("wc", "-l", str(path))
        grep = _child_seconds("grep", "-c", "-E", "ERROR|WARNING|timeout", str(path))
    print(
        f"{size:.0f} MB: {size / best:.0f} MB/s of one core; {best / grep:.1f} x grep -c -E, {best / count:.1f} x wc -l"
    )
    print(f"memory grew by {grown:.0f} MB while reading")


if __name__ == "__main__":
    main()
