"""Seeded trials of faults and of healthy runs: ``python -m tests.watch.data_campaign 60``."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from doctor.watch.data.data_report import DataReport, analyze_records
from tests.watch.data_faults import FAULTS, patched

FOLDER = Path(__file__).parent


class Trial(NamedTuple):
    """One run: its fault (empty for none), its ranks, and what came of it."""

    fault: str
    world: int
    width: int
    bad: int
    report: DataReport

    @property
    def right(self) -> bool:
        """The first cause is of the right class, and it is this rank, or one of few with it among them."""
        if not self.fault:
            return not self.report.causes
        fault = FAULTS[self.fault]
        cause = self.report.causes[0] if self.report.causes else None
        if cause is None or cause.check not in fault.checks:
            return False
        return fault.everybody or (self.bad in cause.ranks and (cause.tie or len(cause.ranks) == 1))

    @property
    def accused(self) -> bool:
        """Somebody innocent is named for certain."""
        if self.fault and FAULTS[self.fault].everybody:
            return False
        return any(not cause.tie and set(cause.ranks) - {self.bad} for cause in self.report.causes)


class Ranks:
    """One process that has imported torch, and forks the ranks of each run."""

    def __init__(self, python: str = sys.executable, *libraries: str) -> None:
        """``libraries``: modules that the programs import, besides torch."""
        command = [python, str(FOLDER / "forked_ranks.py"), *libraries]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, source: str, world: int, folder: str = "", **variables: str) -> dict[str, list[Any]]:
        """The exit codes and the results of all ranks."""
        self.begin(source=source, world=world, folder=folder, variables=variables)
        return self.answer()

    def begin(self, **run: object) -> None:
        """Asks for a run."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(run) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, list[Any]]:
        """Waits until its ranks have ended: their exit codes, results and logs."""
        assert self.process.stdout
        answer: dict[str, list[Any]] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def source_of(program: str) -> str:
    """The text of a program."""
    return (FOLDER / "programs" / f"{program}.py").read_text("utf-8")


def run_trial(ranks: Ranks, fault: str, program: str, seed: int) -> Trial:
    """One run with a fault on a rank that the seed chooses; ``fault`` empty: a healthy one."""
    rng = random.Random(f"{fault} {program} {seed}")
    width = rng.choice([2, 3, 4]) if program == "tensor_parallel" else 1
    world = 2 * width if width > 1 else rng.choice([2, 3, 4, 6])
    bad = rng.randrange(world)
    pair = rng.choice([rank for rank in range(world) if rank != bad and (rank - bad) % width == 0])
    source = source_of(program)
    with tempfile.TemporaryDirectory() as folder:
        text = patched(fault, source, bad, pair) if fault else source
        variables = {"TP": str(width), "SEED": str(rng.randrange(1000))}
        if fault == "shard missing":
            variables["FULL"] = "1"
        answer = ranks.run(text, world, folder, **variables)
        if any(answer["codes"]):
            print(f"{fault}: exit codes {answer['codes']}")
        report = analyze_records([path.read_bytes() for path in Path(folder).glob("*.probe")])
    return Trial(fault, world, width, bad, report)


def main() -> None:
    """Trials of every fault in turn, then as many healthy runs as a third of them."""
    count = int(sys.argv[1])
    chosen = sys.argv[2:] or list(FAULTS)
    ranks = Ranks()
    trials = []
    for number in range(count):
        name = chosen[number % len(chosen)]
        trials.append(run_trial(ranks, name, FAULTS[name].program, number))
        show(trials[-1])
    for number in range(0 if sys.argv[2:] else count // 3):
        trials.append(run_trial(ranks, "", ("replicas", "tensor_parallel")[number % 2], number))
        show(trials[-1])
    ranks.close()
    right, accused = sum(trial.right for trial in trials), sum(trial.accused for trial in trials)
    print(f"{right} of {len(trials)} right, {accused} with an innocent accused")


def show(trial: Trial) -> None:
    """A line for each trial, and more for one that is not right."""
    print(trial.fault or "healthy", "right" if trial.right else "wrong", flush=True)
    if not trial.right or trial.accused:
        print(f"WRONG {trial.fault or 'healthy'}: world {trial.world}, width {trial.width}, culprit {trial.bad}")
        for cause in trial.report.causes:
            print(f"   {cause.check} {cause.kind} {cause.ranks} {'tie' * cause.tie}: {cause.text}")
        print("   unseen:", trial.report.unseen, "explained:", [entry[0].text for entry in trial.report.consequences])
        print("   notes:", [entry.text for entry in trial.report.notes])
        sys.stdout.flush()


if __name__ == "__main__":
    main()
