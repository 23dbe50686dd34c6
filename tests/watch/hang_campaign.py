"""Trainings that hang in ways of public issues, and healthy ones that take long, under `doctor watch --on-hang end`.

    python -m tests.watch.hang_campaign [--only REGEX] [--jobs 3] [--way run|attach]

A job is ended by SIGINT when its limit is over, as by its user; what the report says then counts apart.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

PROGRAM = Path(__file__).parent / "programs" / "ways_to_hang.py"
LIMIT = 150.0
SLOW = {"never_joins": 400.0, "spins": 200.0}
"""Seconds for a job of this kind."""
BUGS: dict[str, tuple[int, ...]] = {
    "validates_with_ddp": (0,), "uneven_batches": (2,), "uneven_then_exit": (1,), "stops_early": (2,),
    "group_by_some": (2,), "groups_in_other_order": (1, 2), "barrier_in_branch": (0,), "swallowed_error": (1,),
    "grads_of_some": (1,), "accumulates_more": (2,), "other_order": (1,), "last_batch_smaller": (2,),
    "other_dtype": (1,), "gathers_without_0": (0,), "random_branch": (2,), "tokens_differ": (1,), "wrong_group": (3,),
    "checkpoint_thread": (0,), "other_source": (1,), "retries_smaller": (1,), "cache_race": (0,),
    "fsdp_validation": (1,), "early_sampler_end": (0,), "no_send": (0, 1), "both_receive": (0, 1), "other_tag": (0, 1),
    "locks_crossed": (1,), "file_locked_by_waiter": (0, 2), "file_polled": (0, 2), "pipe_unread": (1,),
    "dead_producer": (2,), "loader_worker": (1,), "fifo_opened": (0,), "exits_quietly": (2,), "spins": (2,),
    "stopped": (1,), "error_and_thread": (1,), "atexit_waits": (2,), "inference_lock": (1,), "reward_server": (0,),
    "all_locked_out": (0, 1, 2), "never_joins": (2,), "mask_differs": (0, 1, 2, 3),
}  # fmt: skip
"""Kinds, and the ranks that may be named."""
HEALTHY = ("long_evaluation", "slow_upload", "compiles", "throttled_checkpoint", "joins", "uneven_work", "rollouts",
           "sleeps_long", "polls_file", "slow_first_step", "joins_late", "works_after_others", "pool_evaluation",
           "checkpoint_in_background", "slow_stage", "lock_of_download", "waits_for_requests",
           "compute_at_low_priority", "handled_errors")  # fmt: skip
FOUR = {"wrong_group", "mask_differs"}
SPAWNED = {"no_send", "locks_crossed", "stops_early", "other_order", "exits_quietly", "rollouts", "uneven_work"}


class Trial(NamedTuple):
    """A job, and what was said of it."""

    kind: str
    ended: bool
    """By SIGINT, as its limit was over."""
    code: int
    findings: tuple[tuple[str, tuple[int, ...], str], ...]
    """Check, ranks and text of each."""
    seconds: float
    """From the moment at which it went wrong to the verdict."""
    stderr: str
    log: str

    @property
    def verdict(self) -> str:
        """Right is a finding whose ranks are some of those that may be named."""
        if self.kind in HEALTHY:
            return "accused" if self.findings else "ended" if self.ended else "left alone" if not self.code else "fails"
        if not self.findings:
            return "nothing"
        right = all(ranks and set(ranks) <= set(BUGS[self.kind]) for _, ranks, _ in self.findings[:1])
        return ("right" if right else "wrong") + (" when ended" if self.ended else "")


def conduct(kind: str, way: str = "run", patience: float = 60.0, **environ: str) -> Trial:
    """One job under `doctor watch`."""
    ranks = 4 if kind in FOUR else 3
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    with tempfile.TemporaryDirectory(prefix="h") as name:
        folder, file = Path(name), Path(name, "report.json")
        own = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HOME": name, "XDG_STATE_HOME": name, **environ}
        if kind in SPAWNED:
            launch, own["SPAWN"] = [], str(ranks)
        job = [sys.executable, *launch, str(PROGRAM), kind, name]
        doctor = [sys.executable, "-m", "doctor", "watch"]
        options = ["-q", "--on-hang", "end", "--patience", str(patience), "-f", f"json={file}"]
        argv = [*doctor, *options, "--", *job] if way == "run" else job
        with Path(name, "out").open("wb") as out, Path(name, "err").open("wb") as err:
            process = subprocess.Popen(argv, env={**os.environ, **own}, stdout=out, stderr=err, start_new_session=True)
        ended, code = False, 0
        looked = None
        if way == "attach":
            looked = _attach(process, folder, doctor)
        try:
            code = process.wait(SLOW.get(kind, LIMIT))
        except subprocess.TimeoutExpired:
            ended = True
            os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(40)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        struck = folder / "struck"
        said = file.stat().st_mtime if file.exists() else time.time()
        took = said - struck.stat().st_mtime if struck.exists() else -1.0
        report: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        if looked is not None:
            report, took = looked
        log = (folder / "out").read_text("utf-8", "replace")[-300:]
        return Trial(kind, ended, code, _findings(report), took, (folder / "err").read_text("utf-8", "replace"), log)


def _attach(process: subprocess.Popen[bytes], folder: Path, doctor: list[str]) -> tuple[dict[str, Any], float]:
    """Three seconds after it went wrong, a look from outside."""
    end = time.monotonic() + 60
    while not (folder / "struck").exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(3)
    began = time.monotonic()
    argv = [*doctor, "--attach", "--json", "--pid", str(process.pid)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    took = time.monotonic() - began
    os.killpg(process.pid, signal.SIGKILL)
    return json.loads(done.stdout or "{}"), took


def _findings(report: dict[str, Any]) -> tuple[tuple[str, tuple[int, ...], str], ...]:
    found = []
    for outcome in report.get("outcomes", ()):
        for finding in outcome.get("findings", ()):
            ranks = finding.get("values", {}).get("ranks", ())
            found.append((outcome["check"], tuple(ranks if isinstance(ranks, list) else ()), finding["message"]))
    return tuple(found)


def main() -> None:
    """Conducts the trials, and prints what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="kinds that match this")
    parser.add_argument("--jobs", type=int, default=3, help="so many at a time")
    parser.add_argument("--way", choices=["run", "attach"], default="run")
    options = parser.parse_args()
    kinds = [kind for kind in (*BUGS, *HEALTHY) if re.search(options.only, kind)]
    counts: Counter[str] = Counter()
    with ThreadPoolExecutor(options.jobs) as pool:
        for trial in pool.map(lambda kind: conduct(kind, options.way), kinds):
            group = "healthy" if trial.kind in HEALTHY else "bug"
            counts[f"{group} {trial.verdict}"] += 1
            print(f"{trial.kind:24} {trial.verdict:18} {trial.seconds:6.1f} s, exit {trial.code}", flush=True)
            for check, ranks, text in trial.findings[:2]:
                print(f"    {check} {list(ranks)}: {text[:230]}")
            if (not trial.findings and group == "bug") or "fails" in trial.verdict:
                print("    " + trial.stderr[-900:].replace("\n", "\n    "))
            sys.stdout.flush()
    print(", ".join(f"{name}: {number}" for name, number in sorted(counts.items())))


if __name__ == "__main__":
    main()
