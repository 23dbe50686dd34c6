"""Faults from outside in real smoke runs, on test hosts: signals, gdb, cgroups, nft, tc, LD_PRELOAD, a patched torch.

python -m tests.smoke.outside 30 --seed 1
python -m tests.smoke.outside 10 --seed 1 --only clean

One host of 2, 3 or 5 is guilty. The interpreter of its ranks finds a sitecustomize module (`outside_hook`) that strikes
at a call, and writes a mark file when it does: a fault that did not strike is no trial.
"""

from __future__ import annotations

import argparse
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

from tests.faults.kernel import grouped
from tests.hosts.fleet import Fleet
from tests.smoke.interpreter import visible_folders

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDER = "/root/outside"
WRAPPER = f"{FOLDER}/python"
SIGNALS = ("SIGSTOP", "SIGKILL", "SIGSEGV", "SIGABRT", "SIGTERM", "SIGINT", "SIGBUS")
Verdict = Literal["right", "one of", "wrong", "missed", "not struck"]


class Case(NamedTuple):
    """A kind of fault: what is done at a call of a guilty rank, and what a right report may say."""

    name: str
    checks: tuple[str, ...]
    """Empty: nothing may be reported as an error."""
    fault: dict[str, Any] = {}
    before: str = ""
    """Run on the guilty host before the run; ``MARK`` is the mark file."""
    environ: dict[str, str] = {}
    """Of the ranks of the guilty host."""
    whole_host: bool = False
    """All ranks of the host are struck, not one."""
    must: bool = True
    """False: the fault may go unnoticed, as the job itself may not suffer from it."""
    early: bool = False
    """The fault strikes at one of the first calls, so that most of the run has it."""
    everywhere: bool = False
    """``before`` is run on all hosts, and ``wrapper`` is that of all."""
    wrapper: str = ""
    """Shell lines before the interpreter of the ranks."""
    imports: str = ""
    """Python that the interpreter runs as its sitecustomize module."""
    arguments: tuple[str, ...] = ()
    """Of doctor smoke."""


def command(text: str) -> dict[str, Any]:
    """Run once, in a shell of the guilty host, by a rank that goes on afterwards."""
    return {"kind": "command", "command": text}


def nft(*rules: str) -> str:
    """A ruleset with these rules, for what comes in and goes out alike."""
    chains = "".join(
        f"chain {hook} {{ type filter hook {hook} priority 0; {'; '.join(rules)}; }}; " for hook in ("input", "output")
    )
    return f"nft 'table inet outside {{ {chains}}}'"


DIED, STOPPED, NETWORK = ("smoke-rank-died",), ("smoke-rank-stopped",), ("smoke-network-silent", "smoke-host-silent")
VALUES = (
    "smoke-collective-wrong",
    "smoke-gradient-not-synchronised",
    "smoke-parameters-diverge",
    "smoke-loss-differs",
    "smoke-learning-differs",
    "smoke-not-finite",
    "smoke-gradient-summed",
    "smoke-loss-stalled",
)
HANGS = ("smoke-rank-left", "smoke-rank-blocked", "smoke-collective-mismatched", "smoke-collective-order")

