"""Late ranks in `doctor smoke` and in a job of torchrun beside it, on the same test hosts, struck alike.

python -m tests.smoke.beside_job
python -m tests.smoke.beside_job --only "stopped for 10 s"

Right: an error exactly where the job dies, and then on the guilty host alone. The job's groups have the same limit as
those of a smoke run, 60 s.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.hosts.fleet import Fleet
from tests.smoke.interpreter import visible_folders
from tests.smoke.outside import FOLDER, ROOT, WRAPPER, Trial, found_hosts, has_struck, prepare
from tests.smoke.outside_cases import TWENTIETH, Case, command, slow_import
from tests.smoke.outside_invented import program
from tests.smoke.outside_midrun import PYTHONS

JOB = """
import datetime, os, torch, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=60))
weights = torch.ones(4096)
for step in range(60):
    dist.all_reduce(weights.clone())
    (torch.ones(64, 64) @ torch.ones(64, 64)).sum()
dist.barrier()
dist.destroy_process_group()
"""
SLOW_FILES = """
import builtins, time
plain, done = builtins.__import__, []
def importing(name, *rest, **more):
    if name not in done:
        done.append(name)
        time.sleep(0.05)
        open("MARK", "w").close()
    return plain(name, *rest, **more)
builtins.__import__ = importing
"""
FULL_PIPE = """
read, write = os.pipe()
subprocess.Popen(["sh", "-c", "sleep SECONDS; exec cat"], stdin=read, stdout=-3, stderr=-3, start_new_session=True)
os.close(read)
os.write(write, b"x" * 300_000)
"""
NAMES = """
import socket
for number in range(COUNT):
    try: socket.getaddrinfo(f"host{number}.example.org", 80)
    except OSError: pass
