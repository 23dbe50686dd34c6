"""Faults from outside in real smoke runs, on test hosts: signals, gdb, cgroups, nft, tc, LD_PRELOAD, a patched torch.

python -m tests.smoke.outside 30 --seed 1
python -m tests.smoke.outside 10 --seed 1 --only clean
python -m tests.smoke.outside 128 --seed 7 --first 50 --seconds 200

The last one goes through the later kinds in portions, and says with which trial to go on.

One host of 2, 3 or 5 is guilty. The interpreter of its ranks finds a sitecustomize module (`outside_hook`) that strikes
at a call, and writes a mark file when it does: a fault that did not strike is no trial.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

from tests.hosts.fleet import Fleet
from tests.smoke.campaign import busy
from tests.smoke.interpreter import visible_folders
from tests.smoke.outside_alike import ALIKE
from tests.smoke.outside_cases import CASES as EARLIER
from tests.smoke.outside_cases import NETWORK, Case
from tests.smoke.outside_errands import ERRANDS
from tests.smoke.outside_files import FILES
from tests.smoke.outside_further import FURTHER
from tests.smoke.outside_hosts import HOSTS
from tests.smoke.outside_invented import INVENTED
from tests.smoke.outside_later import LATER
from tests.smoke.outside_midrun import MIDRUN
from tests.smoke.outside_pairs import PAIRS
from tests.smoke.outside_settings import SETTINGS
from tests.smoke.outside_sockets import SOCKETS
from tests.smoke.outside_stack import STACK
from tests.smoke.outside_unforeseen import UNFORESEEN
from tests.smoke.outside_work import WORK

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDER = "/root/outside"
CASES = (*EARLIER, *INVENTED, *HOSTS, *PAIRS, *SETTINGS, *FILES, *WORK, *STACK, *ALIKE, *SOCKETS, *LATER, *MIDRUN)
CASES += (*UNFORESEEN, *ERRANDS, *FURTHER)
WRAPPER = f"{FOLDER}/python"
LEFT = """ls -d /dev/shm/*torch_* /tmp/*/pymp-* /tmp/*/*/pymp-* /tmp/pymp-* /var/tmp/pymp-* 2>/dev/null
for process in /proc/[0-9]*; do
    tr '\\0' '\\n' <$process/environ 2>/dev/null | grep -q '^DOCTOR_SMOKE=' || continue
    echo "$(cat $process/stat) $(tr '\\0' ' ' <$process/cmdline | head -c 80)"
