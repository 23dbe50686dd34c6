"""What the commands that reach no host cost, as a ratio to an empty Python. Run: python tests/bench/startup.py

CPU time, which other work on the machine hardly changes, and wall time. All have their bytecode, as an installed
program has.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 21
DOCTOR = str(Path(sys.executable).with_name("doctor"))
MAIN = "import sys; from doctor.cli.main import main; main()"
"""As the command starts it; the file that pip writes imports `re` besides, a half of `python -c pass`."""
CONTENDERS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "python -c 'import typer'": [sys.executable, "-c", "import typer"],
    "doctor --help": [DOCTOR, "--help"],
    "doctor list": [DOCTOR, "list"],
    "doctor explain": [DOCTOR, "explain", "firewall-blocks-job"],
    "python -c main --help": [sys.executable, "-c", MAIN, "--help"],
    "doctor explain TOPIC": [DOCTOR, "explain", "job-scripts"],
}


def once(arguments: list[str], environ: dict[str, str]) -> tuple[float, float]:
    """Seconds of CPU time and of wall time."""
    began = time.perf_counter()
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, env=environ)
    _, status, usage = os.wait4(process.pid, 0)
    wall, process.returncode = time.perf_counter() - began, os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(arguments)}: exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime, wall


def main() -> None:
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTENDERS}
    with tempfile.TemporaryDirectory() as folder:
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environ["PYTHONPYCACHEPREFIX"] = folder
        for contender in CONTENDERS.values():
            once(contender, environ)  # bytecode is written on the first run
        for _ in range(ROUNDS):
            for name, contender in CONTENDERS.items():
                times[name].append(once(contender, environ))
    middle = {name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in times.items()}
    base = middle["python -c pass"]
    for name, (cpu, wall) in middle.items():
        ratios = f"CPU {cpu * 1000:6.1f} ms {cpu / base[0]:5.2f} x   wall {wall * 1000:7.1f} ms {wall / base[1]:5.2f} x"
        print(f"{name:26} {ratios}")


if __name__ == "__main__":
    main()
