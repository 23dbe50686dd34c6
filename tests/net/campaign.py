"""Faults at random places of real test hosts, and clean runs: who is named, and who is accused wrongly.

    python -m tests.net.campaign [--runs 20] [--kinds "bridge,one way"] [--two 20] [--clean 200] [--hosts 5] [--seed 1]
        [--ipv6 alone] [--seconds 280 --done FILE]

As root. In pieces: after so many seconds no further run begins, and the next call with the same file goes on with what
it has not done. It prints one line for each kind: runs in which exactly the right hosts were named for the right cause,
of all; every other run with its findings. Exit code 1 where a run was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.hosts.fleet import Fleet
from tests.net.injected_faults import COMBINED, KINDS, OF_IPV4, InjectedFault, injected, place
from tests.net.ipv6_hosts import Ipv6Hosts

ROOT = Path(__file__).resolve().parents[2]


MODES = {"quick": ["--net", "quick"], "pairs": ["--no-speeds"], "speeds": ["--budget", "120"]}
"""Options of `doctor net`: some pairs of each host, all pairs, all pairs and their speeds."""


def tried(
    fleet: Fleet, mode: str, environ: Mapping[str, str] | None = None
) -> tuple[int, list[tuple[str, list[str], str]], str]:
    """Exit code, (check, hosts, message) of each finding, and what was said on stderr."""
    command = [sys.executable, "-m", "doctor", "net", ",".join(fleet.hosts), "-F", str(fleet.ssh_config), "--json"]
    command += TRIED_ALONE
    done = fleet.run([*command, *MODES[mode]], cwd=ROOT, timeout=400, env={**os.environ, **(environ or {})})
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return done.returncode, [], done.stderr[-300:]
    return done.returncode, findings_of(report), ""


TRIED_ALONE = ("--ignore", "firewall-blocks-job")
"""Nothing but what was tried: the rules that make the faults are not read."""
CLEAN_MODES = ("speeds", "quick", "pairs")


def findings_of(report: dict[str, Any]) -> list[tuple[str, list[str], str]]:
    """Check, hosts and message of each finding of a JSON report that does not follow from another one."""
    return [
        (outcome["check"], finding["hosts"], finding["message"])
        for outcome in report["outcomes"]
        for finding in outcome["findings"]
        if not finding.get("follows_from")
    ]


def wrong(faults: Sequence[InjectedFault], findings: Sequence[tuple[str, list[str], str]]) -> str:
    """What is missing or too much; the empty string where all is right."""
    kinds = [fault.kind for fault in faults if not any(fault.expected.is_met(*finding) for finding in findings)]
    surplus = [finding for finding in findings if not any(fault.expected.is_met(*finding) for fault in faults)]
    return "; ".join([*(f"not named: {kind}" for kind in kinds), *(f"accused: {item}" for item in surplus)])


class Tally:
    """Counts, and a line for each wrong run; with a file those of earlier pieces of the campaign too."""

    def __init__(self, file: Path | None = None, seconds: float = 1e9) -> None:
        self.file, self.end = file, time.monotonic() + seconds
        kept = json.loads(file.read_text()) if file and file.exists() else {}
        self.right: dict[str, int] = kept.get("right", {})
        self.runs: dict[str, int] = kept.get("runs", {})

    def is_due(self, name: str, number: int) -> bool:
        """The run of this number, from 0 on, was not done yet, and there is time to begin it."""
        return number >= self.runs.get(name, 0) and time.monotonic() < self.end

    def add(self, name: str, problem: str, where: str) -> None:
        self.runs[name] = self.runs.get(name, 0) + 1
        self.right[name] = self.right.get(name, 0) + (not problem)
        if self.file:
            self.file.write_text(json.dumps({"right": self.right, "runs": self.runs}))
        if problem:
            print(f"  WRONG {name} ({where}): {problem}", flush=True)

    def show(self, name: str, began: float) -> None:
        each = (time.monotonic() - began) / max(1, self.runs.get(name, 0))
        print(f"{name}: {self.right.get(name, 0)} of {self.runs.get(name, 0)} right, {each:.1f} s each", flush=True)

    def show_each(self, name: str, began: float, number: int) -> None:
        """Shows the count now and then, with the machine's load: a long campaign may be stopped."""
        if self.runs[name] % number == 0:
            print(f"  load {os.getloadavg()[0]:.1f}; ", end="")
            self.show(name, began)


