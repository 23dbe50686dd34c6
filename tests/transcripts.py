"""The README's transcripts, from real runs on test hosts: ``python -m tests.regen --transcripts`` (root, torch).

Each is shortened where it repeats itself; a line of "..." stands for what was left out.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.conftest import PREPARED
from tests.hosts.fleet import Fleet, merge, sweep
from tests.hosts.npu import npu_fleet
from tests.readme import README, ROOT, between
from tests.smoke.interpreter import visible_folders

WIDTH = 100
CUT = "..."
LONGEST = 6
"""Lines that are kept of a paragraph."""
IN_A_TERMINAL = """
import os, pty, sys
quiet = ["sh", "-c", 'exec "$@" 2>/dev/null', "sh", *sys.argv[1:]]
sys.exit(os.waitstatus_to_exitcode(pty.spawn(quiet)))
"""
RULES = """\
nft -f - <<'END'
table inet f {
    chain in {
        type filter hook input priority 0
        ip saddr 10.77.0.0/16 tcp dport 29500-60100 drop
    }
}
END
"""
STUCK = """

import builtins

_import, _calls = builtins.__import__, []

def open_shard():
    os.read(os.pipe()[0], 1)

def _slow_shard(function):
    def _call(*args, **options):
        if dist.is_initialized() and dist.get_rank() == 3:
            _calls.append(1)
            if len(_calls) == 16:
                open_shard()
        return function(*args, **options)

    return _call

def _import_and_patch(name, *rest, **options):
    module, loaded = _import(name, *rest, **options), sys.modules.get("torch")
    if name == "torch.distributed" and not hasattr(loaded, "_patched"):
        loaded.layer_norm, loaded._patched = _slow_shard(loaded.layer_norm), True
    return module

builtins.__import__ = _import_and_patch
"""
"""Put behind the worker's text: rank 3 reads from an empty pipe within the training. It needs names of torch alone."""


def write() -> None:
    """All transcripts, into the README."""
    sweep()
    text = README.read_text("utf-8")
    for name, record in {"report": record_report, "smoke": record_smoke, "fix": record_fix}.items():
        print(f"recording {name}")
        text = between(text, name, record())
    README.write_text(text, "utf-8")


# ---- the three runs


def record_report() -> str:
    """Eight hosts: one refuses connections, one has a firewall rule, two NPUs share an address."""
    hosts = {name: merge(PREPARED, npu) for name, npu in npu_fleet("A2", 8, name="node").items()}
    hosts["node0008"]["fault"] = "refuse"
    fleet = Fleet.up(8, hosts, name="node", shm="4g")
    try:
        fleet.enter("node0005", RULES)
        addresses = [fleet.read(host, "/run/npu/1/ip").strip() for host in ("node0002", "node0004")]
        fleet.enter("node0004", "sed -i s/{1}/{0}/ /run/npu/1/ip /etc/hccn.conf".format(*addresses))
        output = run(fleet, ["check", "node[0001-0008]"])
    finally:
        fleet.down()
    intro = (
        "Eight hosts with eight Ascend 910B NPUs each ([emulated](doctor/docs/proof.md#emulated-devices)).\n"
        "One is down, one has a firewall in the way, and two NPUs have the same address:\n"
    )
    return fence(intro, output, 1)


def record_smoke() -> str:
    """Two hosts with two ranks each; rank 3 reads from a pipe that stays empty."""
    fleet = Fleet.up(2, {"*": merge(PREPARED, {"shows": visible_folders()})}, name="node", shm="4g")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "stuck.py")
        path.write_text(STUCK)
        try:
            argv = ["smoke", "node[0001-0002]", "--ranks-per-host", "2", "--layout", "dp=2,tp=2"]
            program = [sys.executable, "-m", "tests.smoke.faulty", str(path)]
            output = run(fleet, argv, program, ["--python", sys.executable])
        finally:
            fleet.down()
    return fence("Two hosts with two ranks each; rank 3 reads from a pipe that stays empty:\n", output, 0)


def record_fix() -> str:
    """Four hosts: two with short queues, one with a firewall rule."""
    fleet = Fleet.up(4, {"*": PREPARED}, name="node", shm="4g")
    with tempfile.TemporaryDirectory() as state:
        try:
            for host in ("node0001", "node0002"):
                fleet.sysctl(host, "net.core.somaxconn", 128)
            fleet.enter("node0003", RULES)
            names = ["listen-queue-short", "firewall-blocks-job"]
            extra = ["--ranks-per-host", "8"]
            planned = run(fleet, ["fix", *names, "-w", "node[0001-0004]"], extra=extra, state=state)
            (plan,) = set(re.findall(r"doctor fix --apply (\S+)", planned[1]))
            applied = run(fleet, ["fix", "--apply", plan, "--yes"], state=state)
        finally:
            fleet.down()
    shortened = shorten_fix(planned[1]) + f"$ {applied[0]}\n" + shorten_applied(applied[1])
    return f"```\n$ {planned[0]}\n{shortened}```\n"


