"""How long the commands that reach no host take, as a ratio to an empty Python. Run: python tests/bench/startup.py"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 21
DOCTOR = str(Path(sys.executable).with_name("doctor"))
CONTENDERS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "python -c 'import typer'": [sys.executable, "-c", "import typer"],
    "doctor --help": [DOCTOR, "--help"],
    "doctor list": [DOCTOR, "list"],
    "doctor explain": [DOCTOR, "explain", "host-unreachable"],
    "doctor explain TOPIC": [DOCTOR, "explain", "job-scripts"],
}


def once(words: list[str]) -> float:
    """Seconds of wall time."""
    began = time.perf_counter()
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    for words in CONTENDERS.values():
        once(words)  # byte code is written on the first run
    times: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for _ in range(ROUNDS):
        for name, words in CONTENDERS.items():
            times[name].append(once(words))
    base = statistics.median(times["python -c pass"])
    for name, seconds in times.items():
        middle = statistics.median(seconds)
        print(f"{name:26} {middle * 1000:7.1f} ms   {middle / base:5.2f} x")


if __name__ == "__main__":
    main()
