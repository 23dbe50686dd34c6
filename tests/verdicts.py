"""Verdicts on seeded evidence as one file, to compare two states of the code: what a change of a judge moves.

    python -m tests.verdicts FILE [OLDER]

Logs (the public ones, every sample of a signature, mixtures of samples), whole smoke runs in virtual time, and faults
of networks. No host, rank or clock takes part, so the same code writes the same file. With OLDER, a file of another
state, every case that has another verdict is printed; each state has its own samples.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

from doctor.diagnose.diagnosis import Diagnosis
from doctor.net.localize import localize
from doctor.smoke.hang.detector import Detector
from tests.diagnose.test_rules import SIGNATURES, logs
from tests.net.simulated import attempts, key_of, racks, single_faults
from tests.smoke import simulation
from tests.smoke.simulation import Simulation, faulty, fleet, layouts_of

LOGS = Path(__file__).parent / "diagnose" / "logs"
FAULTS = (
    simulation.extra, simulation.skip, simulation.swap, simulation.kill, simulation.fail, simulation.quit_early,
    simulation.stop, simulation.freeze, simulation.sleep, simulation.spin, simulation.starve_input,
)  # fmt: skip
MIXTURES, RUNS, FLEETS = 900, 220, 60
HEALTHY_EVERY = 5
"""One smoke run of so many has no fault."""


def main() -> int:
    """Writes the verdicts, and prints what differs from those of OLDER; 1 where something does."""
    path, *older = sys.argv[1:]
    verdicts = dict([*log_verdicts(), *run_verdicts(), *network_verdicts()])
    Path(path).write_text(json.dumps(verdicts, indent=0, sort_keys=True), "utf-8")
    before = json.loads(Path(older[0]).read_text("utf-8")) if older else verdicts
    different = [name for name in sorted(verdicts.keys() & before.keys()) if verdicts[name] != before[name]]
    for name in different:
        print(f"{name}\n  - {before[name]}\n  + {verdicts[name]}")
    print(f"{len(verdicts)} cases, {len(verdicts.keys() ^ before.keys())} only in one, {len(different)} differ")
    return int(bool(different))


def log_verdicts() -> Iterator[tuple[str, str]]:
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for path in sorted(file for file in LOGS.iterdir() if file.is_file()):
        groups[path.name.partition(".")[0]][path.name] = path.read_text("utf-8", "replace")
    for name, texts in groups.items():
        yield f"logs {name}", described(logs(**texts))
    samples = [
        (f"{name} {number}", sample.text)
        for name, signature in sorted(SIGNATURES.items())
        for number, sample in enumerate(signature.samples)
    ]
    for name, text in samples:
        yield f"sample {name}", described(logs(train=text + "\n"))
    random = Random(1)
    for _ in range(MIXTURES):
        chosen = random.sample(samples, random.choice((2, 2, 3, 4)))
        texts = {f"rank_{rank}": text + "\n" for rank, (_, text) in enumerate(chosen)}
        yield f"mixture {', '.join(name for name, _ in chosen)}", described(logs(**texts))


def described(diagnosis: Diagnosis) -> str:
    causes = [f"{cause.signature}, {cause.rule}, {cause.confidence}: {cause.summary}" for cause in diagnosis.causes]
    undecidable = [f"undecidable: {diagnosis.undecidable.reason}"] if diagnosis.undecidable else []
    return "; ".join([*causes, *undecidable, f"{len(diagnosis.waiting)} wait"])


def run_verdicts() -> Iterator[tuple[str, str]]:
    for number in range(RUNS):
        random = Random(number)
        world = random.choice((2, 4, 8))
        layouts = [layouts_of(world)[name] for name in random.sample(sorted(layouts_of(world)), 1)]
        groups, programs = fleet(world, layouts, number)
        culprit, fault = random.randrange(world), FAULTS[number % len(FAULTS)]
        if number % HEALTHY_EVERY:
            others = [key for members, key in groups.numbers.items() if culprit in members]
            place = random.randint(1, 3), random.randint(0, 30)
            programs[culprit] = faulty(programs[culprit], fault, *place, others, Random(number))
        delay, loss = random.choice((0.0, 0.05, 0.2)), random.choice((0.0, 0.1, 0.3))
        run = Simulation(world, groups, programs, Random(number), delay=delay, loss=loss)
        failure = run.watch(Detector(world), 30)
        name = fault.__name__ if number % HEALTHY_EVERY else "healthy"
        yield f"run {number} {name}", f"{failure.kind} {failure.culprit_ranks} {failure.stage}" if failure else ""


def network_verdicts() -> Iterator[tuple[str, str]]:
    for number in range(FLEETS):
        random = Random(number)
        hosts, ports = random.choice((4, 5, 8, 12, 16)), random.choice((1, 2, 4))
        groups = racks(hosts, 4)
        for place, fault in enumerate(single_faults(hosts, ports, groups, random)):
            causes = localize(attempts(hosts, ports, [fault]), groups).causes
            yield f"network {number} {place} {fault.kind}", "; ".join(str(key_of(cause)) for cause in causes)


if __name__ == "__main__":
    sys.exit(main())