def run(
    fleet: Fleet, argv: list[str], program: list[str] | None = None, extra: list[str] | None = None, state: str = ""
) -> tuple[str, str, int]:
    """The command as a reader would type it, its output as a terminal of `WIDTH` columns shows it, its exit code."""
    clean = {name: value for name, value in os.environ.items() if not re.match(r"DOCTOR_|SLURM_|RANK_|HCCL_", name)}
    env = {
        **clean,
        "COLUMNS": str(WIDTH),
        "NO_COLOR": "1",
        "PYTHONPATH": str(ROOT),
        "DOCTOR_HISTORY": "off",
        **({"XDG_STATE_HOME": state} if state else {}),
    }
    arguments = [*(program or [sys.executable, "-m", "doctor"]), *argv, *(extra or [])]
    arguments += [] if "--apply" in argv else ["-F", str(fleet.ssh_config)]
    done = fleet.run([sys.executable, "-c", IN_A_TERMINAL, *arguments], env=env, cwd=ROOT, timeout=300)
    assert done.stdout, done.stderr
    typed = " ".join(f"'{word}'" if "[" in word else shlex.quote(word) for word in argv)
    shown = done.stdout.replace("\r\n", "\n").replace(f" -F {fleet.ssh_config}", "")
    return f"doctor {typed}", shown, done.returncode


# ---- what is shown of them


def fence(intro: str, recorded: tuple[str, str, int], reasons: int) -> str:
    command, output, code = recorded
    return f"{intro}\n```\n$ {command}\n{shorten(output, reasons)}$ echo $?\n{code}\n```\n"


def shorten(text: str, reasons: int) -> str:
    """Paragraphs of at most `LONGEST` lines, so many reasons of what was skipped, and no figures of a smoke run."""
    lines: list[str] = []
    for paragraph in paragraphs(text.splitlines()):
        if paragraph[0].startswith("  stack    all ranks"):
            continue  # it repeats those above
        lines += paragraph if len(paragraph) <= LONGEST else [*paragraph[: LONGEST - 1], indent(paragraph) + CUT]
    return "".join(f"{line}\n" for line in without_figures(without_reasons(lines, reasons)))


def paragraphs(lines: Iterable[str]) -> Iterator[list[str]]:
    """A label with all lines that are indented as its text is; any other line alone."""
    paragraph: list[str] = []
    for line in lines:
        if paragraph and indent(paragraph) and line.startswith(indent(paragraph)) and line.strip():
            paragraph.append(line)
            continue
        if paragraph:
            yield paragraph
        paragraph = [line]
    yield paragraph


def indent(paragraph: list[str]) -> str:
    """What stands before the lines of a labelled paragraph; nothing where there is no label."""
    label = re.match(r" +\w+ {2,}(?=\S)", paragraph[0])
    return " " * len(label[0]) if label else ""


def without_reasons(lines: list[str], count: int) -> list[str]:
    """The same with the first reasons alone of what was skipped; without the section where that is none."""
    first = next((number for number, line in enumerate(lines) if line.startswith("- ")), len(lines))
    last = next((number for number in range(first, len(lines)) if not lines[number].strip()), len(lines))
    reasons = [number for number in range(first, last) if lines[number].startswith("- ")]
    if not count and reasons:
        return [*lines[: first - 2], *lines[last:]]
    return [*lines[: reasons[count]], f"  {CUT}", *lines[last:]] if len(reasons) > count else lines


def without_figures(lines: list[str]) -> list[str]:
    """The same without what the section on the smoke run says of ranks, stages and speeds."""
    first = next((number for number, line in enumerate(lines) if line.startswith("  ran ")), len(lines)) + 1
    last = next((number for number in range(first, len(lines)) if not lines[number].strip()), len(lines))
    return [*lines[:first], *([f"  {CUT}"] if last > first else []), *lines[last:]]


def shorten_fix(text: str) -> str:
    """The plan of the first host as far as its second step, and the last two lines."""
    lines = [line for line in text.splitlines() if len(line) <= WIDTH + 20]
    third = next(number for number, line in enumerate(lines) if line.lstrip().startswith("3. "))
    return "".join(f"{line}\n" for line in (*lines[:third], CUT, *lines[-2:]))


def shorten_applied(text: str) -> str:
    """The first step, the first check that passes, and the last two lines."""
    lines = text.splitlines()
    passed = next(line for line in lines if line.startswith("ok "))
    return "".join(f"{line}\n" for line in (lines[0], CUT, passed, CUT, *lines[-2:]))
