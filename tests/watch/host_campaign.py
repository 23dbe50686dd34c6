"""The trainings of `hang_campaign` over two real hosts, which torchrun or mpirun starts; `doctor watch` runs on both.

    python -m tests.watch.host_campaign [--only REGEX] [--jobs 2] [--launcher torchrun|mpirun|turns] [--set all]

The first host has rank 0 alone; where a kind needs four ranks, each host has two. Right is a verdict with the rank and
the host of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.hosts.fleet import INSIDE, Fleet
from tests.smoke.interpreter import visible_folders
from tests.watch.hang_campaign import FOUR, MAY_BE_NAMED, PROGRAMS, SETS, SLOW, Trial, end_all, findings_of

ROOT = Path(__file__).resolve().parents[2]
LIMIT = float(os.environ.get("LIMIT", "150"))
BUGS = (
    "other_order", "never_joins", "last_batch_smaller", "locks_crossed", "inference_lock", "exits_quietly",
    "killed_rank", "stopped", "spins", "livelock", "file_locked_by_waiter", "file_polled", "loader_worker",
    "wrong_group", "subgroups_of_some", "stops_early", "uneven_then_exit", "accumulates_more", "uneven_batches",
    "other_dtype", "swallowed_error", "error_and_thread", "atexit_waits", "dead_producer", "mutex_of_c", "holds_gil",
    "fifo_opened", "gathers_without_0", "expert_counts", "groups_in_other_order",
)  # fmt: skip
HEALTHY = (
    "long_evaluation", "slow_upload", "compiles", "throttled_checkpoint", "joins", "works_after_others", "joins_late",
    "sleeps_long", "slow_first_step", "checkpoint_in_background", "lock_of_download", "slow_stage",
)  # fmt: skip


class Hosts:
    """Two test hosts, and a folder that both can write."""

    def __init__(self, number: int, folder: Path) -> None:
        self.folder = folder / str(number)
        self.folder.mkdir()
        shown = {"shows": [*visible_folders(), str(self.folder)]}
        self.fleet = Fleet.up(2, {"*": shown}, name=f"hc{number}x", subnet=f"10.{180 + number}.0.0/16", shm="256m")
        for host in self.fleet.hosts:
            self.fleet.enter(host, f"mount -o remount,bind,rw {self.folder}")
        names = "".join(f"Host {name}\n HostName {place}\n" for name, place in self.fleet.addresses.items())
        self.ssh_config = self.folder / "ssh_config"
        self.ssh_config.write_text(names + self.fleet.ssh_config.read_text())
        self.runs = 0

    def conduct(self, kind: str, launcher: str, patience: float) -> tuple[Trial, list[str]]:
        """One job; and the hosts that the first finding names."""
        self.runs += 1
        home = self.folder / f"{self.runs}"
        home.mkdir()
        file = home / "report"
        program = next(program for program, bugs, healthy in SETS.values() if kind in bugs or kind in healthy)
        script = [sys.executable, str(PROGRAMS / program), kind, str(home)]
        watch = [sys.executable, "-m", "doctor", "watch", "-q", "--on-hang", "end", "--patience", str(patience)]
        watch += ["-f", f"json={file}", "--"]
        start = self._mpirun if launcher == "mpirun" else self._torchrun
        with (home / "out").open("wb") as out, (home / "err").open("wb") as err:
            commands = start(home, self.ranks(kind), watch, script)
            processes = [
                subprocess.Popen(argv, env=env, stdout=out, stderr=err, start_new_session=True)
                for argv, env in commands
            ]
            ended, codes = _wait(processes, home, max(LIMIT, SLOW.get(kind, 0.0)))
        struck = home / "struck"
        said = file.stat().st_mtime if file.exists() else time.time()
        took = said - struck.stat().st_mtime if struck.exists() else -1.0
        report = _read_report(file)
        log, text = ((home / name).read_text("utf-8", "replace") for name in ("out", "err"))
        hosts = [h for o in report.get("outcomes", ()) for f in o.get("findings", ())[:1] for h in f["hosts"]]
        code = next((code for code in codes if code), 0)
        return Trial(kind, ended, code, findings_of(report), took, text, log[-300:]), hosts

    @staticmethod
    def ranks(kind: str) -> tuple[int, int]:
        """How many each host has."""
        return (2, 2) if kind in FOUR else (1, 2)

    def environ(self, home: Path) -> dict[str, str]:
        more = {name: os.environ[name] for name in ("LONG",) if name in os.environ}
        return {
            "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", "HOME": str(home),
            "MASTER_ADDR": self.fleet.addresses[self.fleet.hosts[0]], "MASTER_PORT": str(29500 + self.runs), **more,
        }  # fmt: skip

    def _torchrun(
        self, home: Path, ranks: Sequence[int], watch: list[str], script: list[str]
    ) -> list[tuple[list[str], dict[str, str]]]:
        environ, commands = self.environ(home), []
        for number, (host, count) in enumerate(zip(self.fleet.hosts, ranks, strict=True)):
            launch = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--nproc-per-node={count}"]
            launch += [f"--master-addr={environ['MASTER_ADDR']}", f"--master-port={environ['MASTER_PORT']}"]
            launch += [f"--node-rank={number}", *script[1:]]
            commands.append((self.fleet.enter_argv(host, [*watch, *launch]), {**INSIDE, **environ}))
        return commands

    def _mpirun(
        self, home: Path, ranks: Sequence[int], watch: list[str], script: list[str]
    ) -> list[tuple[list[str], dict[str, str]]]:
        hostfile = home / "hosts"
        slots = zip(self.fleet.hosts, ranks, strict=True)
        hostfile.write_text("".join(f"{name} slots={count}\n" for name, count in slots))
        argv = ["mpirun", "--allow-run-as-root", "--hostfile", str(hostfile), "-np", str(sum(ranks)), "--wdir", "/tmp"]
        argv += ["--mca", "plm_rsh_agent", f"ssh -F {self.ssh_config}", "--oversubscribe"]
        argv += [word for name, value in self.environ(home).items() for word in ("-x", f"{name}={value}")]
        numbers = "RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK"
        argv += [*watch, "sh", "-c", f"{numbers} exec {' '.join(script)}"]
        return [(self.fleet.argv(argv), {**os.environ, "HOME": str(home)})]


def _read_report(file: Path) -> dict[str, Any]:
    """Empty where it is not written, or not yet as a whole."""
    try:
        return dict(json.loads(file.read_text()))
    except (OSError, ValueError):
        return {}


def _wait(processes: Sequence[subprocess.Popen[bytes]], home: Path, limit: float) -> tuple[bool, list[int]]:
    """Whether the limit was over, and exit codes. ``limit``: seconds."""
    end, ended = time.monotonic() + limit, False
    while any(process.poll() is None for process in processes) and time.monotonic() < end:
        time.sleep(0.2)
    for process in processes:
        if process.poll() is None:
            ended = True
            os.killpg(process.pid, signal.SIGINT)
    codes = []
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            codes.append(process.wait(40))
    end = time.monotonic() + 30  # what enters a host ends before what runs there
    while ended and not _read_report(home / "report") and time.monotonic() < end:
        time.sleep(0.2)
    end_all(home)
    return ended, codes


def verdict(hosts: Hosts, trial: Trial, named: Sequence[str]) -> str:
    """That of the trial; wrong, too, where a host is named that has none of the ranks."""
    first, count = hosts.fleet.hosts, hosts.ranks(trial.kind)[0]
    may = {first[rank >= count] for rank in MAY_BE_NAMED.get(trial.kind, ())}
    return "wrong host" if trial.verdict.startswith("right") and not set(named) <= may else trial.verdict


def main() -> None:
    """Conducts the trials, and prints what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="kinds that match this")
    parser.add_argument("--jobs", type=int, default=2, help="so many at a time")
    parser.add_argument("--launcher", choices=["torchrun", "mpirun", "turns", "other turns"], default="turns")
    parser.add_argument("--set", choices=["bugs", "healthy", "all"], default="all")
    parser.add_argument("--patience", type=float, default=30.0)
    options = parser.parse_args()
    kinds = (BUGS if options.set != "healthy" else ()) + (HEALTHY if options.set != "bugs" else ())
    chosen = [kind for kind in kinds if re.search(options.only, kind)]
    counts: Counter[str] = Counter()
    free: queue.Queue[Hosts] = queue.Queue()

    def one(job: tuple[int, str]) -> None:
        number, kind = job
        turn = ("torchrun", "mpirun")[(number + (options.launcher == "other turns")) % 2]
        launcher = turn if "turns" in options.launcher else options.launcher
        hosts = free.get()
        try:
            trial, named = hosts.conduct(kind, launcher, options.patience)
        finally:
            free.put(hosts)
        said = verdict(hosts, trial, named)
        counts[f"{'healthy' if kind in HEALTHY else 'bug'} {said}"] += 1
        lines = [f"{kind:24} {launcher:9} {said:18} {trial.seconds:6.1f} s, exit {trial.code} {','.join(named)}"]
        lines += [f"    {check} {list(ranks)}: {text[:230]}" for check, ranks, text in trial.findings[:2]]
        if not said.startswith(("right", "left")):
            lines += ["    " + trial.stderr[-1500:].replace("\n", "\n    ")]
        print("\n".join(lines), flush=True)

    with tempfile.TemporaryDirectory(prefix="hc", ignore_cleanup_errors=True) as name:
        try:
            for number in range(options.jobs):
                free.put(Hosts(number, Path(name)))
            with ThreadPoolExecutor(options.jobs) as pool:
                list(pool.map(one, enumerate(chosen)))
        finally:
            end_all(Path(name))
            while not free.empty():
                free.get().fleet.down()
    print(", ".join(f"{name}: {number}" for name, number in sorted(counts.items())))


if __name__ == "__main__":
    main()
