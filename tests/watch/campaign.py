"""Seeded trials of programs with other people's libraries, under `doctor watch --data`.

    python -m tests.watch.campaign 300 [--seed S] [--healthy H] [--only WORD] [--out FILE]

The interpreter of the programs is that of ``DOCTOR_PROGRAMS_PYTHON``; without it, the programs that need torch alone
run, with this one. Each trial is one job of 2 to 4 gloo ranks with one fault of the user's side, or none.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from doctor.analysis.causes import resolve_causes
from doctor.session.select_checks import choose_checks, load_catalog
from doctor.smoke.hang.detector import AMBIGUOUS
from doctor.watch.data_outcomes import evaluate_watch
from doctor.watch.launch import WatchOptions, WatchOutcome, run
from tests.watch.data_campaign import Ranks, source_of
from tests.watch.data_faults import with_patch
from tests.watch.job_faults import FAULTS, LIBRARIES, TORCH, JobFault

Verdict = Literal["right", "one of", "undecided", "wrong"]
PYTHON = os.environ.get("DOCTOR_PROGRAMS_PYTHON", "")
PATIENCE = 3.0
LIMIT = 150.0
"""Seconds for the ranks of a trial: those that hang unnoticed are ended, and the trial is undecided."""
VARIANTS: dict[str, tuple[dict[str, str], ...]] = {
    "hf_trainer": ({"ACCUMULATE": "1"}, {"ACCUMULATE": "2"}),
    "accelerate_loop": ({"ACCUMULATE": "1"}, {"ACCUMULATE": "2"}, {"DISPATCH": "1"}),
    "lightning_fit": ({"ACCUMULATE": "1"}, {"ACCUMULATE": "2"}),
    "deepspeed_zero": tuple({"STAGE": str(stage), "ACCUMULATE": str(1 + stage % 2)} for stage in (0, 1, 2, 3)),
    "megatron_tp": ({}, {"OVERLAP": "1"}),
    "fsdp1": ({}, {"ORIGINAL": "1"}, {"ORIGINAL": "1", "HYBRID": "1"}),
    "fsdp2": ({}, {"HYBRID": "1"}),
}
"""Settings of a program that a trial may have."""
COMMAND = 'env -0 > "$1.environ"; printf ".\\n" > "$1.environ"; read code < "$1.code"; exit $code'
"""Of `doctor watch`: hands its environment to the process that forks the ranks, and ends with their exit code."""


class Trial(NamedTuple):
    """One job."""

    program: str
    fault: str
    """Empty for a healthy one."""
    world: int
    bad: int
    pair: int
    at: int
    variables: dict[str, str]

    @property
    def source(self) -> str:
        """The program with its fault."""
        source = source_of(self.program)
        if not self.fault:
            return source
        fault = FAULTS[self.fault]
        return with_patch(source, fault.marker, fault.patch, bad=self.bad, pair=self.pair, at=self.at)


class Finding(NamedTuple):
    """What a check says of ranks."""

    check: str
    ranks: tuple[int, ...]
    """Empty: all of them."""
    tie: bool
    """It is one of them, and nothing tells which."""
    text: str


class Result(NamedTuple):
    """What a trial came to."""

    trial: Trial
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    codes: tuple[int, ...]
    exit_code: int
    seconds: float
    numbers: list[Any]
    """What the ranks computed."""
    logs: tuple[str, ...]
    limited: bool
    """The ranks were ended as nothing had been found in time."""

    @property
    def verdict(self) -> Verdict:
        """Right is the class, and the rank alone; ``one of``: the rank among several that are said to be possible."""
        if not self.trial.fault:
            return "wrong" if self.findings or any(self.codes) or self.failed_hooks else "right"
        fault = FAULTS[self.trial.fault]
        if not self.findings or self.limited:
            return "undecided"
        first = next((finding for finding in self.findings if finding.check in fault.checks), None)
        if first is None:
            return "wrong"
        if fault.everybody:
            return "right"
        if self.trial.bad not in first.ranks:
            return "wrong" if first.ranks else "undecided"
        if len(first.ranks) == 1:
            return "right"
        return "one of" if first.tie or set(first.ranks) == set(range(self.trial.world)) else "wrong"

    @property
    def failed_hooks(self) -> list[str]:
        """What a hook could not do: it ends itself, and nothing more is known of its rank."""
        return [note for note in self.notes if "the hook:" in note or "a hook failed" in note]

    @property
    def accused(self) -> bool:
        """Somebody innocent is named for certain."""
        if self.limited or (self.trial.fault and FAULTS[self.trial.fault].everybody):
            return False
        return any(len(finding.ranks) == 1 and finding.ranks != (self.trial.bad,) for finding in self.findings) or any(
            1 < len(finding.ranks) < self.trial.world and not finding.tie and {*finding.ranks} - {self.trial.bad}
            for finding in self.findings
        )


def programs_here() -> tuple[str, ...]:
    """The programs that can run: those with torch alone, or all."""
    return (*TORCH, *LIBRARIES) if PYTHON else TORCH


def programs_of(name: str) -> list[str]:
    """The programs that a fault can be put into."""
    fault = FAULTS[name]
    marker = fault.marker.strip("\n")
    return [
        program
        for program in fault.programs or programs_here()
        if program in programs_here() and marker in source_of(program)
    ]


def plan(program: str, fault: str, seed: int) -> Trial:
    """A trial that follows from its names and the seed alone."""
    rng = random.Random(f"{program} {fault} {seed}")
    variables = {"SEED": str(rng.randrange(1000))}
    variables |= rng.choice(VARIANTS.get(program, ({},)))
    need: JobFault | None = FAULTS.get(fault)
    variables |= dict(need.variables if need else ())
    parallel = program in {"tensor_parallel", "megatron_tp", "dtensor_tp"}
    world = 4 if "HYBRID" in variables else rng.choice([2, 4] if parallel else [2, 2, 3])
    world = max(world, need.least_world if need else 2)
    if parallel:
        variables["TP"] = "2"
    bad = rng.randrange(world)
    others = [rank for rank in range(world) if rank != bad]
    return Trial(program, fault, world, bad, rng.choice(others), rng.randrange(2, 5), variables)


def conduct(trial: Trial, ranks: Ranks, data: str = "8") -> Result:
    """Runs the job of a trial under `doctor watch`, in this process."""
    outcomes: list[WatchOutcome] = []
    with tempfile.TemporaryDirectory() as folder:
        command = str(Path(folder, "command"))
        os.mkfifo(command + ".environ")
        os.mkfifo(command + ".code")
        variables = {**trial.variables, "OMP_NUM_THREADS": "1"}
        ranks.begin(source=trial.source, world=trial.world, variables=variables, command=command, limit=LIMIT)
        options = WatchOptions(on_hang="end", patience=PATIENCE, always_report=True, data=data)
        began = time.monotonic()
        code = run(
            ["/bin/sh", "-c", COMMAND, "job", command],
            dict(os.environ),
            options,
            lambda outcome: _keep(outcomes, outcome),
        )
        seconds = time.monotonic() - began
        answer = ranks.answer()
    findings = tuple(finding for outcome in outcomes for finding in findings_of(outcome))
    notes = tuple(note for outcome in outcomes for note in (outcome.run.smoke or {}).get("notes", ()))
    logs = tuple(answer["logs"])
    limited = bool(answer["limited"])
    return Result(trial, findings, notes, tuple(answer["codes"]), code, seconds, answer["ranks"], logs, limited)


def _keep(outcomes: list[WatchOutcome], outcome: WatchOutcome) -> int:
    outcomes.append(outcome)
    return 10 if list(findings_of(outcome)) else 0


def findings_of(outcome: WatchOutcome) -> Iterator[Finding]:
    """What the report of `doctor watch` says."""
    catalog = load_catalog([])
    report = evaluate_watch(outcome.run, choose_checks(catalog, outcome.checks), catalog, outcome.data)
    report = resolve_causes(report, catalog)
    failures = (outcome.run.smoke or {}).get("failures", ())
    ambiguous = any(AMBIGUOUS in failure.get("evidence", ()) for failure in failures)
    ties: dict[tuple[str, tuple[int, ...]], bool] = {}
    if outcome.data is not None:
        ties = {(defect.check, defect.ranks): defect.tie for defect in outcome.data.causes}
    for entry in report.outcomes:
        for finding in entry.findings:
            named = tuple(finding.values.get("ranks", ()))
            yield Finding(entry.check, named, ties.get((entry.check, named), ambiguous), str(finding))


def bare_numbers(trial: Trial, ranks: Ranks) -> list[Any]:
    """What the ranks compute without `doctor watch`."""
    answer = ranks.run(trial.source, trial.world, **trial.variables, OMP_NUM_THREADS="1")
    return answer["ranks"]


def trials(count: int, healthy: int, seed: int, only: str) -> list[Trial]:
    """Every fault in every program in turn until there are so many, then healthy jobs; sorted by program."""
    pairs = [(program, fault) for fault in FAULTS for program in programs_of(fault)]
    pairs = [pair for pair in pairs if only in " ".join(pair)]
    random.Random(seed).shuffle(pairs)
    programs = [program for program in programs_here() if only in program]
    planned = [plan(*pairs[number % len(pairs)], seed + number) for number in range(count if pairs else 0)]
    planned += [
        plan(programs[number % len(programs)], "", seed + number) for number in range(healthy if programs else 0)
    ]
    return sorted(planned, key=lambda trial: trial.program)


def main() -> None:
    """Conducts the trials, and prints what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--healthy", type=int)
    parser.add_argument("--only", default="", help="a part of the program's and the fault's names")
    parser.add_argument("--out", default="", help="a file for one JSON object a trial")
    options = parser.parse_args()
    healthy = options.count // 3 if options.healthy is None else options.healthy
    counts: Counter[str] = Counter()
    ranks: tuple[str, Ranks] | None = None
    for trial in trials(options.count, healthy, options.seed, options.only):
        if ranks is None or ranks[0] != trial.program:
            if ranks is not None:
                ranks[1].close()
            ranks = trial.program, Ranks(PYTHON or sys.executable, *LIBRARIES.get(trial.program, ()))
        result = conduct(trial, ranks[1])
        if any("EADDRINUSE" in log for log in result.logs):  # another program of this host took the port
            result = conduct(trial, ranks[1])
        equal = bool(trial.fault) or result.numbers == bare_numbers(trial, ranks[1])
        show(result, equal)
        counts.update([("fault " if trial.fault else "healthy ") + result.verdict])
        counts.update(["innocent accused"] * result.accused + ["other numbers"] * (not equal))
        if options.out:
            with Path(options.out).open("a") as file:
                file.write(
                    json.dumps(
                        {**result._asdict(), "verdict": result.verdict, "accused": result.accused, "equal": equal}
                    )
                    + "\n"
                )
    if ranks is not None:
        ranks[1].close()
    print(", ".join(f"{name}: {number}" for name, number in sorted(counts.items())))


def show(result: Result, equal: bool) -> None:
    """A line for each trial, and more for one that is not right."""
    trial = result.trial
    verdict = result.verdict + (", INNOCENT ACCUSED" if result.accused else "") + ("" if equal else ", OTHER NUMBERS")
    print(f"{trial.program:16} {trial.fault or 'healthy':22} {verdict} ({result.seconds:.1f} s)", flush=True)
    if verdict not in {"right"}:
        print(f"    {trial}\n    exit codes {result.codes}, {result.exit_code}")
        for finding in result.findings:
            print("   ", finding)
        for note in result.notes:
            print("    note:", note)
        if verdict != "one of":
            for log in result.logs[:2]:
                print("    log:", log[-700:].replace("\n", "\n        "))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