def run_faults(fleet: Fleet, tally: Tally, name: str, kinds: Sequence[str], random: Random) -> None:
    """One run with a fault of each of these kinds, at hosts that are not the same."""
    free, faults = list(fleet.hosts), []
    for kind in kinds:
        fault = place(kind, fleet, random, free)
        faults.append(fault)
        free = [host for host in free if host not in fault.expected.hosts | fault.touched]
    where = " + ".join(
        f"{fault.kind}: {sorted(fault.expected.hosts)} {sorted(fault.nft.values())} {fault.expected.text}"
        for fault in faults
    )
    environ = {name: value for fault in faults for name, value in fault.environ.items()}
    with injected(fleet, *faults):
        code, findings, error = tried(fleet, "speeds" if any(fault.speeds for fault in faults) else "pairs", environ)
    tally.add(name, error or wrong(faults, findings), " ".join(where.split()) + f" exit {code}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the campaign. Returns 1 where a run was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.net.campaign", description=str(__doc__).splitlines()[0])
    parser.add_argument("--runs", type=int, default=20, help="of each kind of fault")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"some of: {', '.join(KINDS)}")
    parser.add_argument("--two", type=int, default=0, help="runs with two faults at once")
    parser.add_argument("--clean", type=int, default=0, help="runs without a fault, a third in each mode")
    parser.add_argument("--hosts", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ipv6", choices=("alone", "both"), help="the hosts have IPv6 addresses, alone or beside IPv4")
    parser.add_argument("--seconds", type=float, default=1e9, help="after these no further run begins")
    parser.add_argument("--done", type=Path, help="keeps the counts; runs that it has are not done again")
    options = parser.parse_args(arguments)
    tally, began = Tally(options.done, options.seconds), time.monotonic()
    fleet: Any = Fleet.up(options.hosts)
    kinds = [kind for kind in options.kinds.split(",") if kind and not (options.ipv6 and kind in OF_IPV4)]
    directory = tempfile.TemporaryDirectory()
    try:
        if options.ipv6:
            fleet = Ipv6Hosts(fleet, Path(directory.name), alone=options.ipv6 == "alone")
        for kind in kinds:
            began = time.monotonic()
            for number in (number_of_run for number_of_run in range(options.runs) if tally.is_due(kind, number_of_run)):
                run_faults(fleet, tally, kind, [kind], Random(f"{options.seed} {kind} {number}"))
            tally.show(kind, began)
        began = time.monotonic()
        for number in (
            number_of_run for number_of_run in range(options.two) if tally.is_due("two faults", number_of_run)
        ):
            random = Random(f"{options.seed} two {number}")
            run_faults(fleet, tally, "two faults", random.sample(COMBINED, 2), random)
        if options.two:
            tally.show("two faults", began)
        began = time.monotonic()
        for number in (number_of_run for number_of_run in range(options.clean) if tally.is_due("clean", number_of_run)):
            code, findings, error = tried(fleet, CLEAN_MODES[number % len(CLEAN_MODES)])
            surplus = wrong([], findings) or (f"exit code {code}" if code else "")
            tally.add("clean", error or surplus, f"exit {code}, load {os.getloadavg()[0]:.1f}")
            tally.show_each("clean", began, 10)
        if options.clean:
            tally.show("clean", began)
    finally:
        fleet.down()
        directory.cleanup()
    return 0 if tally.right == tally.runs else 1


if __name__ == "__main__":
    sys.exit(main())
