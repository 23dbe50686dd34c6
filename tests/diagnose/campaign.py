"""Real programs that fail, and their logs diagnosed.

python -m tests.diagnose.campaign N [--seed S] [--at-once K] [--ways plain,torchrun] [--ranks 5,8] [--keep DIR]

Each trial runs the gloo training of `tests/diagnose/program.py` with a random fault on a random rank, started as
separate processes, by torchrun, torch.multiprocessing, mpirun or srun, and compares the diagnosis with the fault. A
verdict "one of two" counts as right where the logs would be the same for the other rank (`Trial.is_symmetric`).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import datetime, timezone
from pathlib import Path

from tests.diagnose.trial import FAULTS, HEALTHY, PROGRAM, WAYS, Place, Trial


@contextlib.contextmanager
def places(names: tuple[str, ...]) -> Iterator[Place]:
    """What trials need to run: the process that forks, and for srun a Slurm, for dropped packets networks."""
    from tests.diagnose.networks import Networks
    from tests.diagnose.prefork import Prefork
    from tests.smoke.slurm import ABSENT_PROGRAMS, Slurm

    prefork = Prefork(PROGRAM)
    with contextlib.ExitStack() as stack:
        stack.callback(prefork.end)
        slurm = None
        if "srun" in names and not ABSENT_PROGRAMS:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp")))
            slurm = Slurm(folder)
            stack.callback(slurm.end)
        networks = Networks() if os.geteuid() == 0 else None
        if networks:
            stack.callback(networks.end)
        yield Place(prefork, slurm, networks)


def main() -> int:
    """Runs the trials and prints one line for each that is not right, and the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trials", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--until", metavar="HH:MM", default="", help="stop at this time of the day, UTC")
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--ranks", default="2,3,4", help="numbers of ranks, one of which each job has")
    parser.add_argument("--healthy", action="store_true", help="runs that end well, with trouble that they overcome")
    parser.add_argument("--keep", type=Path, help="keep the logs of the trials that are not right in this folder")
    arguments = parser.parse_args()
    ways = tuple(arguments.ways.split(","))
    sizes = [int(number) for number in arguments.ranks.split(",")]
    counts: Counter[str] = Counter()
    by_fault: Counter[tuple[str, str]] = Counter()
    # In this order: what is forked runs the exit functions of its parent, which remove the parent's folders.
    with places(ways) as place, tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        with ThreadPoolExecutor(arguments.at_once) as pool:
            seeds = range(arguments.seed, arguments.seed + arguments.trials)
            trials = {}
            for seed in seeds:
                trial = Trial(seed, folder, ways, HEALTHY if arguments.healthy else FAULTS, sizes)
                trials[pool.submit(trial.run, place)] = trial
            for number, future in enumerate(as_completed(trials), 1):
                trial, result = trials[future], future.result()
                counts[result] += 1
                by_fault[trial.fault, result] += 1
                if result in ("right", "one of two"):
                    trial.remove()
                else:
                    print(f"{trial.folder.name}: {result}", flush=True)
                if number % 100 == 0:
                    print(f"-- {number}: {_counted(counts)}", flush=True)
                if arguments.until and datetime.now(timezone.utc).strftime("%H:%M") >= arguments.until:
                    pool.shutdown(cancel_futures=True)
                    break
    for (fault, result), count in sorted(by_fault.items()):
        print(f"{fault}: {count} {result}")
    print(_counted(counts))
    decided = sum(count for result, count in counts.items() if result not in ("not struck", "cut"))
    right = counts["right"] + counts["one of two"]
    print(f"{100 * right / max(1, decided):.1f} % right: {counts['right']}, and {counts['one of two']} one of two")
    return 1 if counts["wrong"] or counts["accused"] else 0


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {result}" for result, count in counts.most_common())


if __name__ == "__main__":
    sys.exit(main())