"""
NO_NAMES = "ip addr add 203.0.113.2/24 dev eth0; echo nameserver 203.0.113.1 >/etc/resolv.conf"


def stopped(seconds: int) -> dict[str, object]:
    return command(f"(sleep {seconds}; kill -CONT PID) >/dev/null 2>&1 & kill -STOP PID")


def stopped_inside(seconds: int) -> dict[str, object]:
    """Most likely within the call: some milliseconds after it was begun."""
    return command(f"(sleep 0.003; kill -STOP PID; sleep {seconds}; kill -CONT PID) >/dev/null 2>&1 &")


def host_stopped(seconds: int) -> dict[str, object]:
    """All its Python programs, also what watches the ranks. From one of its ranks alone."""
    pause = f"kill -STOP {PYTHONS}; sleep {seconds}; kill -CONT {PYTHONS}"
    return command(f"mkdir /run/struck || exit 0; (sleep 0.1; {pause}) >/dev/null 2>&1 & sleep 0.3")


def agent_stopped(seconds: int) -> dict[str, object]:
    """Of the smoke run what observes its ranks, two processes above them; beside it torchrun itself."""
    watcher = "grep -q run /proc/$parent/cmdline && grep -q torch /proc/$parent/cmdline && agent=$parent"
    found = f"parent=$(ps -o ppid= -p PID | tr -d ' '); agent=$(ps -o ppid= -p $parent); {watcher}"
    return command(f"{found}; kill -STOP $agent; (sleep {seconds}; kill -CONT $agent) >/dev/null 2>&1 &")


def started_late(seconds: int) -> str:
    return f"touch MARK; sleep {seconds}"


LATE: tuple[Case, ...] = (
    Case("stopped for 10 s", (), stopped(10)),
    *(Case(f"stopped for {seconds} s", (), stopped(seconds)) for seconds in (2, 30, 45, 55)),
    Case("stopped for ever", (), stopped(900)),
    Case("stopped within a call for 10 s", (), stopped_inside(10)),
    Case("stopped within a call for ever", (), stopped_inside(900)),
    Case("its host stopped for 20 s", (), host_stopped(20)),
    Case("its host stopped for 45 s", (), host_stopped(45)),
    Case("what watches it stopped for 8 s", (), agent_stopped(8)),
    Case("what watches it stopped for 20 s", (), agent_stopped(20)),
    Case("import of 25 s", (), imports=slow_import("torch", 25)),
    Case("names for 10 s", (), program(NAMES.replace("COUNT", "1")), before=NO_NAMES),
    Case("files of 50 ms", (), imports=SLOW_FILES),
    Case("a twentieth of a CPU", (), command(TWENTIETH), early=True),
    Case("started 25 s late", (), wrapper=started_late(25)),
    *(
        Case(f"{delay} ms a message", (), environ={"OUTSIDE_DELAY_MS": f"{delay}"}, wrapper="touch MARK")
        for delay in (20, 200)
    ),
    Case("a full pipe for 20 s", (), program(FULL_PIPE.replace("SECONDS", "20"))),
    Case("a full pipe for 40 s", (), program(FULL_PIPE.replace("SECONDS", "40"))),
    Case("a full pipe for ever", (), program(FULL_PIPE.replace("SECONDS", "900"))),
    Case("joins 30 s late", (), {"kind": "late", "seconds": 30, "function": "init_process_group", "call": 1}),
    Case("joins never", (), {"kind": "late", "seconds": 900, "function": "init_process_group", "call": 1}),
    Case("sleeps 45 s", (), {"kind": "late", "seconds": 45}),
    Case("sleeps for ever", (), {"kind": "late", "seconds": 900}),
)


class Beside(NamedTuple):
    """What became of a case in both."""

    case: str
    struck: bool
    job: tuple[int, ...]
    """Exit statuses of torchrun, by host; 124: it had not ended after 200 s."""
    code: int
    errors: dict[str, list[str]]
    seconds: tuple[float, float]
    """Of the job, and of the smoke run."""
    notes: tuple[str, ...]

    def verdict(self, guilty: str) -> str:
        if not self.struck:
            return "not struck"
        if not any(self.job):
            return "right" if not self.errors else "false error"
        named = {host for hosts in self.errors.values() for host in hosts}
        return "right" if named == {guilty} else "missed" if not named else "wrong host"


def run_job(fleet: Fleet, hosts: list[str]) -> tuple[tuple[int, ...], float]:
    """The exit statuses of torchrun on each host."""
    began, master = time.monotonic(), hosts[0]

    def on(number: int) -> int:
        argv = [WRAPPER, "-m", "torch.distributed.run", "--nnodes", str(len(hosts)), "--nproc-per-node", "1"]
        argv += ["--node-rank", str(number), "--master-addr", master, "--master-port", "29777", f"{FOLDER}/job.py"]
        argv = ["env", "GLOO_SOCKET_IFNAME=eth0", "OMP_NUM_THREADS=1", "timeout", "-s", "KILL", "200", *argv]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}  # what is left behind would keep a pipe
        status = fleet.enter(hosts[number], argv, timeout=230, check=False, **silent).returncode
        return 124 if status == 137 else status

    with ThreadPoolExecutor(len(hosts)) as threads:
        return tuple(threads.map(on, range(len(hosts)))), time.monotonic() - began


def run_smoke(fleet: Fleet, hosts: list[str]) -> tuple[subprocess.CompletedProcess[str], float]:
    began = time.monotonic()
    argv = [sys.executable, "-m", "doctor", "smoke", ",".join(hosts), "-F", str(fleet.ssh_config)]
    argv += ["--python", WRAPPER, "--ranks-per-host", "1", "--json"]
    return fleet.run(argv, cwd=ROOT, timeout=300), time.monotonic() - began


def carry_out(fleet: Fleet, case: Case, call: int) -> Beside:
    """Both at the same time; the hosts are made anew afterwards."""
    hosts = list(fleet.hosts[:3])
    trial = Trial(case, 3, 1, 1, 0, 4 if case.early else call)
    prepare(fleet, trial)
    for host in hosts:
        fleet.write(host, f"{FOLDER}/job.py", JOB)
    try:
        with ThreadPoolExecutor(2) as threads:
            of_job, of_smoke = threads.submit(run_job, fleet, hosts), threads.submit(run_smoke, fleet, hosts)
            statuses, job_seconds = of_job.result()
            done, smoke_seconds = of_smoke.result()
        if not done.stdout.startswith("{"):
            raise SystemExit(f"{case.name}: no report, exit {done.returncode}: {done.stderr[-3000:]}")
        report, struck = json.loads(done.stdout), has_struck(fleet, hosts[1], case)
    finally:
        fleet.enter(hosts[1], case.after or "true", check=False)
        fleet.renew(*hosts)
    failed = [outcome for outcome in report["outcomes"] if outcome["status"] == "failed"]
    errors = found_hosts(report, "error")
    notes = [finding["message"] for outcome in failed for finding in outcome["findings"]]
    run = report["smoke"] or {}
    notes += [*run.get("notes", ()), *(failure["text"] for failure in run.get("failures", ()))]
    return Beside(case.name, struck, statuses, done.returncode, errors, (job_seconds, smoke_seconds), tuple(notes))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="these cases, with commas between them")
    parser.add_argument("--call", type=int, default=17, help="of all_reduce, at which a rank is struck")
    parser.add_argument("--name", default="late", help="prefix of the hosts' names, where several run at once")
    requested = parser.parse_args()
    only, verdicts = requested.only.split(",") if requested.only else [], Counter[str]()
    fleet = Fleet.up(3, {"*": {"shows": visible_folders()}}, name=requested.name)
    try:
        for case in LATE:
            if only and case.name not in only:
                continue
            result = carry_out(fleet, case, requested.call)
            verdict = result.verdict(fleet.hosts[1])
            verdicts[verdict] += 1
            took = " and ".join(f"{seconds:.0f} s" for seconds in result.seconds)
            print(f"{verdict:11} {case.name}: job {result.job}, smoke {result.errors} exit {result.code}, {took}")
            for note in result.notes:
                print(f"      {note[:300]}", flush=True)
    finally:
        fleet.down()
    print(dict(verdicts))
    return 0 if verdicts.keys() <= {"right", "not struck"} else 1


if __name__ == "__main__":
    sys.exit(main())
