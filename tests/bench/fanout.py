"""`doctor check` against clush and a pool of OpenSSH clients that run an equivalent shell script on the same hosts.

Run as root: python tests/bench/fanout.py [HOSTS] [ROUNDS]. The contenders take turns; a ratio is to clush. All have
their bytecode, as an installed program has. With 0 rounds clush and all checks run once, where time is short.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.hosts.fleet import Fleet  # noqa: E402

SCRIPT = Path(__file__).with_name("facts.sh")
SSH = "-o KexAlgorithms=curve25519-sha256 -o LogLevel=ERROR"


def contenders(fleet: Fleet) -> dict[str, list[str]]:
    """Command lines, to be run in the hub."""
    config, nodes = str(fleet.ssh_config), ",".join(fleet.hosts)
    script = SCRIPT.read_text()
    names = fleet.directory / "names"
    pool = f"xargs -P 64 -I H ssh -F {config} {SSH} -n H sh -c {quoted(quoted(script))} >/dev/null <{names}"
    names.write_text("".join(f"{host}\n" for host in fleet.hosts))
    return {
        "clush": [
            sys.executable,
            "-m",
            "ClusterShell.CLI.Clush",
            "-S",
            "-q",
            "-f",
            "64",
            "-o",
            f"-F {config} {SSH}",
            "-w",
            nodes,
            script,
        ],
        "OpenSSH pool": ["sh", "-c", pool],
        "doctor, all checks": [sys.executable, "-m", "doctor", "check", nodes, "-F", config, "--json"],
        "doctor, one check": [
            *(sys.executable, "-m", "doctor", "check", nodes, "-F", config, "--json"),
            *("--select", "listen-queue-short"),
        ],
    }


def quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)


def with_bytecode(folder: Path) -> dict[str, str]:
    """The environment of all contenders, in which Python keeps its bytecode in ``folder``."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**environ, "PYTHONPYCACHEPREFIX": str(folder)}


def once(fleet: Fleet, arguments: list[str], environ: dict[str, str]) -> tuple[float, float, float]:
    """Wall seconds, client CPU seconds, peak MB."""
    began = time.perf_counter()
    process = subprocess.Popen(
        fleet.argv(arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, env=environ
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 10, 12):
        print(f"{arguments[2]} ended with {process.returncode}", file=sys.stderr)
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    count, rounds = (
        (int(word) for word in (*sys.argv[1:], "64", "5")[:2]) if len(sys.argv) < 3 else map(int, sys.argv[1:3])
    )
    fleet = Fleet.up(count, shm="4g")
    try:
        runs, environ = contenders(fleet), with_bytecode(fleet.directory / "bytecode")
        answer: dict[str, list[tuple[float, float, float]]] = {name: [] for name in runs}
        if not rounds:
            runs = {name: runs[name] for name in ("clush", "doctor, all checks")}
            subprocess.run([sys.executable, "-m", "doctor", "check"], stdout=subprocess.DEVNULL, cwd=ROOT, env=environ)
        for run in runs.values() if rounds else ():
            once(fleet, run, environ)
        for _ in range(max(rounds, 1)):
            for name, run in runs.items():
                answer[name].append(once(fleet, run, environ))
    finally:
        fleet.down()
    taken = {name: rows for name, rows in answer.items() if rows}
    middle = {name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in taken.items()}
    base = middle["clush"]
    load = " ".join(f"{value:.0f}" for value in os.getloadavg())
    print(f"{count} hosts, {rounds} rounds, medians; ratios to clush; load {load}")
    for name, (wall, cpu, peak) in middle.items():
        print(
            f"{name:20} wall {wall:6.2f} s {wall / base[0]:5.2f} x   client CPU {cpu:6.2f} s {cpu / base[1]:5.2f} x"
            f"   {cpu / count * 1000:5.1f} ms a host   peak {peak:4.0f} MB"
        )


if __name__ == "__main__":
    main()
