"""Many runs with faults, or without any, and a table of what became of them.

python -m tests.smoke.campaign faults 500 --seed 1
python -m tests.smoke.campaign clean 500 --seed 1 --load 20
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tests.smoke.faults import COMMON_STAGES, HARMLESS, KINDS, SHORT, Result, carry_out, trials, worth_showing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("faults", "clean"))
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first run, to go on with")
    parser.add_argument("--only", default="", help="these faults, with commas between them")
    parser.add_argument("--load", type=int, default=0, help="processes that keep CPUs busy meanwhile")
    requested = parser.parse_args()
    kinds = tuple(KINDS) if requested.what == "faults" else HARMLESS
    faults = tuple(requested.only.split(",")) if requested.only else kinds
    loads, results = [os.getloadavg()[0]], []
    with busy(requested.load):
        for number, trial in enumerate(trials(requested.count, requested.seed, faults)):
            if number < requested.first:
                continue
            result = carry_out(trial, SHORT if requested.what == "faults" else COMMON_STAGES)
            results.append(result)
            loads.append(os.getloadavg()[0])
            if not result.right:
                print(f"{number}: {worth_showing(result)}", flush=True)
            if len(results) % 50 == 0:
                print(f"{sum(row.right for row in results)} of {len(results)} right", flush=True)
    table(results)
    print(f"load {min(loads):.0f}..{max(loads):.0f} on {os.cpu_count()} CPUs, seed {requested.seed}")
    return 0 if all(result.right for result in results) else 1


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Processes that do nothing but take time."""
    burners = [multiprocessing.Process(target=burn, daemon=True) for _ in range(count)]
    for burner in burners:
        burner.start()
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()


def burn() -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        sum(range(100000))


def table(results: Iterable[Result]) -> None:
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.trial.fault, []).append(result)
        groups.setdefault("all", []).append(result)
    groups["all"] = groups.pop("all", [])
    print(f"{'fault':18} {'right':>9} {'median':>8} {'p90':>6} {'max':>6}   seconds from fault to verdict")
    for fault, rows in groups.items():
        right = f"{sum(row.right for row in rows)}/{len(rows)}"
        took = sorted(row.seconds for row in rows if row.seconds)
        output = (
            f"{statistics.median(took):8.2f} {took[int(len(took) * 0.9)]:6.2f} {took[-1]:6.2f}" if took else f"{'-':>8}"
        )
        print(f"{fault:18} {right:>9} {output}")
    totals = sorted(row.total for rows in groups.values() for row in rows)
    print(f"a run took {statistics.median(totals):.1f} s in the median, {totals[-1]:.1f} s at most")


if __name__ == "__main__":
    sys.exit(main())
