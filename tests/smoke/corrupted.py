"""Wrong numbers in real ranks of this machine that stand for hosts, and what the checks make of them.

python -m tests.smoke.corrupted 200 --seed 1
python -m tests.smoke.corrupted 24 --seed 1 --given
python -m tests.smoke.corrupted 30 --seed 1 --layouts random
python -m tests.smoke.corrupted 60 --seed 1 --held

The same corruptions as in `tests.smoke.outside_numbers`, without hosts and an import of torch for each: the judge of
the values is tried. Right: the guilty host alone is named.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from doctor.analysis.causes import resolve_causes
from doctor.engine.evaluate import evaluate_check
from doctor.engine.result import Report, Severity
from doctor.smoke.model import Layout, SmokeRun
from doctor.smoke.plan import default_layouts
from tests.checks.run_check import check
from tests.smoke.judged_ranks import facts_of
from tests.smoke.outside import Trial, Verdict, judge
from tests.smoke.outside_numbers import FOUND, corruptions, given_corruptions, held_corruptions
from tests.smoke.ranks import Ranks

NOTHING = 2e-6
"""As a share: healthy ranks of other layouts are as far apart."""
STAGES = ("collectives", "pairs", "training", "learning")
HARMLESS = ("right", "not struck", "no effect")
STRUCK = """
import types as _types

_hook = _types.ModuleType("hook")
_hook.__file__ = {folder!r} + "/hook.py"
exec({hook!r}, _hook.__dict__)
_hook_run = run_rank


def run_rank(orders, rank, events, recorder):
    if "owner" in {fault!r}:
        _hook.spoil_method(globals()[{fault!r}["owner"]], {fault!r})
    else:
        _hook.wrap(torch.distributed, {fault!r})
    return _hook_run(orders, rank, events, recorder)
