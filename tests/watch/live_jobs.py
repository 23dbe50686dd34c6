"""Live jobs of many kinds, each in namespaces of its own, looked at from outside by `doctor watch --attach`.

    python -m tests.watch.live_jobs [--only WORD] [--stacks off] [--part 1/6] [--seed 7]

Root makes the namespaces. The interpreter of the jobs is that of ``DOCTOR_PROGRAMS_PYTHON``, beside which py-spy may
stand; kinds whose libraries it lacks do not start, and are counted as such.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
PYTHON = os.environ.get("DOCTOR_PROGRAMS_PYTHON", sys.executable)
START_LIMIT = 600.0
SETTLED = 2.5
"""Seconds until the others wait: no event says that they do."""
ODD_WAITS = {
    "tasks": "event", "loader lock": "data loader", "full pipe": "is in write of pipe", "lost worker": "its pool",
    "empty queue": "queue", "silent store": "socket", "held file": "weights.lock", "stopped child": "is stopped",
    "nested task": "another of its threads", "semaphore": "lock", "signal": "signal",
    "logger lock": "lock", "thread queue": "another of its threads", "no reader": "write of pipe",
}  # fmt: skip
"""Of `odd_waits.py`: what is said of a process that waits so."""
ODD_WORK = ("sleeping tasks", "loader", "pool", "passed object", "computing child", "answering store", "locked shortly",
            "task in pool", "signal in time", "sorts", "saves", "echo", "slow", "semaphore",
            "joined thread")  # fmt: skip
"""Of the same file: what one rank of a healthy job does in each step."""
WORDS = {
    "sleep": "sleeps", "server": "socket", "lock": "waits for another of its threads", "flock": "cache.lock",
    "fifo": "shard-00017.tar", "endless": "computes", "child": "child", "stop": "stopped", "native": "signal",
    **ODD_WAITS,
}  # fmt: skip
"""What is said of a process with this fault."""
DEPLOYED = ("torchrun", "spawn", "spawn file store", "forked", "ray group", "jax", "deepspeed", "accelerate", "mpi4py",
            "notebook", "notebook launcher", "two jobs", "serving")  # fmt: skip
ASKED = ("grpc", "aiohttp", "fastapi")
TURNS = ("sleep", "server", "lock", "flock", "fifo", "endless", "child", "stop", "native")
FAULTY = (
    *((kind, TURNS[(number * 4 + turn) % 9]) for number, kind in enumerate(DEPLOYED) for turn in range(4)),
    *(("ray rollouts", fault) for fault in ("sleep", "server", "lock", "endless")),
    *(("jax barrier", fault) for fault in ("fifo", "stop")),
    *(("mpi c", fault) for fault in ("sleep", "stop", "endless", "fifo", "server")),  # what counts in a loop is unknown
    *(("mpich", fault) for fault in ("sleep", "server", "fifo", "endless")),
    *(("vllm", fault) for fault in ("sleep", "server", "lock", "flock", "endless", "stop")),
    *(("pipes", fault) for fault in ("sleep", "lock", "stop")),
    *(("torchrun", fault) for fault in ("skips", "exit")),
    *(("router", fault) for fault in ("sleep", "server", "lock", "endless")),  # what loops is unknown
    *((kind, fault) for kind in ASKED for fault in ("sleep", "server", "lock", "flock", "stop")),
    *((("forked", "torchrun")[number % 2], fault) for number, fault in enumerate(ODD_WAITS)),
)  # fmt: skip
INVENTED = (
    ("asynchronous", "sleep"), ("asynchronous", "endless"), ("thread", "server"), ("pipeline", "lock"),
    ("subgroups", "sleep"), ("loader", "fifo"), ("loader", "server"), ("titled", "native"), ("jitted", "sleep"),
    ("ssh", "flock"), ("other user", "endless"), ("container", "sleep"), ("three jobs", "fifo"), ("two agents", "stop"),
    ("ray concurrent", "server"), ("mpi ring", "sleep"),
)  # fmt: skip
"""Of `invented_job.py`."""
ODD = ("evaluates", "saves", "compiles", "downloads", "computes")
"""Healthy jobs of which one rank alone works, or all do, for longer than a look."""
HEALTHY = tuple(
    (kind, {"JOB_PACE": pace})
    for kind in (
        *DEPLOYED,
        "ray rollouts",
        "jax barrier",
        "mpi c",
        "mpich",
        "pipes",
        "serving idle",
        "fastapi idle",
        "vllm",
        "router",
        *ASKED,
    )
    for pace in ("0.05", "0.6", "1.7")
) + tuple((kind, {"JOB_PACE": "0.3"}) for kind in (*dict.fromkeys(kind for kind, _ in INVENTED), *ODD))
HEALTHY += tuple((("forked", "torchrun")[number % 2], {"JOB_WORK": name}) for number, name in enumerate(ODD_WORK))


class Trial(NamedTuple):
    """A job, and what was said of it."""

    kind: str
    fault: str
    culprit: int
    code: int
    expected: int
    named: tuple[int, ...]
    text: str
    seconds: float

    @property
    def verdict(self) -> str:
        """Right is the faulty process alone, with what it does; of a healthy job nobody."""
        if self.fault == "none":
            return (
                "accused" if self.named or self.code == 10 else {0: "moves", 12: "undecided"}.get(self.code, "unseen")
            )
        is_left = self.fault == "exit" and f"has no process (rank {self.culprit})" in self.text
        if is_left or tuple(self.named) == (self.expected,):
            return "right" if WORDS.get(self.fault, "") in self.text else "right process, other words"
        return "wrong" if self.named else {0: "HEALTHY", 12: "undecided"}.get(self.code, "unseen")


def conduct(kind: str, fault: str, culprit: int, stacks: bool, environ: dict[str, str]) -> Trial:
    """In new namespaces: the job, then the look."""
    with tempfile.TemporaryDirectory(prefix="j") as folder:
        spaces = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--ipc"]
        trial = [kind, folder, fault, str(culprit), "on" if stacks else "off"]
        argv = [*spaces, sys.executable, "-m", "tests.watch.live_jobs", "--inside", *trial]
        own = {name: text for name, text in os.environ.items() if not name.startswith(("SLURM_", "DOCTOR_W"))}
        done = subprocess.run(argv, env={**own, "PYTHONPATH": str(ROOT), **environ}, capture_output=True, text=True,
                              timeout=900, check=False, cwd=ROOT)  # fmt: skip
        try:
            return Trial(kind, fault, culprit, *json.loads(done.stdout))
        except ValueError:
            log = Path(folder, "log")
            tail = log.read_text("utf-8", "replace")[-600:] if log.exists() else ""
            raise RuntimeError(f"{done.stderr[-300:]} {tail}") from None


def inside(kind: str, folder: str, fault: str, culprit: str, stacks: str) -> list[Any]:
    """Of the process with number 1 of the namespaces, all of whose processes end with it."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with Path(folder, "log").open("wb") as log:
        program = "invented_job.py" if kind in {*dict(INVENTED), *ODD} else "live_job.py"
        argv = [PYTHON, str(PROGRAMS / program), kind, folder, fault, culprit]
        job = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
                               env={**os.environ, "PYTHONPATH": ""})  # fmt: skip
    struck, limit = Path(folder, "struck"), time.monotonic() + START_LIMIT
    while not struck.exists():
        if job.poll() is not None or time.monotonic() > limit:
            raise RuntimeError("the job did not come to its fault")
        time.sleep(0.1)
    time.sleep(SETTLED)
    options = [] if stacks == "on" else ["--py-spy", "off"]
    command = [sys.executable, "-m", "doctor", "watch", "--attach", "--json", *options]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    took = time.monotonic() - began
    report: dict[str, Any] = json.loads(done.stdout or "{}")
    smoke = report.get("smoke", {})
    culprits = [text for failure in smoke.get("failures", ()) for text in states_of(failure)]
    named = sorted({int(re.findall(r"\(pid (\d+)\)", text)[-1]) for text in culprits if "(pid " in text})
    text = "; ".join(culprits) or " / ".join(smoke.get("notes", [])) or done.stderr
    expected = pid_here(int(struck.read_text()), job.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)
    return [done.returncode, expected, named, text[:2000], round(took, 1)]


