"""Trainings on a real GPU under `doctor watch`, and their logs under `doctor diagnose`.

    python -m tests.watch.gpu_campaign [--jobs 6] [--names FAULT,...] [--folder FOLDER]

Where a GPU is at hand. Two ranks share it, over NCCL. Nothing of the GPU's settings is changed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

PROGRAM = Path(__file__).parent / "programs" / "gpu_job.py"
DOCTOR = [sys.executable, "-m", "doctor"]
BLOCKED, DIED, LEFT = "smoke-rank-blocked", "smoke-rank-died", "smoke-rank-left"
PATIENCE = "8"


class Kind(NamedTuple):
    """A fault of one rank, and what watch may name."""

    checks: tuple[str, ...] = ()
    """Any of these is right; none: healthy."""
    everybody: bool = False
    culprit: int = 1


KINDS = {
    "none": Kind(),
    "fsdp2": Kind(),
    "compiled": Kind(),
    "long evaluation": Kind(culprit=0),
    "long kernel": Kind(),
    "checkpoint": Kind(culprit=0),
    "sleep": Kind((BLOCKED,)),
    "lock": Kind((BLOCKED,)),
    "loop": Kind((BLOCKED,)),
    "kernel": Kind(("smoke-network-silent", "undecided"), everybody=True),
    "stopped": Kind(("smoke-rank-stopped",)),
    "worker stuck": Kind(("smoke-input-stalled", BLOCKED)),
    "left out": Kind(("smoke-collective-mismatched", "smoke-collective-order", BLOCKED)),
    "shape": Kind(("smoke-collective-mismatched", "smoke-collective-order")),
    "memory": Kind((DIED,)),
    "index": Kind((DIED,)),
    "address": Kind((DIED,)),
    "raise": Kind((DIED,)),
    "killed": Kind((DIED,)),
    "leaves": Kind((LEFT, DIED)),
    "nan": Kind(("smoke-not-finite",), everybody=True),
    "slow": Kind(("undecided",)),
    "slow kernel": Kind(("undecided",)),
    "same shards": Kind(("smoke-shards-wrong",), everybody=True),
    "not broadcast": Kind(("smoke-parameters-not-broadcast",), everybody=True),
    "not reduced": Kind(("smoke-gradient-not-synchronised", "smoke-parameters-not-broadcast")),
}


BARE = ("sleep", "loop", "kernel", "left out", "shape", "worker stuck")
"""Jobs that run without watch, until NCCL's own limit ends them with a dump of the flight recorder."""


class Result(NamedTuple):
    """What came of one job."""

    kind: str
    code: int
    named: list[str]
    """Checks that found something, and whom."""
    notes: list[str]
    messages: list[str]
    """What diagnose says of its log."""
    seconds: float

    @property
    def verdict(self) -> str:
        """``right``, ``undecided``, ``wrong`` or ``accused``."""
        kind = KINDS[self.kind]
        if not kind.checks:
            return "accused" if self.named else "right"
        if not self.named:
            return "right" if "undecided" in kind.checks else "undecided"
        check, _, text = self.named[0].partition(":")
        is_right = check in kind.checks and (kind.everybody or f"rank {kind.culprit}" in text)
        return "right" if is_right else "wrong"


def job(name: str, folder: Path, *, bare: bool = False) -> tuple[list[str], dict[str, str], Path]:
    """The words that start it, its environment, and its log."""
    log = folder / f"{name.replace(' ', '-')}{'.bare' * bare}.log"
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(PROGRAM), name]
    limit = "12" if bare else "40" if name in ("loop", "kernel") else "600"
    variables = {"GROUP_SECONDS": limit, "OMP_NUM_THREADS": "1"}
    if bare:
        variables |= {
            "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
            "TORCH_FR_BUFFER_SIZE": "2000",
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{log}.dump_",
            "TORCH_FR_DUMP_TEMP_FILE": f"{log}.dump_",
        }
    return [*argv, str(KINDS[name].culprit)], {**os.environ, **variables}, log


def explain(*files: str) -> list[str]:
    """What diagnose says of them."""
    diagnosed = subprocess.run([*DOCTOR, "diagnose", "--json", *files], capture_output=True, text=True, check=False)
    if not diagnosed.stdout.startswith("{"):
        return [f"exit {diagnosed.returncode}: {diagnosed.stdout[-200:]}{diagnosed.stderr[-200:]}"]
    causes = json.loads(diagnosed.stdout)["causes"]
    return [f"{cause['signature']} ({cause['confidence']}): {cause['summary']}" for cause in causes] or ["no cause"]


def conduct(name: str, folder: Path) -> Result:
    """One job under watch, then its log under diagnose."""
    argv, environ, log = job(name, folder)
    report = log.with_suffix(".json")
    watch = [*DOCTOR, "watch", "--patience", PATIENCE, "--on-hang", "end", "-f", f"json={report}", "--"]
    began = time.monotonic()
    with log.open("wb") as file:
        words = ["timeout", "-k", "5", "130", *watch, *argv]
        ended = subprocess.run(words, stdout=file, stderr=file, env=environ, check=False)
    took = time.monotonic() - began
    answer = json.loads(report.read_text()) if report.exists() else {}
    named = [
        f"{outcome['check']}: {found['severity']}: {found['message'][:300]}"
        for outcome in answer.get("outcomes", [])
        for found in outcome["findings"]
    ]
    notes = [str(note) for note in answer.get("smoke", {}).get("notes", [])]
    return Result(name, ended.returncode, named, notes, explain(str(log)), took)


def conduct_bare(name: str, folder: Path) -> list[str]:
    """One job without watch: what diagnose says of its log and its dumps."""
    argv, environ, log = job(name, folder, bare=True)
    with log.open("wb") as file:
        ended = subprocess.run(["timeout", "-k", "5", "100", *argv], stdout=file, stderr=file, env=environ, check=False)
    dumps = sorted(map(str, folder.glob(f"{log.name}.dump_*")))
    messages = [f"    log: {text}" for text in explain(str(log))] + [
        f"    log and dumps: {text}" for text in explain(str(log), *dumps)
    ]
    return [f"without watch: {name}: exit {ended.returncode}, {len(dumps)} dumps", *messages]


def main() -> None:
    """Runs the jobs, and prints what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--names", default=",".join(KINDS), help="of the faults, with commas")
    parser.add_argument("--watched-only", action="store_true", help="leave out the jobs without watch")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        names = options.names.split(",")
        watched = [pool.submit(conduct, name, folder) for name in names]
        bare = [pool.submit(conduct_bare, name, folder) for name in BARE if name in names and not options.watched_only]
        for waiting in watched:
            result = waiting.result()
            print(f"{result.kind:16} {result.verdict:10} exit {result.code}, {result.seconds:.0f} s", flush=True)
            print(
                *(f"    {text}" for text in result.named),
                *(f"    diagnose: {text}" for text in result.messages),
                sep="\n",
            )
            if result.verdict != "right":
                print(*(f"    note: {note[:300]}" for note in result.notes[:4]), sep="\n", flush=True)
        for late in bare:
            print(*late.result(), sep="\n", flush=True)


if __name__ == "__main__":
    main()