done 2>/dev/null | grep -v ') [ZXx] ' || true"""
"""Prints what a run has left on a host: files of torch and of loader workers, and processes of its ranks."""
Verdict = Literal["right", "one of", "wrong", "missed", "not struck", "no effect"]


class Trial(NamedTuple):
    """One case in one run."""

    case: Case
    hosts: int
    ranks: int
    guilty: int
    """Number of the host."""
    local: int
    """Of the guilty rank on its host."""
    call: int


class Result(NamedTuple):
    """What became of a trial."""

    trial: Trial
    verdict: Verdict
    code: int
    errors: dict[str, list[str]]
    """Hosts by failed check of severity error; of warnings too where the case allows them."""
    seconds: float
    messages: tuple[str, ...] = ()
    """Of the findings, and the evidence of the first failure."""
    warnings: dict[str, list[str]] = {}
    """Hosts by failed check of severity warning, of a clean run: at most one in hundreds may have any."""
    innocent: tuple[str, ...] = ()
    """Hosts that are named though nothing was done to them."""
    left: tuple[str, ...] = ()
    """What is left behind, with its host."""


def trials(count: int, seed: int, only: tuple[str, ...] = (), sizes: tuple[int, ...] = (2, 3, 5)) -> Iterator[Trial]:
    """Seeded; every case as often as every other."""
    rng = Random(seed)
    cases = [case for case in CASES if not only or case.name in only]
    for number in range(count):
        case = cases[number % len(cases)]
        more = "slow" in "".join(case.checks) or case.beside
        hosts = rng.choice([size for size in sizes if size > 2 or not more] or [3])
        ranks = rng.choice([each for each in (1, 2, 3) if hosts * each <= 8])
        call = rng.randrange(3, 5 if case.early else 25)  # the smallest worlds make no more than thirty
        yield Trial(case, hosts, ranks, rng.randrange(hosts), rng.randrange(ranks), call)


def random_layouts(world: int, rng: Random) -> list[str]:
    """Options for one to three layouts that the world's size allows."""
    shapes = [(world // (tp * pp), tp, pp) for tp in (1, 2, 4, 8) for pp in (1, 2) if world % (tp * pp) == 0]
    arguments = []
    for _ in range(rng.randint(1, 3)):
        dp, tp, pp = rng.choice(shapes)
        extras = rng.choice(["", ",acc=2", ",recompute=1"] + [",zero=1"] * (tp == pp == 1))
        arguments += ["--layout", f"dp={dp},tp={tp},pp={pp}{extras}"]
    return [*arguments, "--seed", str(rng.randrange(1, 10_000))]


def found_hosts(report: dict[str, Any], severity: str) -> dict[str, list[str]]:
    """The hosts by failed check, of its findings of this severity."""
    found: dict[str, set[str]] = {}
    for outcome in report["outcomes"]:
        for finding in outcome["findings"]:
            if outcome["status"] == "failed" and finding["severity"] == severity:
                found.setdefault(outcome["check"], set()).update(finding["hosts"])
    return {check: sorted(named) for check, named in found.items()}


def strikes(trial: Trial) -> list[tuple[int, Case]]:
    """The numbers of the guilty hosts, and what is done to each."""
    case = trial.case
    return [(trial.guilty, case), *([((trial.guilty + 1) % trial.hosts, case.beside)] if case.beside else [])]


def prepare(fleet: Fleet, trial: Trial) -> list[str]:
    """Puts the interpreter's wrapper on every host, and the faults on the guilty ones; their names."""
    struck = strikes(trial)
    for number, case in struck:
        hosts = [host for place, host in enumerate(fleet.hosts[: trial.hosts]) if place not in dict(struck[1:])]
        prepare_case(fleet, trial._replace(case=case, guilty=number), hosts if number == trial.guilty else [])
    return [fleet.hosts[number] for number, _ in struck]


def prepare_case(fleet: Fleet, trial: Trial, others: list[str]) -> None:
    """One fault on its host, and the wrapper there and on these hosts."""
    case, guilty = trial.case, fleet.hosts[trial.guilty]
    hosts = list(dict.fromkeys([guilty, *others]))
    for host in hosts:
        environ = {"PYTHONPATH": FOLDER} if case.strikes(host == guilty) else {}
        if host == guilty and case.environ:
            environ |= case.environ
            if any(name.startswith("OUTSIDE_") for name in case.environ):
                environ |= {"LD_PRELOAD": str(compiled()), "OUTSIDE_MARK": f"{FOLDER}/struck"}
        message = " ".join(f"{name}={value}" for name, value in environ.items())
        lines = case.wrapper.replace("MARK", f"{FOLDER}/struck") if host == guilty or case.everywhere else ""
        fleet.write(host, WRAPPER, f'#!/bin/sh\n{lines}\nexec env {message} {sys.executable} "$@"\n', mode="755")
    if case.imports:
        for host in hosts if case.everywhere else [guilty]:
            imports = case.imports.replace("MARK", f"{FOLDER}/struck")
            fleet.write(host, f"{FOLDER}/sitecustomize.py", imports)
    if case.fault:
        first = trial.guilty * trial.ranks
        ranks = list(range(first, first + trial.ranks)) if case.whole_host else [first + trial.local]
        fault = {"every": 1 << 30, "call": trial.call, "ranks": ranks, **case.fault}
        fleet.write(guilty, f"{FOLDER}/fault.json", json.dumps(fault))
        fleet.write(guilty, f"{FOLDER}/sitecustomize.py", (HERE / "outside_hook.py").read_text("utf-8"))
    for host in (hosts if case.everywhere else [guilty]) if case.before else ():
        fleet.enter(host, case.before.replace("MARK", f"{FOLDER}/struck"), check=False)  # as without netem: not struck


def compiled() -> Path:
    """The library for LD_PRELOAD, where every test host sees it."""
    source = HERE / "outside_preload.c"
    library = Path(sys.prefix) / f"outside-{source.stat().st_mtime_ns}.so"
    if not library.exists():
        with tempfile.NamedTemporaryFile(dir=library.parent, suffix=".so", delete=False) as file:
            subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", file.name, str(source), "-ldl"], check=True)
            Path(file.name).rename(library)
    return library


def carry_out(fleet: Fleet, trial: Trial, *arguments: str) -> Result:
    """The run, and what its report is worth. The guilty host is made anew afterwards."""
    guilty, began = prepare(fleet, trial), time.monotonic()
    cases = [case for _, case in strikes(trial)]
    argv = [sys.executable, "-m", "doctor", "smoke", ",".join(fleet.hosts[: trial.hosts]), "-F", str(fleet.ssh_config)]
    argv += ["--python", WRAPPER, "--ranks-per-host", str(trial.ranks), "--json", *trial.case.arguments, *arguments]
    try:
        done = fleet.run(argv, cwd=ROOT, timeout=240)
        if not done.stdout.startswith("{"):
            raise SystemExit(f"{trial}: no report, exit {done.returncode}: {done.stderr[-3000:]}")
        report = json.loads(done.stdout)
        struck = any(has_struck(fleet, host, case) for host, case in zip(guilty, cases, strict=True))
        found = found_hosts(report, "warning")
        failed = {check: named for check, named in found.items() if any(check in case.checks for case in cases)}
        failed |= found_hosts(report, "error")
        verdict = judge(trial.case, guilty, failed, struck, report)
        warnings = found if trial.case.name == "clean" else {}
        messages = [finding["message"] for outcome in report["outcomes"] for finding in outcome["findings"]]
        messages += [
            f"{failure['kind']}, {failure['certainty']}, limit {failure['limit']} s, {failure['seconds']} s"
            for failure in (report["smoke"] or {}).get("failures", ())
        ]
        messages += [text for failure in (report["smoke"] or {}).get("failures", ()) for text in failure["evidence"]]
        take_back(fleet, guilty, cases)  # a frozen process ends when it is thawed
        left = left_behind(fleet, trial)
    finally:
        take_back(fleet, guilty, cases)
        fleet.renew(*fleet.hosts[: trial.hosts])
    named = {host for hosts in failed.values() for host in hosts}
    innocent = tuple(sorted(named if not trial.case.checks else named - set(guilty)))
    seconds = time.monotonic() - began
    return Result(trial, verdict, done.returncode, failed, seconds, tuple(messages), warnings, innocent, left)


def has_struck(fleet: Fleet, host: str, case: Case) -> bool:
    """Whether the case has done something to this host."""
    marks = case.fault or case.before or case.environ or case.wrapper or case.imports
    asked = [f"test -e {FOLDER}/struck && echo yes || true"] * bool(marks) + [case.binds] * bool(case.binds)
    return all(fleet.enter(host, question).stdout.strip() == "yes" for question in asked)


def take_back(fleet: Fleet, guilty: list[str], cases: list[Case]) -> None:
    for host, case in zip(guilty, cases, strict=True):
        fleet.enter(host, case.after or "true", check=False)


def left_behind(fleet: Fleet, trial: Trial) -> tuple[str, ...]:
    """What the hosts of a trial still have 20 s after it; an agent that hears nothing ends by itself after 15 s."""
    limit = time.monotonic() + 20
    while True:
        listed = {host: fleet.enter(host, LEFT).stdout.splitlines() for host in fleet.hosts[: trial.hosts]}
        left = tuple(f"{host}: {line}" for host, lines in listed.items() for line in lines)
        if not left or time.monotonic() > limit:
            return left
        time.sleep(0.2)


def judge(case: Case, guilty: list[str], failed: dict[str, list[str]], struck: bool, report: Any) -> Verdict:
    """Right: guilty hosts alone, for a reason of the case. One of: some are among those named, and said so."""
    if not struck:
        return "not struck"
    if not case.checks:
        return "wrong" if failed else "right"
    if not failed:
        return "missed" if case.must else "right"
    named = {host for hosts in failed.values() for host in hosts}
    is_known = all(check in (*case.checks, *(case.beside.checks if case.beside else ())) for check in failed)
    if named and named <= set(guilty) and is_known:
        return "right"
    if NETWORK[0] in failed and case.checks == NETWORK and guilty[0] in named and len(named) == 2:
        return "right"  # a pair that the guilty host is one of
    return "one of" if (named & set(guilty) or not named) and is_known else "wrong"


def main() -> int:
    """Many trials, and a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial, to go on with")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no trial later than this")
    parser.add_argument("--only", default="", help="these cases, with commas between them")
    parser.add_argument("--name", default="out", help="prefix of the hosts' names, where several run at once")
    parser.add_argument("--load", type=int, default=0, help="processes that keep CPUs busy meanwhile")
    requested = parser.parse_args()
    only = tuple(requested.only.split(",")) if requested.only else ()
    results: list[Result] = []
    began = time.monotonic()
    fleet = Fleet.up(5, {"*": {"shows": visible_folders()}}, name=requested.name)
    stack = contextlib.ExitStack()
    try:
        stack.enter_context(busy(requested.load))
        for number, trial in enumerate(trials(requested.count, requested.seed, only)):
            if number < requested.first:
                continue
            if time.monotonic() > began + requested.seconds:
                print(f"go on with --first {number}")
                break
            rng = Random(requested.seed * 10_000 + number)
            arguments = random_layouts(trial.hosts * trial.ranks, rng) if trial.case.name == "clean" else []
            results.append(carry_out(fleet, trial, *arguments))
            result = results[-1]
            where = f"{trial.hosts}x{trial.ranks}, host {trial.guilty + 1}, rank {trial.local}, call {trial.call}"
            text = f"{number:3} {result.verdict:10} {trial.case.name} ({where})"
            warned = f" warnings {result.warnings}" if result.warnings else ""
            print(f"{text}: {result.errors}{warned} exit {result.code}, {result.seconds:.0f} s", flush=True)
            for line in result.left:
                print(f"      left behind: {line}", flush=True)
            for message in result.messages if warned or result.verdict not in ("right", "not struck") else ():
                print(f"      {message[:400]}", flush=True)
    finally:
        stack.close()
        fleet.down()
    for verdict, times in Counter(row.verdict for row in results).most_common():
        print(f"{verdict:10} {times}")
    print(f"innocent hosts named: {sum(bool(row.innocent) and row.verdict == 'wrong' for row in results)} runs")
    print(f"warnings without a fault: {sum(bool(row.warnings) for row in results)} runs")
    print(f"left something behind: {sum(bool(row.left) for row in results)} runs")
    return 0 if all(row.verdict in ("right", "one of", "not struck") for row in results) else 1


if __name__ == "__main__":
    sys.exit(main())
