"""The smoke run against `import torch` and against what else there is. It prints ratios and gates nothing.

    python tests/bench/smoke.py [--rounds N] [--only launch,first,busbw,mask,hang,dlrover] [--dlrover PYTHON]

Contenders of one comparison take turns, so that other work on the machine meets both. PYTHON is an interpreter that has
torch and dlrover 0.6.1, whose node check is then compared.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
os.environ["OMP_NUM_THREADS"] = "1"

from tests.smoke.ranks import Ranks, worker  # noqa: E402

WORLDS = (2, 4, 8)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="launch,first,busbw,mask,hang,dlrover")
    parser.add_argument("--dlrover", metavar="PYTHON", default="")
    requested = parser.parse_args()
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; medians of {requested.rounds} rounds (least .. most)"
    )
    for name in requested.only.split(","):
        benches: dict[str, Callable[[], object]] = {
            "launch": functools.partial(launch, requested.rounds),
            "first": functools.partial(first, requested.rounds),
            "busbw": functools.partial(busbw, requested.rounds),
            "mask": mask,
            "hang": functools.partial(hang, requested.rounds),
            "dlrover": functools.partial(dlrover, requested.rounds, requested.dlrover),
        }
        benches[name]()


def spread(values: Sequence[float], unit: str = "", digits: int = 2) -> str:
    """The median and the range."""
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f}{unit} ({low:.{digits}f} .. {high:.{digits}f})"


def timed(arguments: Sequence[str], **more: Any) -> tuple[float, subprocess.CompletedProcess[str]]:
    began = time.perf_counter()
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT, **more)
    return time.perf_counter() - began, done


def doctor(ranks: int, *arguments: str, faults: str = "") -> tuple[float, dict[str, Any]]:
    """Seconds of one `doctor smoke` on this machine, and its report."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(textwrap.dedent(faults))
        file.flush()
        start = ["-m", "tests.smoke.faulty", file.name] if faults else ["-m", "doctor"]
        argv = [sys.executable, *start, "smoke", "--ranks-per-host", str(ranks), "--python", sys.executable, "--json"]
        seconds, done = timed([*argv, *arguments])
    if not done.stdout:
        sys.exit(done.stderr)
    return seconds, json.loads(done.stdout)


# ---- launch to verdict, all layouts

IMPORT = """
import os, time
began = time.perf_counter()
import torch
os.write(1, b"%f" % (time.perf_counter() - began))
os._exit(0)
"""


def launch(rounds: int) -> None:
    """The whole command, from its start to its end.

    Against three: the import in the same run, which is faster than others as it collects no garbage; the import in
    another interpreter; and that interpreter from its start to its end.
    """
    print("\nlaunch to verdict, all stages and layouts, against `import torch` in the same run")
    answer: dict[int, list[tuple[float, dict[str, Any]]]] = {world: [] for world in WORLDS}
    baseline: dict[int, list[float]] = {world: [] for world in WORLDS}
    full: dict[int, list[float]] = {world: [] for world in WORLDS}
    for _ in range(rounds):
        for world in WORLDS:
            baseline[world].append(float(timed([sys.executable, "-c", IMPORT])[1].stdout))
            full[world].append(timed([sys.executable, "-c", "import torch"])[0])
            answer[world].append(doctor(world))
    for world, runs in answer.items():
        outlier = [report["smoke"]["ended"] for _, report in runs if report["smoke"]["ended"] != "complete"]
        wall = [seconds for seconds, _ in runs]
        ratio = [seconds / report["smoke"]["import_seconds"] for seconds, report in runs]
        bare = [report["smoke"]["seconds"] / report["smoke"]["import_seconds"] for _, report in runs]
        layouts = len(runs[0][1]["smoke"]["layouts"])
        print(
            f"  {world} ranks, {layouts:2} layouts: {spread(wall, ' s')}  ratio {spread(ratio)}"
            f"  without the command's own start and report {spread(bare)}"
            f"  to another interpreter's import {spread([a / b for a, b in zip(wall, baseline[world], strict=True)])}"
            f"  to all of `python -c 'import torch'` {spread([a / b for a, b in zip(wall, full[world], strict=True)])}"
            f"  {' '.join(outlier)}"
        )
        stages: dict[str, list[float]] = {}
        for _, report in runs:
            for stage in report["smoke"]["stages"]:
                stages.setdefault(stage["name"], []).append(stage["seconds"])
        parts = (f"{name} {statistics.median(values):.2f}" for name, values in stages.items())
        print("           " + ", ".join(parts))


