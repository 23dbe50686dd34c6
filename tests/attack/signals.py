"""Signals at random moments of `doctor preflight`: one line, the exit code that it says, no report of an earlier run.

``python -m tests.attack.signals COUNT [--seed SEED]``. Each attack starts a preflight of this machine, sends it one or
two signals at a moment that follows from the seed, from the first import to the last line, and reads what it leaves.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIGNALS = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "PIPE")
LINE = re.compile(
    r"doctor preflight: (OK|WARN|FAIL|UNKNOWN|NOTHING) nodes=\d+/\d+ (?:\S+ )*exit=(\d+) t=[\d.]+s( \S+)*\n"
)
LAUNCHERS = ("DOCTOR_", "SLURM_", "RANK", "OMPI_", "PMI", "MS_", "VC_", "MA_", "LOCAL_", "WORLD_", "MASTER_")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
SELECT = ("--select", "memory", "--select", "kernel")
OLD_REPORT = '{"exit": 0, "verdict": "healthy"}'
PATIENCE = 90.0


def caught(pid: int) -> bool:
    """Whether the program handles SIGTERM by itself: before its first line of code nothing can be asked of it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    mask = re.search(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)
    return bool(mask and int(mask[1], 16) >> (signal.SIGTERM - 1) & 1)


def attack(rng: random.Random, folder: Path, span: float) -> str:
    """One preflight under signals. Returns what is wrong with its end, or the empty string."""
    report = folder / "report.json"
    report.write_text(OLD_REPORT)
    names = [rng.choice(SIGNALS) for _ in range(rng.choice((1, 1, 1, 2)))]
    moments = sorted(rng.uniform(0.0, span) for _ in names)
    argv = [sys.executable, "-m", "doctor", "preflight", *SELECT, "--report", str(report), "--quiet"]
    with subprocess.Popen(
        argv, cwd=ROOT, env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        while not caught(child.pid) and child.poll() is None:
            time.sleep(0.001)
        began = time.monotonic()
        for name, moment in zip(names, moments, strict=True):
            time.sleep(max(0.0, began + moment - time.monotonic()))
            child.send_signal(signal.Signals[f"SIG{name}"])
        try:
            out, err = child.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            child.kill()
            return f"{names} at {moments}: it did not end"
    description = wrong(names, child.returncode, out, err, report)
    return description and f"{names} at {[round(moment, 3) for moment in moments]}: {description}: {out!r} {err!r}"


def wrong(names: list[str], code: int, out: str, err: str, report: Path) -> str:
    """What is wrong with the end of a preflight that got these signals, or the empty string."""
    line = LINE.fullmatch(out)
    if not line:
        return f"not exactly one line, exit code {code}"
    if int(line[2]) != code:
        return f"the line says another exit code than {code}"
    allowed = {128 + int(signal.Signals[f"SIG{name}"]) for name in names if name != "PIPE"}
    if code > 128 and code not in allowed:
        return f"exit code {code} is of another signal"
    if "Traceback" in err or "Exception" in err:
        return "a traceback"
    if not report.exists():
        return "" if code > 128 else "no report"
    try:
        document = json.loads(report.read_text())
    except ValueError:
        return "the report is torn"
    if "outcomes" not in document:
        return "the report of an earlier run stands"
    return "" if document["exit"] == code else f"the report says exit {document['exit']}, not {code}"


def campaign(count: int, seed: int) -> int:
    """``count`` attacks that follow from ``seed``. Returns how many succeeded."""
    rng, failed, ends = random.Random(seed), 0, 0
    with tempfile.TemporaryDirectory(prefix="signals-") as name:
        folder = Path(name)
        began = time.monotonic()
        argv = [sys.executable, "-m", "doctor", "preflight", *SELECT, "--quiet"]
        subprocess.run(argv, cwd=ROOT, env=CLEAN, capture_output=True, timeout=PATIENCE, check=False)
        span = time.monotonic() - began
        for _ in range(count):
            description = attack(rng, folder, span)
            failed += bool(description)
            ends += 1
            if description:
                print(description, flush=True)
    print(f"{ends} preflights of {span:.1f} s ended, {failed} of them not as they should")
    return failed


if __name__ == "__main__":
    from tests.attack.__main__ import main

    sys.exit(main(["signals", *sys.argv[1:]]))
