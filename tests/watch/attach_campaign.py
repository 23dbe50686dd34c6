"""Seeded trials of `doctor watch --attach` on programs with other people's libraries that nobody prepared.

    python -m tests.watch.attach_campaign 100 [--seed S] [--healthy H] [--only WORD] [--stacks off]

The interpreter of the programs is that of ``DOCTOR_PROGRAMS_PYTHON``; without it, the programs that need torch alone
run, with this one. Each rank is a process of its own that knows nothing of doctor; it is inspected from outside after
the fault has struck, which a file says. py-spy is used where it stands beside that interpreter.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from tests.watch.campaign import PYTHON, programs_here
from tests.watch.data_campaign import source_of
from tests.watch.data_faults import with_patch

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT = 120.0
"""Seconds until the fault must have struck."""
SETTLED = 2.0
"""Seconds for the other ranks to come to the collective in which they wait: no event says that they have."""
STRUCK = "open(os.environ['STRUCK'] + '.' + os.environ['RANK'], 'w').close()\n"
IMPORTS = "import ctypes, fcntl, os, random, signal, socket, subprocess, tempfile, threading, time\n"
HANGS = {
    "sleep": "time.sleep(1000)",
    "lock": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "event": "threading.Event().wait()",
    "fifo": "path = tempfile.mktemp(); os.mkfifo(path); open(path).read()",
    "file lock": (
        "path = tempfile.mktemp(); first, second = open(path, 'w'), open(path)\n"
        "    fcntl.flock(first, fcntl.LOCK_EX); fcntl.flock(second, fcntl.LOCK_EX)"
    ),
    "stdin": "os.read(0, 1)",
    "silent server": (
        "server = socket.create_server(('127.0.0.1', 0)); client = socket.create_connection(server.getsockname())\n"
        "    client.recv(1)"
    ),
    "child": "subprocess.run(['sleep', '1000'])",
    "stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "endless loop": "\n    while True: pass",
    "native sleep": "ctypes.CDLL(None).sleep(1000)",
    "native sleep, interpreter locked": "ctypes.PyDLL(None).sleep(1000)",
    "native loop": "torch.linalg.eigh(torch.randn(9000, 9000))",
    "signal": "signal.pause()",
}
"""What a rank does instead of its step."""
WORKER = "worker stuck"
HEALTHY = {
    "quick steps": "\n    while True: dist.all_reduce(torch.ones(8))",
    "steps of 0.3 s": "\n    while True: dist.all_reduce(torch.ones(8)); time.sleep(0.3)",
    "steps of 2 s": "\n    while True: dist.all_reduce(torch.ones(8)); time.sleep(2.0)",
    "uneven steps": "\n    while True: dist.all_reduce(torch.ones(8)); time.sleep(random.random() * 1.5)",
    "large products": "\n    while True: torch.randn(700, 700) @ torch.randn(700, 700); dist.all_reduce(torch.ones(8))",
    "a rank that reads more": (
        "\n    while True:\n        dist.all_reduce(torch.ones(8))\n"
        "        if rank == {bad}: sum(len(open(path, 'rb').read()) for path in [os.__file__] * 9); time.sleep(0.2)"
    ),
}
"""What every rank does; nobody is to be accused."""


class Trial(NamedTuple):
    """One job, and what the report said of it."""

    program: str
    fault: str
    world: int
    bad: int
    healthy: bool
    named: tuple[int, ...]
    code: int
    checks: tuple[str, ...]
    text: str

    @property
    def verdict(self) -> str:
        """Right is that rank alone; of a healthy job nobody."""
        if self.healthy:
            return "wrong" if self.named or self.code == 10 else "right" if self.code == 0 else "undecided"
        if self.named == (self.bad,):
            return "right"
        return "wrong" if self.named else "undecided"


def program_with(program: str, fault: str, healthy: bool, bad: int, at: int) -> str:
    """Its text with the fault."""
    if fault == WORKER:
        patch = (
            "items = globals().setdefault('ITEMS', []); items.append(index)\n"
            f"if int(os.environ['RANK']) == {bad} and len(items) > 9:\n"
            f"    import time\n    {STRUCK}    time.sleep(1000)"
        )
        return with_patch(source_of(program), "# item", patch, bad=bad, pair=0, at=at)
    description = (HEALTHY if healthy else HANGS)[fault].replace("{bad}", str(bad))
    who = f"step == {at}" if healthy else f"rank == {bad} and step == {at}"
    patch = f"{IMPORTS}if {who}:\n    {STRUCK}    {description}"
    return with_patch(source_of(program), "# step", patch, bad=bad, pair=0, at=at)


def conduct(program: str, fault: str, seed: int, *, healthy: bool, stacks: bool) -> Trial:
    """Starts the ranks, waits for the fault, inspects them, and ends them."""
    rng = random.Random(f"{program} {fault} {seed}")
    parallel = program in {"tensor_parallel", "megatron_tp", "dtensor_tp"}
    world = rng.choice([2, 4] if parallel else [2, 3, 4])
    bad, at = rng.randrange(world), rng.randrange(2, 5)
    python = PYTHON or sys.executable
    with tempfile.TemporaryDirectory() as folder, socket.socket() as reserved:
        path = Path(folder, "train.py")
        path.write_text(program_with(program, fault, healthy, bad, at))
        reserved.bind(("127.0.0.1", 0))
        base = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SLURM_")},
            "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(reserved.getsockname()[1]), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
            "SEED": str(rng.randrange(1000)), "STRUCK": str(Path(folder, "struck")), "DISPATCH": "0",
        }  # fmt: skip
        base |= {"TP": "2"} if parallel else {}
        base |= {"WORKERS": "1"} if fault == WORKER else {}
        reserved.close()
        ranks = []
        for rank in range(world):
            with Path(folder, f"{rank}.log").open("wb") as log:
                own_values = {**base, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                ranks.append(
                    subprocess.Popen([python, str(path)], env=own_values, cwd=folder, stdin=subprocess.PIPE, stdout=log,
                                     stderr=log, start_new_session=True)
                )  # fmt: skip
        try:
            wait_for_fault(Path(folder), ranks, 1 if not healthy else world)
            return inspected(
                Trial(program, fault, world, bad, healthy, (), 0, (), ""), [rank.pid for rank in ranks], stacks
            )
        finally:
            for process in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


def wait_for_fault(folder: Path, ranks: list[subprocess.Popen[bytes]], count: int) -> None:
    """Until ``count`` ranks have written that they are in it."""
    deadline = time.monotonic() + START_LIMIT
    while len(list(folder.glob("struck.*"))) < count:
        ended = [number for number, rank in enumerate(ranks) if rank.poll() is not None]
        if ended or time.monotonic() > deadline:
            log = Path(folder, f"{(ended or [0])[0]}.log").read_text("utf-8", "replace")
            raise RuntimeError(f"the job did not come to its fault: {log[-1500:]}")
        time.sleep(0.05)
    time.sleep(SETTLED)


def inspected(trial: Trial, pids: list[int], stacks: bool) -> Trial:
    """The trial with the report of `doctor watch --attach`."""
    options = [word for pid in pids for word in ("--pid", str(pid))]
    options += [] if stacks else ["--py-spy", "off"]
    command = [sys.executable, "-m", "doctor", "watch", "--attach", "--json", *options]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environ)
    report: dict[str, Any] = json.loads(done.stdout)
    findings = [(outcome["check"], finding) for outcome in report["outcomes"] for finding in outcome["findings"]]
    named = {rank for _, finding in findings for rank in finding["values"]["ranks"]}
    reasons = [str(outcome.get("reason", "")) for outcome in report["outcomes"] if outcome["status"] == "unknown"]
    text = "; ".join([finding["message"] for _, finding in findings] or reasons[:1])
    checks = tuple(check for check, _ in findings)
    return trial._replace(named=tuple(sorted(named)), code=done.returncode, checks=checks, text=text)


def planned(count: int, healthy: int, only: str, seed: int) -> list[tuple[str, str, bool]]:
    """Every fault in every program in turn until there are so many, then healthy jobs."""
    programs = programs_here()
    pairs = [(program, fault, False) for fault in HANGS for program in programs]
    pairs += [(program, WORKER, False) for program in programs if "# item" in source_of(program)]
    sound = [(program, method, True) for method in HEALTHY for program in programs if program != "hf_trainer"]
    pairs, sound = ([pair for pair in some if only in " ".join(pair[:2])] for some in (pairs, sound))
    random.Random(seed).shuffle(pairs)
    random.Random(seed).shuffle(sound)
    chosen = [pairs[number % len(pairs)] for number in range(count if pairs else 0)]
    return chosen + [sound[number % len(sound)] for number in range(healthy if sound else 0)]


def main() -> None:
    """Conducts the trials, and prints what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--healthy", type=int)
    parser.add_argument("--only", default="", help="a part of the program's and the fault's names")
    parser.add_argument("--stacks", choices=["on", "off"], default="on")
    options = parser.parse_args()
    healthy = options.count // 3 if options.healthy is None else options.healthy
    counts: Counter[str] = Counter()
    for number, (program, fault, sound) in enumerate(planned(options.count, healthy, options.only, options.seed)):
        try:
            trial = conduct(program, fault, options.seed + number, healthy=sound, stacks=options.stacks == "on")
        except RuntimeError as problem:
            print(f"{program:16} {fault:30} not conducted: {problem}", flush=True)
            counts["not conducted"] += 1
            continue
        counts[("healthy " if sound else "fault ") + trial.verdict] += 1
        print(f"{program:16} {fault:30} {trial.verdict} ({trial.bad} of {trial.world}) {trial.checks}", flush=True)
        if trial.verdict != "right":
            print(f"    named {trial.named}, exit {trial.code}: {trial.text}", flush=True)
    print(", ".join(f"{name}: {number}" for name, number in sorted(counts.items())))


if __name__ == "__main__":
    main()