PAUSES = "for i in 1 2 3; do kill -STOP PID; sleep 0.05; kill -CONT PID; sleep 0.5; done & sleep 0.01"
NO_SSH = nft("tcp dport 22 drop", "tcp sport 22 drop") + " && (sleep 4; nft flush ruleset) >/dev/null 2>&1 &"
NO_DATA = nft("tcp dport 22 accept", "tcp sport 22 accept", "meta l4proto tcp drop")
SMALL_ONLY = nft("tcp dport 22 accept", "tcp sport 22 accept", "meta length 1000-65535 drop")
RESETS = nft("tcp dport 22 accept", "tcp sport 22 accept", "numgen random mod 300 0 reject with tcp reset")
FEW = nft("tcp dport 22 accept", "tcp sport 22 accept", "ct state new ct count over 3 drop")
SLOW = "tc qdisc add dev eth0 root tbf rate 2mbit burst 32kb latency 400ms && touch MARK"
HELD_BACK = grouped("cpu", "cpu.cfs_quota_us", "20000", "cpu.max=20000 100000")[0] + "\ntouch MARK"
"""A fifth of a CPU for all sessions of the host."""
TENTH = grouped("cpu", "cpu.cfs_quota_us", "10000", "cpu.max=10000 100000")[0] + "\ntouch MARK"
TWENTIETH = """exec >/dev/null 2>&1
mount -t tmpfs none /sys/fs/cgroup && cd /sys/fs/cgroup
if grep -q ':memory:' /proc/self/cgroup; then
    mkdir cpu && mount -t cgroup -o cpu none cpu && cd cpu && file=cpu.cfs_quota_us quota=5000
else
    mount -t cgroup2 none . && cd . && echo +cpu >cgroup.subtree_control && file=cpu.max quota='5000 100000'
fi
find . -maxdepth 1 -name 'doctor-*' -mmin +10 -exec rmdir {} + || true
group=$(mktemp -d doctor-XXXXXX) && echo "$quota" >$group/$file && echo PID >$group/cgroup.procs"""
"""A twentieth of a CPU for one rank."""
SLOWED = ("smoke-rank-slow", "smoke-budget-spent")
FREEZE = """exec >/dev/null 2>&1
mkdir -p /run/freezing
if grep -q ':freezer:' /proc/self/cgroup; then
    mount -t cgroup -o freezer none /run/freezing && file=freezer.state word=FROZEN
else
    mount -t cgroup2 none /run/freezing && file=cgroup.freeze word=1
fi
cd /run/freezing && group=$(mktemp -d doctor-XXXXXX) && echo PID >$group/cgroup.procs && echo $word >$group/$file
(sleep 60; echo THAWED >$group/freezer.state || echo 0 >$group/cgroup.freeze) &
cd / && umount -l /run/freezing"""
"""Of one rank; what shows it is not mounted when it is looked for."""
CABLE = "(ip link set eth0 down; sleep 3; ip link set eth0 up) >/dev/null 2>&1 & sleep 0.01"
NEW_DATA = nft("tcp dport 22 accept", "tcp sport 22 accept", "ct state new tcp dport 1024-65535 drop")
SLOW_IMPORT = """
import builtins, time
plain = builtins.__import__
def importing(name, *rest, **more):
    if name == MODULE and importing.waits:
        importing.waits = False
        open("MARK", "w").close()
        time.sleep(SECONDS)
    return plain(name, *rest, **more)
importing.waits = True
builtins.__import__ = importing
"""


def slow_import(module: str, seconds: float) -> str:
    return SLOW_IMPORT.replace("MODULE", repr(module)).replace("SECONDS", str(seconds))


DEBUGGED = "gdb -q -p PID -ex 'shell sleep 60' </dev/null >/dev/null 2>&1 & sleep 0.01"

