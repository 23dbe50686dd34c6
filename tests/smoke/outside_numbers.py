"""Wrong numbers of every kind in real smoke runs on test hosts: by bit, byte, element, row, rank, step and layout.

python -m tests.smoke.outside_numbers 100 --seed 1

What a collective brings to a rank, or what a product and its like compute there, is changed from one of its calls on:
once (of each rank in another place), now and then, or always. Right: the guilty host alone is named. A change below
what a run states as its tolerance is none: of a product, a bit of the lower half of a number.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from random import Random

from tests.hosts.fleet import Fleet
from tests.smoke.interpreter import visible_folders
from tests.smoke.outside import Result, Trial, carry_out, random_layouts
from tests.smoke.outside_cases import VALUES, Case

COLLECTIVES = (
    "all_reduce",
    "all_gather_single",
    "reduce_scatter_single",
    "all_to_all_single",
    "broadcast",
    "reduce",
    "recv",
)
COMPUTED = ("layer_norm", "__matmul__", "log_softmax")
HOW = ("bit", "byte", "element", "row", "shifted", "scaled")
FOUND = (*VALUES, "smoke-reference-differs", "smoke-parameters-not-broadcast")


def corruptions(count: int, seed: int) -> list[Trial]:
    """Seeded: every function as often as every other."""
    rng, trials = Random(seed), []
    for number in range(count):
        function = (*COLLECTIVES, *COMPUTED)[number % (len(COLLECTIVES) + len(COMPUTED))]
        damage = rng.choice(HOW if function in COLLECTIVES else ("element", "row", "shifted", "scaled"))
        if function == "log_softmax" and damage in ("element", "row"):
            damage = "scaled"  # of one token, which most often no loss is made of
        hosts = rng.choice([3, 4, 5])
        ranks = rng.choice([each for each in (1, 2) if hosts * each <= 8])
        every = rng.choice([1, 1, 3, 1 << 30])
        fault = {"kind": "corrupt", "function": function, "how": damage, "every": every, "bit": rng.randrange(8)}
        fault["place"] = rng.randrange(4096)
        name = f"{function} {damage} {'once' if every > 3 else f'every {every}'}"
        case = Case(name, FOUND, fault | {"apart": every > 3}, whole_host=rng.random() < 0.4)
        call = rng.randrange(
            1, {"all_reduce": 20, "layer_norm": 20, "log_softmax": 20, "__matmul__": 60, "reduce": 2}.get(function, 4)
        )
        guilty, local = rng.randrange(hosts), rng.randrange(ranks)
        if function == "reduce":  # on CPUs the first and the last rank alone are its roots; no other gets a result
            guilty, local = (0, 0) if guilty < hosts / 2 else (hosts - 1, ranks - 1)
        trials.append(Trial(case, hosts, ranks, guilty, local, call))
    return trials


def given_corruptions(count: int, seed: int) -> list[Trial]:
    """Of what a rank gives to a collective: once, in its own memory, before it is sent. Seeded."""
    rng, trials = Random(seed), []
    for number in range(count):
        function = ("send", "all_gather_single", "reduce_scatter_single", "all_to_all_single")[number % 4]
        damage, place = rng.choice(HOW), rng.randrange(4096)
        fault = {"kind": "corrupt", "function": function, "how": damage, "bit": rng.randrange(8), "place": place}
        case = Case(f"given to {function} {damage} once", FOUND, fault | {"given": True, "every": 1 << 30})
        hosts, ranks = rng.choice([(2, 1), (3, 1), (4, 1), (5, 1), (2, 2), (3, 2), (4, 2)])
        trials.append(Trial(case, hosts, ranks, rng.randrange(hosts), rng.randrange(ranks), rng.randrange(1, 5)))
    return trials


PLACES = (
    ("Batch", "__init__", "inputs", "behind"),
    ("Batch", "__init__", "targets", "behind"),
    ("Batch", "__init__", "selectors", "behind"),
    ("Model", "reduce_gradient", "gradient", "before"),
    ("Model", "reduce_gradient", "result", "behind"),
    ("Model", "update", "flat", "behind"),
    ("Model", "forward_backward", "flat", "before"),
    ("Model", "loss", "result", "behind"),
    ("Model", "layer", "result", "behind"),
    ("Model", "broadcast_params", "flat", "behind"),
    ("Model", "tp_enter_backward", "result", "behind"),
)
"""What a rank of a layout holds: class, method, what is changed, and when. Of the reference run: its rows alone."""


def held_corruptions(count: int, seed: int) -> list[Trial]:
    """Of what a rank holds or has computed, and of what it gives to sums. Seeded."""
    rng, trials = Random(seed), []
    for number in range(count):
        hosts, ranks = rng.choice([(2, 2), (3, 1), (3, 2), (4, 1), (4, 2), (5, 1)])
        how, every, place = rng.choice(["bit", "byte", "element", "row", "scaled"]), rng.choice([1, 3, 1 << 30]), 0
        place = 4 * rng.randrange(4096) + 3 if how in ("bit", "byte") else rng.randrange(4096)  # of a number's top byte
        # The sixth bit of a number's top byte makes a large number of 0 also; lower ones leave next to nothing.
        fault = {"kind": "corrupt", "how": how, "every": every, "place": place, "bit": 6}
        if number % 4 == 3:
            fault |= {"function": rng.choice(["all_reduce", "send"]), "given": True}
            name, most = f"given to {fault['function']}", 6
        else:
            owner, method, what, when = PLACES[(number - number // 4) % len(PLACES)]
            fault |= {"owner": owner, "method": method, "of": what, "when": when, "function": method}
            name, most = f"{what} {when} {method}", 2 if method == "broadcast_params" else 5
        case = Case(f"{name} {how} {'once' if every > 3 else f'every {every}'}", FOUND, fault)
        trials.append(Trial(case, hosts, ranks, rng.randrange(hosts), rng.randrange(ranks), rng.randrange(1, most)))
    return trials


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial, to go on with")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no trial later than this")
    parser.add_argument("--name", default="num", help="prefix of the hosts' names, where several run at once")
    requested = parser.parse_args()
    results: list[Result] = []
    began = time.monotonic()
    fleet = Fleet.up(5, {"*": {"shows": visible_folders()}}, name=requested.name)
    try:
        for number, trial in enumerate(corruptions(requested.count, requested.seed)):
            if number < requested.first:
                continue
            if time.monotonic() > began + requested.seconds:
                print(f"go on with --first {number}")
                break
            rng = Random(requested.seed * 10_000 + number)
            arguments = random_layouts(trial.hosts * trial.ranks, rng) if rng.random() < 0.5 else []
            result = carry_out(fleet, trial, *arguments)
            results.append(result)
            where = f"{trial.hosts}x{trial.ranks}, host {trial.guilty + 1}, rank {trial.local}, call {trial.call}"
            print(f"{number:3} {result.verdict:10} {trial.case.name} ({where}) {' '.join(arguments)}: "
                  f"{result.errors} exit {result.code}, {result.seconds:.0f} s", flush=True)  # fmt: skip
            for message in result.messages if result.verdict not in ("right", "not struck") else ():
                print(f"      {message[:400]}", flush=True)
    finally:
        fleet.down()
    for verdict, times in Counter(row.verdict for row in results).most_common():
        print(f"{verdict:10} {times}")
    return 0 if all(row.verdict in ("right", "one of", "not struck") for row in results) else 1


if __name__ == "__main__":
    sys.exit(main())