def pid_here(pid: int, job: int) -> int:
    """The number that a process of a container has outside of it; ``pid`` where the job has none."""
    for place in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            numbers = place.read_text().partition("NSpid:")[2].split("\n")[0].split()
            if len(numbers) > 1 and numbers[-1] == str(pid) and int(numbers[0]) > job:
                return int(numbers[0])
    return pid


def states_of(failure: dict[str, Any]) -> list[str]:
    """What is said of each culprit."""
    return [f"{state['text']} (rank {state['rank']})" for state in failure["states"]]


def main() -> None:
    """Conducts the trials, and prints what came of them."""
    if sys.argv[1:2] == ["--inside"]:
        print(json.dumps(inside(*sys.argv[2:])))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the kind's and the fault's names")
    parser.add_argument("--stacks", choices=["on", "off"], default="on")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--seed", type=int, help="in an order of its own: what time permits is of all kinds")
    parser.add_argument("--seconds", type=float, default=1e9, help="starts no further job after that")
    options = parser.parse_args()
    trials: list[tuple[str, str, int, dict[str, str]]] = []
    trials += [(kind, fault, number % 3, {}) for number, (kind, fault) in enumerate((*FAULTY, *INVENTED))]
    trials += [(kind, "none", 0, environ) for kind, environ in HEALTHY]
    trials = [trial for trial in trials if re.search(options.only, f"{trial[0]}: {trial[1]}")]
    if options.seed is not None:
        random.Random(options.seed).shuffle(trials)
    part, parts = map(int, options.part.split("/"))
    counts: Counter[str] = Counter()
    began = time.monotonic()
    for kind, fault, culprit, environ in trials[part - 1 :: parts]:
        if time.monotonic() - began > options.seconds:
            print("not begun:", kind, fault)
            continue
        try:
            trial = conduct(kind, fault, culprit, options.stacks == "on", environ)
        except (RuntimeError, subprocess.TimeoutExpired) as problem:
            counts["not conducted"] += 1
            print(f"{kind:18} {fault:8} not conducted: {str(problem)[-700:]}", flush=True)
            continue
        counts[("healthy " if fault == "none" else "fault ") + trial.verdict] += 1
        which = f"pid {trial.expected} {' '.join(environ.values())}"
        print(f"{kind:18} {fault:8} {trial.verdict:10} exit {trial.code}, {trial.seconds} s, {which}", flush=True)
        if trial.verdict not in ("right", "moves"):
            print(f"    named {trial.named}: {trial.text}", flush=True)
    print(", ".join(f"{name}: {number}" for name, number in sorted(counts.items())), f"load {os.getloadavg()}")


if __name__ == "__main__":
    main()