CASES: tuple[Case, ...] = (
    Case("clean", ()),
    *(Case(name, STOPPED if name == "SIGSTOP" else DIED, {"kind": "signal", "signal": name}) for name in SIGNALS),
    Case("gdb", STOPPED, command(DEBUGGED)),
    Case("renice", (), command("renice 19 PID >/dev/null")),
    Case("short stops", (), command(PAUSES)),
    Case("ssh-drop-4s", (), command(NO_SSH)),
    Case("black hole", NETWORK, command(NO_DATA)),
    Case("large lost", NETWORK, command(SMALL_ONLY)),
    Case("link down", NETWORK, command("ip link set eth0 down")),
    Case("tbf 2mbit", ("smoke-host-slow", "smoke-budget-spent"), before=SLOW),
    Case("ar-skip", HANGS, {"kind": "skip", "every": 7}),
    Case("ar-twice", (*HANGS, "smoke-rank-died", *VALUES), {"kind": "twice"}),
    Case("ar-bitflip", VALUES, {"kind": "bitflip", "every": 1}, whole_host=True),
    Case("ar-bitflip-rank", VALUES, {"kind": "bitflip", "every": 1}),
    Case("ar-wrong", VALUES, {"kind": "wrong", "every": 1}),
    Case("ar-wrong-host", VALUES, {"kind": "wrong", "every": 1}, whole_host=True),
    Case("pairs-garbage", VALUES[:1], {"kind": "garbage", "every": 1}),
    Case("layernorm-off", (*VALUES, "smoke-reference-differs"), {"kind": "layernorm", "every": 7}),
    Case("ar-sleeps", HANGS, {"kind": "late", "seconds": 1000}),
    Case("ar-spins", HANGS, {"kind": "spin"}),
    Case("reset now and then", (*NETWORK, "smoke-rank-never-joined"), before=RESETS + " && touch MARK", must=False),
    Case("few connections", (*NETWORK, "smoke-rank-never-joined"), before=FEW + " && touch MARK", must=False),
    Case("ar-late", (), {"kind": "late", "seconds": 0.3}),
    Case("ar-pauses", (), {"kind": "late", "seconds": 2.0}),
    Case("ar-prints", (), {"kind": "prints", "megabytes": 40}),
    Case("quota of a tenth", SLOWED, before=TENTH, whole_host=True),
    Case("quota", SLOWED, before=HELD_BACK, whole_host=True, must=False),
    Case("rank's twentieth", SLOWED, command(TWENTIETH), early=True),
    Case("all quotas", (), before=HELD_BACK, everywhere=True),
    Case("onednn-sse41", (), before="touch MARK", environ={"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}),
    Case("aten-default", (), before="touch MARK", environ={"ATEN_CPU_CAPABILITY": "default"}),
    Case("send-delay", ("smoke-host-slow", "smoke-rank-slow"), environ={"OUTSIDE_DELAY_MS": "5"}),
    Case("send-flip", VALUES, environ={"OUTSIDE_FLIP": "40"}, must=False),
    Case(
        "stopped at start", (*STOPPED, "smoke-rank-not-started"), wrapper="touch MARK; kill -STOP $$", whole_host=True
    ),
    Case("ends at start", ("smoke-rank-not-started",), imports="import os; open('MARK', 'w').close(); os._exit(0)"),
    Case("ends well", ("smoke-rank-left", "smoke-rank-died"), {"kind": "exit"}),
    Case("frozen unseen", STOPPED, command(FREEZE)),
    Case("cable out 3 s", NETWORK, command(CABLE), must=False),
    Case("no new data", (*NETWORK, "smoke-rank-never-joined"), before=NEW_DATA + " && touch MARK"),
    Case("import of 27 s", (), imports=slow_import("torch", 27)),
    Case("native import of 26 s", (), imports=slow_import("torch.distributed.fsdp", 26), arguments=("--native",)),
    Case("idle priority", (), wrapper="touch MARK; chrt -i -p 0 $$", everywhere=True),
    Case("within tolerance", (), {"kind": "layernorm", "every": 1, "call": 1, "factor": 1 + 8e-7}, whole_host=True),
    Case(
        "loss 1 % off",
        (*VALUES, "smoke-reference-differs"),
        {"kind": "corrupt", "function": "log_softmax", "how": "scaled", "place": 0, "every": 1},
        early=True,
    ),
)


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


def trials(count: int, seed: int, only: tuple[str, ...] = (), sizes: tuple[int, ...] = (2, 3, 5)) -> Iterator[Trial]:
    """Seeded; every case as often as every other."""
    rng = Random(seed)
    cases = [case for case in CASES if not only or case.name in only]
    for number in range(count):
        case = cases[number % len(cases)]
        hosts = rng.choice([size for size in sizes if size > 2 or "slow" not in "".join(case.checks)] or [3])
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


def prepare(fleet: Fleet, trial: Trial) -> str:
    """Puts the interpreter's wrapper on every host, and the fault on the guilty one; its name."""
    hosts, case = fleet.hosts[: trial.hosts], trial.case
    guilty = hosts[trial.guilty]
    for host in hosts:
        environ = {"PYTHONPATH": FOLDER} if (case.fault or case.imports) and host == guilty else {}
        if host == guilty and case.environ:
            environ |= case.environ
            if any(name.startswith("OUTSIDE_") for name in case.environ):
                environ |= {"LD_PRELOAD": str(compiled()), "OUTSIDE_MARK": f"{FOLDER}/struck"}
        message = " ".join(f"{name}={value}" for name, value in environ.items())
        lines = case.wrapper.replace("MARK", f"{FOLDER}/struck") if host == guilty or case.everywhere else ""
        fleet.write(host, WRAPPER, f'#!/bin/sh\n{lines}\nexec env {message} {sys.executable} "$@"\n', mode="755")
    if case.imports:
        imports = case.imports.replace("MARK", f"{FOLDER}/struck")
        fleet.write(guilty, f"{FOLDER}/sitecustomize.py", imports)
    if case.fault:
        first = trial.guilty * trial.ranks
        ranks = list(range(first, first + trial.ranks)) if case.whole_host else [first + trial.local]
        fault = {"every": 1 << 30, "call": trial.call, "ranks": ranks, **case.fault}
        fleet.write(guilty, f"{FOLDER}/fault.json", json.dumps(fault))
        fleet.write(guilty, f"{FOLDER}/sitecustomize.py", (HERE / "outside_hook.py").read_text("utf-8"))
    for host in (hosts if case.everywhere else [guilty]) if case.before else ():
        fleet.enter(host, case.before.replace("MARK", f"{FOLDER}/struck"))
    return guilty


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
    argv = [sys.executable, "-m", "doctor", "smoke", ",".join(fleet.hosts[: trial.hosts]), "-F", str(fleet.ssh_config)]
    argv += ["--python", WRAPPER, "--ranks-per-host", str(trial.ranks), "--json", *trial.case.arguments, *arguments]
    done = fleet.run(argv, cwd=ROOT, timeout=240)
    try:
        report = json.loads(done.stdout)
        case = trial.case
        struck = not (case.fault or case.before or case.environ or case.wrapper or case.imports)
        struck = struck or fleet.enter(guilty, f"test -e {FOLDER}/struck && echo yes || true").stdout.strip() == "yes"
        failed = {
            outcome["check"]: sorted({host for finding in outcome["findings"] for host in finding["hosts"]})
            for outcome in report["outcomes"]
            if outcome["status"] == "failed"
            and (outcome["severity"] == "error" or outcome["check"] in trial.case.checks)
        }
        verdict = judge(trial.case, guilty, failed, struck, report)
        warnings = {
            outcome["check"]: sorted({host for finding in outcome["findings"] for host in finding["hosts"]})
            for outcome in report["outcomes"]
            if outcome["status"] == "failed" and outcome["severity"] == "warning" and trial.case.name == "clean"
        }
        messages = [finding["message"] for outcome in report["outcomes"] for finding in outcome["findings"]]
        messages += [
            f"{failure['kind']}, {failure['certainty']}, limit {failure['limit']} s, {failure['seconds']} s"
            for failure in (report["smoke"] or {}).get("failures", ())
        ]
        messages += [text for failure in (report["smoke"] or {}).get("failures", ()) for text in failure["evidence"]]
    finally:
        fleet.renew(*fleet.hosts[: trial.hosts])
    return Result(trial, verdict, done.returncode, failed, time.monotonic() - began, tuple(messages), warnings)


def judge(case: Case, guilty: str, failed: dict[str, list[str]], struck: bool, report: Any) -> Verdict:
    """Right: the guilty host alone, for a reason of the case. One of: it is among those named, and said so."""
    if not struck:
        return "not struck"
    if not case.checks:
        return "wrong" if failed else "right"
    if not failed:
        return "missed" if case.must else "right"
    named = {host for hosts in failed.values() for host in hosts}
    is_known = all(check in case.checks for check in failed)
    if named == {guilty} and is_known:
        return "right"
    if NETWORK[0] in failed and case.checks == NETWORK and guilty in named and len(named) == 2:
        return "right"  # a pair that the guilty host is one of
    return "one of" if (guilty in named or not named) and is_known else "wrong"


def main() -> int:
    """Many trials, and a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial, to go on with")
    parser.add_argument("--only", default="", help="these cases, with commas between them")
    parser.add_argument("--name", default="out", help="prefix of the hosts' names, where several run at once")
    requested = parser.parse_args()
    only = tuple(requested.only.split(",")) if requested.only else ()
    results: list[Result] = []
    fleet = Fleet.up(5, {"*": {"shows": visible_folders()}}, name=requested.name)
    try:
        for number, trial in enumerate(trials(requested.count, requested.seed, only)):
            if number < requested.first:
                continue
            rng = Random(requested.seed * 10_000 + number)
            arguments = random_layouts(trial.hosts * trial.ranks, rng) if trial.case.name == "clean" else []
            results.append(carry_out(fleet, trial, *arguments))
            result = results[-1]
            where = f"{trial.hosts}x{trial.ranks}, host {trial.guilty + 1}, rank {trial.local}, call {trial.call}"
            text = f"{number:3} {result.verdict:10} {trial.case.name} ({where})"
            warned = f" warnings {result.warnings}" if result.warnings else ""
            print(f"{text}: {result.errors}{warned} exit {result.code}, {result.seconds:.0f} s", flush=True)
            for message in result.messages if warned or result.verdict not in ("right", "not struck") else ():
                print(f"      {message[:400]}", flush=True)
    finally:
        fleet.down()
    for verdict, times in Counter(row.verdict for row in results).most_common():
        print(f"{verdict:10} {times}")
    print(f"clean runs with a warning: {sum(bool(row.warnings) for row in results)}")
    return 0 if all(row.verdict in ("right", "one of", "not struck") for row in results) else 1


if __name__ == "__main__":
    sys.exit(main())