"""


class Judged(NamedTuple):
    """What became of one corruption."""

    verdict: Verdict
    failed: dict[str, list[str]]
    layouts: str
    seconds: float
    messages: tuple[str, ...]


def layouts_of(world: int, rng: Random) -> list[Layout]:
    """Those of the plan, or a stranger one beside them."""
    chosen = list(default_layouts(world))
    extra = [Layout(dp=world, zero=True), Layout(dp=world, accumulate=2), Layout(pp=world), Layout(dp=world)]
    return [*chosen, rng.choice(extra)] if rng.random() < 0.5 else chosen


def random_layouts(world: int, rng: Random) -> list[Layout]:
    """One to three that the world's size allows, with any of their options."""
    shapes = [(world // (tp * pp), tp, pp) for tp in (1, 2, 4, 8) for pp in range(1, 9) if world % (tp * pp) == 0]
    layouts = []
    for dp, tp, pp in rng.choices(shapes, k=rng.randint(1, 3)):
        options: list[dict[str, Any]] = [{}, {"accumulate": 2}, {"accumulate": 4}, {"recompute": True}]
        options += [{"zero": True} for _ in range(tp == pp == 1)]
        layouts.append(Layout(dp=dp, tp=tp, pp=pp, **rng.choice(options)))
    return list(dict.fromkeys(layouts))


def carry_out(
    trial: Trial, rng: Random, chosen: Callable[[int, Random], list[Layout]] = layouts_of, learn_steps: int = 10
) -> Judged:
    """One run of real ranks with the corruption, judged by all checks of values."""
    began, case = time.monotonic(), trial.case
    hosts = [f"w{number}" for number in range(trial.hosts) for _ in range(trial.ranks)]
    first = trial.guilty * trial.ranks
    guilty = list(range(first, first + trial.ranks)) if case.whole_host else [first + trial.local]
    fault = {"every": 1 << 30, "call": trial.call, "ranks": guilty, **case.fault}
    hook = (Path(__file__).parent / "outside_hook.py").read_text("utf-8")
    layouts = chosen(len(hosts), rng)
    with tempfile.TemporaryDirectory() as folder:
        text = STRUCK.format(folder=folder, hook=hook, fault=fault)
        plan: dict[str, Any] = {
            "layouts": layouts,
            "hosts": hosts,
            "seed": rng.randrange(1, 9999),
            "learn_steps": learn_steps,
        }
        ranks = Ranks(len(hosts), STAGES, text, seconds=200, **plan)
        struck = Path(folder, "struck").exists()
    outcomes = outcomes_of(ranks, hosts)
    failed = {name: sorted({host for finding in some for host in finding[0]}) for name, some in outcomes.items()}
    verdict = judge(case, [f"w{trial.guilty}"], failed, struck, None)
    if verdict == "missed" and has_numbers_of(ranks, Ranks(len(hosts), STAGES, seconds=200, **plan)):
        verdict = "no effect"
    messages = tuple(text for some in outcomes.values() for _, text in some)
    errors = tuple(str(event)[:300] for event in ranks.of("error"))
    names = " ".join(layout.name for layout in layouts)
    return Judged(verdict, failed, names, time.monotonic() - began, messages + errors)


def has_numbers_of(ranks: Ranks, sound: Ranks) -> bool:
    """Whether all losses and norms are those of the same run without the corruption, but for a few last bits.

    What is normed behind a change, or looked at by nothing, comes out as it was.
    """
    ours, theirs = (
        {
            (name, event["rank"], event.get("layout"), event["step"], field): event.get(field)
            for name in ("step", "learn")
            for event in run.of(name)
            for field in ("loss", "grad_local", "grad")
        }
        for run in (ranks, sound)
    )
    pairs = [(number, theirs.get(place)) for place, number in ours.items()]
    return ours.keys() == theirs.keys() and all(
        one == other or (one is not None and other is not None and math.isclose(one, other, rel_tol=NOTHING))
        for one, other in pairs
    )


def outcomes_of(ranks: Ranks, hosts: list[str]) -> dict[str, list[tuple[tuple[str, ...], str]]]:
    """By failed check of severity error: hosts and text of each finding that no other explains."""
    (book, run), names = facts_of(ranks, hosts), tuple(dict.fromkeys(hosts))
    checks = [check(name.replace("-", "_")) for name in FOUND]
    some = tuple(evaluate_check(each, names, book, {SmokeRun: run}) for each in checks)
    return {
        outcome.check: [(finding.hosts, str(finding)) for finding in outcome.findings]
        for outcome in resolve_causes(Report("", names, some), checks).outcomes
        if outcome.findings and outcome.found_severity is Severity.ERROR
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first corruption, to go on with")
    parser.add_argument("--given", action="store_true", help="of what a rank gives to a collective")
    parser.add_argument("--held", action="store_true", help="of what a rank holds: rows, gradients, parameters, losses")
    parser.add_argument("--layouts", choices=("usual", "random"), default="usual")
    parser.add_argument("--steps", type=int, default=10, help="of the learning stage")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin none later than this")
    requested = parser.parse_args()
    verdicts: Counter[str] = Counter()
    began = time.monotonic()
    made = given_corruptions if requested.given else held_corruptions if requested.held else corruptions
    chosen = random_layouts if requested.layouts == "random" else layouts_of
    for number, trial in enumerate(made(requested.count, requested.seed)):
        if number < requested.first:
            continue
        if time.monotonic() > began + requested.seconds:
            print(f"go on with --first {number}")
            break
        judged = carry_out(trial, Random(requested.seed * 10_000 + number), chosen, requested.steps)
        verdicts[judged.verdict] += 1
        where = f"{trial.hosts}x{trial.ranks}, host w{trial.guilty}, rank {trial.local}, call {trial.call}"
        whole = " whole host" * trial.case.whole_host
        print(f"{number:3} {judged.verdict:10} {trial.case.name}{whole} ({where}; {judged.layouts}): "
              f"{judged.failed}, {judged.seconds:.0f} s", flush=True)  # fmt: skip
        for text in judged.messages if judged.verdict not in HARMLESS else ():
            print(f"      {text[:400]}", flush=True)
    print(json.dumps(verdicts))
    return 0 if verdicts.keys() <= {*HARMLESS, "one of"} else 1


if __name__ == "__main__":
    sys.exit(main())