# ---- the first collective of eight ranks

ALONE = """
import datetime, os, sys, time
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
dist.all_reduce(torch.ones(1))
os.write(1, b"%f\\n" % time.monotonic())
dist.barrier()
os._exit(0)
"""

TOGETHER = """
def _first(ctx):
    ctx.comm.all_reduce(torch.ones(1), ctx.comm.world)
    with open("/proc/%d/stat" % os.getppid()) as file:
        started = int(file.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    file = os.open({path!r}, os.O_WRONLY | os.O_APPEND)
    os.write(file, b"%f %f\\n" % (time.monotonic(), started))

STAGE_FUNCTIONS["collectives"] = _first
"""


def interpreters(world: int) -> float:
    """Seconds until the last of so many interpreters has done its first all_reduce."""
    began, port = time.monotonic(), free_port()
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", ALONE], env={**shared, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True
        )
        for rank in range(world)
    ]
    return max(float(process.communicate()[0]) for process in started) - began


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def forked(world: int) -> tuple[float, float, float]:
    """Seconds until the last of so many ranks has done its own: since the command, since the interpreter that imports
    torch and forks; and those of the import."""
    with tempfile.NamedTemporaryFile("r") as file:
        began = time.monotonic()
        _, report = doctor(world, "--layout", f"dp={world}", faults=TOGETHER.format(path=file.name))
        at, started = zip(*((float(word) for word in line.split()) for line in file), strict=True)
    return max(at) - began, max(at) - max(started), report["smoke"]["import_seconds"]


def first(rounds: int) -> None:
    print("\nlaunch to the first all_reduce of 8 ranks")
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(forked(8))
        theirs.append(interpreters(8))
    for name, column in (("since the command", 0), ("since the interpreter that forks", 1)):
        seconds = [each[column] for each in ours]
        ratio = [each[column] / each[2] for each in ours]
        saved = [other / second for other, second in zip(theirs, seconds, strict=True)]
        print(
            f"  {name}: {spread(seconds, ' s')}  of `import torch`: {spread(ratio)}  8 interpreters: {spread(saved)} x"
        )
    print(f"  8 interpreters: {spread(theirs, ' s')}")


# ---- bandwidth through the recorded calls

LOOPS = """
def _loops(ctx):
    for size in (1 << 12, 1 << 16, 1 << 20, 1 << 24):
        tensor, seconds = torch.ones(size // 4), {"comm": [], "bare": []}
        calls = {"comm": lambda: ctx.comm.all_reduce(tensor, ctx.comm.world), "bare": lambda: dist.all_reduce(tensor)}
        for turn in range(24 if size < 1 << 24 else 10):
            for kind, call in sorted(calls.items(), reverse=turn % 2 == 1):
                tensor.fill_(1.0)
                began = time.perf_counter()
                call()
                seconds[kind].append(time.perf_counter() - began)
        ctx.emit("loops", size=size, **{kind: sum(sorted(each)[: len(each) // 2]) for kind, each in seconds.items()})

STAGE_FUNCTIONS["collectives"] = _loops
"""


def busbw(rounds: int) -> None:
    print("\nbusbw of the recorded all_reduce against torch.distributed alone (quicker half of the calls, 4 ranks)")
    ratios: dict[int, list[float]] = {}
    for _ in range(rounds):
        for event in Ranks(4, ["collectives"], LOOPS).of("loops", rank=0):
            ratios.setdefault(event["size"], []).append(event["bare"] / event["comm"])
    for size, values in ratios.items():
        print(f"  {size:9} bytes: {spread(values)}")


# ---- what the digests of a batch cost


def mask() -> None:
    import torch

    names = worker()
    print("\ndigests of a batch: which rows, which places are masked, and what each generator gave")
    masks, ids = torch.rand(32, 128) < 0.15, torch.randint(0, 30000, (32, 128))
    print(f"  mask of 32 x 128: {microseconds(lambda: names['digest'](masks)):.1f} us")
    print(f"  ids of 32 x 128:  {microseconds(lambda: names['digest'](ids)):.1f} us")
    drawn = os.urandom(8 * 32)
    places, arguments = bytes(range(8)), bytes(range(32))
    number = microseconds(lambda: (names["zlib"].crc32(arguments), names["zlib"].crc32(places), names["digest"](drawn)))
    print(f"  a block of the smoke run (ids, mask, one generator's draws): {number:.1f} us")


def microseconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(2000):
        began = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times) / 1000


# ---- how long until a hang is named

SLEEPS = """
_plain_call = TracedComm.run_traced

def _call(self, op, *rest, **more):
    if self.rank == 1 and STAGES[self.recorder.stage] == "training":
        self.seen = getattr(self, "seen", 0) + 1
        if self.seen == 4:  # the all_reduce of the last step
            time.sleep(1000)
    return _plain_call(self, op, *rest, **more)

TracedComm.run_traced = _call
"""

SKIPS = SLEEPS.replace("            time.sleep(1000)\n", "            return None\n")

WAITING = """
import datetime, os, sys, time
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=float(sys.argv[2])))
rank = dist.get_rank()
dist.all_reduce(torch.ones(1))
if rank == 1:
    time.sleep(float(sys.argv[2]) + 3)
    os._exit(0)
began = time.monotonic()
try:
    if sys.argv[1] == "monitored":
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=float(sys.argv[2])), wait_all_ranks=True)
    else:
        dist.all_reduce(torch.ones(1))
except RuntimeError as error:
    sys.stdout.write("%d %.2f %s\\n" % (rank, time.monotonic() - began, str(error).splitlines()[0][:160]))
    sys.stdout.flush()
os._exit(0)
"""


def waiters(kind: str, timeout: float, world: int = 4) -> list[tuple[int, float, str]]:
    """What each rank says in the end, and after how long."""
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WAITING, kind, str(timeout)],
            env={**shared, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for rank in range(world)
    ]  # fmt: skip
    output = "".join(process.communicate()[0] for process in started)
    return [
        (int(rank), float(seconds), text)
        for rank, seconds, text in re.findall(r"^(\d+) (\S+) (.*)$", output, re.MULTILINE)
    ]


def hang(rounds: int) -> None:
    print("\na rank of 4 that hangs: seconds until it is named")
    for name, faults in (("sleeps", SLEEPS), ("skips a collective", SKIPS)):
        seconds = []
        for _ in range(rounds):
            _, report = doctor(4, "--layout", "dp=4", faults=faults)
            trouble = (report["smoke"]["failures"] or [{}])[0]
            right = trouble.get("culprit_ranks") == [1]
            seconds.append(trouble.get("seconds", float("nan")) if right else float("inf"))
        print(f"  doctor, {name}: {spread(seconds, ' s')}; inf: not named")
    for kind, timeout in (("all_reduce", 5.0), ("monitored", 5.0)):
        rows = waiters(kind, timeout)
        naming = [text for _, _, text in rows if re.search(r"\branks? 1\b", text, re.IGNORECASE)]
        took = max((seconds for _, seconds, _ in rows), default=float("nan"))
        word = f"named by {len(naming)} of {len(rows)} ranks" if naming else "named by nobody"
        print(f"  gloo's {kind} with a timeout of {timeout:.0f} s (default 1800 s): {took:.2f} s, {word}")
        for rank, _, text in rows[:2]:
            print(f"      rank {rank}: {text[:110]}")


# ---- DLRover's node check


def dlrover(rounds: int, python: str) -> None:
    if not python:
        print("\nDLRover's node check: not compared; --dlrover names an interpreter that has it")
        return
    print("\nDLRover 0.6.1's node check (its program under torchrun), the same number of ranks on this machine")
    check = [
        "-m",
        "torch.distributed.run",
        "--nproc_per_node",
        "4",
        "-m",
        "dlrover.trainer.torch.node_check.nvidia_gpu",
    ]
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(doctor(4)[0])
        seconds, done = timed([python, *check])
        if done.returncode:
            print(f"  it failed: {done.stderr.strip().splitlines()[-1][:200]}")
            return
        theirs.append(seconds)
    print(f"  doctor smoke, all stages and layouts: {spread(ours, ' s')}")
    ratio = [other / own_value for own_value, other in zip(ours, theirs, strict=True)]
    print(f"  node check (matmul, all_reduce):      {spread(theirs, ' s')}  of ours: {spread(ratio)}")


if __name__ == "__main__":
    main()
