"""Trainings that hang in ways of public issues, and healthy ones that take long, under `doctor watch --on-hang end`.

    python -m tests.watch.hang_campaign [--only REGEX] [--jobs 3] [--way run|attach] [--set first|further]

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

PROGRAMS = Path(__file__).parent / "programs"
LIMIT = 170.0
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
FURTHER_BUGS: dict[str, tuple[int, ...]] = {
    "zero3_dummy_chunk": (1,), "fsdp_unused_expert": (2,), "entropy_gather": (0, 1, 2), "state_file_exists": (0,),
    "finalizes_on_rank_0": (0,), "forked_writer": (0,), "skips_on_overflow": (1,), "expert_counts": (2,),
    "monitored": (2,), "unpicklable": (1,), "subgroups_of_some": (3,), "dcp_on_rank_0": (0,),
    "consolidates_on_rank_0": (0,), "unused_parameter": (1,), "returns_on_nan": (2,), "evaluates_at_other_steps": (1,),
    "pipeline_order": (1, 2), "one_receive_too_many": (1, 2), "key_never_set": (0, 1, 2), "key_of_most": (0,),
    "second_rpc": (0, 1),
    "reduces_on_two_threads": (1,), "forked_log_lock": (1,), "holds_gil": (2,), "mutex_of_c": (1,), "full_queue": (0,),
    "prefetch_thread": (2,), "udp_answer": (0,), "database_locked": (0, 1), "child_never_ends": (0,),
    "handler_locks": (1,), "import_lock": (2,), "asks_user": (0,), "pool_at_exit": (1,), "lock_in_finalizer": (1,),
    "awaits_event": (0,), "pool_of_processes": (2,), "stopped_service": (0,), "locks_itself_out": (2,),
    "baton_left": (0, 1, 2), "condition_missed": (1,), "waits_at_rendezvous": (0,), "retries_for_ever": (2,),
    "livelock": (1,), "killed_rank": (1,), "lr_of_one": (2,), "sum_for_mean": (0, 1, 2), "stale_weights": (1,),
    "same_data": (0, 1, 2), "sampler_seed": (0, 1, 2), "not_wrapped": (0, 1, 2), "fsdp_other_seed": (0, 1, 2, 3),
    "mask_in_forward": (0, 1, 2, 3), "global_dropout": (0, 1, 2, 3), "feeder_ends": (1,),
}  # fmt: skip
"""Of `further_ways.py`, which was written after the rules were."""
FURTHER_HEALTHY = (
    "tokenizes_first", "baton_of_compile", "slow_answer", "key_comes_late", "backs_off", "paused_briefly",
    "stops_early_together", "evaluates_own_share", "padded_gather", "experts", "local_sgd", "warms_up", "two_players",
    "masks_agree", "accumulates_evenly", "asynchronous", "child_sleeps", "awaits_in_loop", "ends_unevenly",
    "slow_rendezvous", "polls_a_thread", "rates_of_stages",
)  # fmt: skip
SETS = {
    "first": ("ways_to_hang.py", BUGS, HEALTHY),
    "further": ("further_ways.py", FURTHER_BUGS, FURTHER_HEALTHY),
}
MAY_BE_NAMED = {**BUGS, **FURTHER_BUGS}
FOUR = {"wrong_group", "mask_differs", "subgroups_of_some", "fsdp_other_seed", "mask_in_forward", "global_dropout",
        "masks_agree"}  # fmt: skip
SPAWNED = {"no_send", "locks_crossed", "stops_early", "other_order", "exits_quietly", "rollouts", "uneven_work"}


OVER = 1000
"""In place of an exit code: the job had ended by itself when it was looked at."""


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
        """Right is a finding whose ranks are some of those that may be named; without any it is of all ranks."""
        if self.kind not in MAY_BE_NAMED:
            return "accused" if self.findings else "ended" if self.ended else "left alone" if not self.code else "fails"
        may, world = set(MAY_BE_NAMED[self.kind]), range(4 if self.kind in FOUR else 3)
        right = all(set(ranks or world) <= may for _, ranks, _ in self.findings[:1])
        told = re.search(r"long wait (?:for|of) ranks? ([\d, and-]+) on", self.stderr) if self.ended else None
        in_run = ", told before" if told and set(map(int, re.findall(r"\d+", told[1]))) <= may else ""
        if not self.findings:
            return ("over before the look" if self.code == OVER else "nothing") + in_run
        return ("right" if right else "wrong") + (" when ended" if self.ended else "") + in_run


def conduct(kind: str, way: str = "run", patience: float = 60.0, **environ: str) -> Trial:
    """One job under `doctor watch`."""
    ranks = 4 if kind in FOUR else 3
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    with tempfile.TemporaryDirectory(prefix="h", ignore_cleanup_errors=True) as name:
        folder, file = Path(name), Path(name, "report.json")
        own = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HOME": name, "XDG_STATE_HOME": name, **environ}
        if kind in SPAWNED:
            launch, own["SPAWN"] = [], str(ranks)
        program = next(program for program, bugs, healthy in SETS.values() if kind in bugs or kind in healthy)
        job = [sys.executable, *launch, str(PROGRAMS / program), kind, name]
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
        end_all(folder)
        struck = folder / "struck"
        said = file.stat().st_mtime if file.exists() else time.time()
        took = said - struck.stat().st_mtime if struck.exists() else -1.0
        report: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        if looked is not None:
            report, took, is_over = looked
            code = OVER if is_over else 0  # the job was ended here
        log = (folder / "out").read_text("utf-8", "replace")[-300:]
        return Trial(kind, ended, code, findings_of(report), took, (folder / "err").read_text("utf-8", "replace"), log)


def _attach(process: subprocess.Popen[bytes], folder: Path, doctor: list[str]) -> tuple[dict[str, Any], float, bool]:
    """Three seconds after it went wrong, a look from outside; what it says in notes is written for whoever reads."""
    end = time.monotonic() + 60
    while not (folder / "struck").exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(3)
    began = time.monotonic()
    argv = [*doctor, "--attach", "--json", "--pid", str(process.pid)]
    try:
        text = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False).stdout
    except subprocess.TimeoutExpired:
        text = ""
    took, is_over = time.monotonic() - began, process.poll() is not None
    end_all(folder)
    report = json.loads(text or "{}")
    with Path(folder, "err").open("a") as file:
        file.write("\n".join(report.get("smoke", {}).get("notes", ["no report"])))
    return report, took, is_over


def end_all(home: Path) -> None:
    """Ends the processes of a job, whose sessions are their own: each has this folder, or one in it, as its home."""
    entry = b"\0HOME=" + os.fsencode(home)
    while True:
        pids = []
        for place in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                environ = b"\0" + place.read_bytes()
                if environ.partition(entry)[2][:1] in (b"\0", b"/") and int(place.parent.name) != os.getpid():
                    pids.append(int(place.parent.name))
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def findings_of(report: dict[str, Any]) -> tuple[tuple[str, tuple[int, ...], str], ...]:
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
    parser.add_argument("--set", choices=sorted(SETS), default="first")
    options = parser.parse_args()
    _, bugs, healthy = SETS[options.set]
    kinds = [kind for kind in (*bugs, *healthy) if re.search(options.only, kind)]
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="h") as name, ThreadPoolExecutor(options.jobs) as pool:
        tempfile.tempdir = name  # the folders of all jobs, whose processes end with this one

        def end_with_all_jobs(*_: object) -> None:
            end_all(Path(name))
            os._exit(1)

        signal.signal(signal.SIGTERM, end_with_all_jobs)
        for trial in pool.map(lambda kind: conduct(kind, options.way), kinds):
            group = "healthy" if trial.kind in healthy else "bug"
            counts[f"{group} {trial.verdict}"] += 1
            print(f"{trial.kind:24} {trial.verdict:18} {trial.seconds:6.1f} s, exit {trial.code}", flush=True)
            for check, ranks, text in trial.findings[:2]:
                print(f"    {check} {list(ranks)}: {text[:230]}")
            if trial.verdict.startswith("nothing") or "fails" in trial.verdict:
                print("    " + trial.stderr[-900:].replace("\n", "\n    "))
            sys.stdout.flush()
    print(", ".join(f"{name}: {number}" for name, number in sorted(counts.items())))


if __name__ == "__main__":
    main()
