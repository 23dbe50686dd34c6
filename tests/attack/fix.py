"""Interrupted applies and undos of `doctor fix` on a real host, and administrators who change things in between.

After each attack the host must be exactly as before, or the undo must have refused: ``python -m tests.attack fix 100``.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.attack.doctor_process import kill_doctor, start_doctor
from tests.hosts.fleet import Fleet

BOOK = """
title = "Every kind of step"
treats = ["listen-queue-short"]
who = "host admin"
risk = "low"
root = true

[[step]]
say = "Save the tool's file"
file = "/etc/tool.conf"
keep = true

[[step]]
say = "Set one value"
before = "sysctl -n net.core.somaxconn"
run = 'sleep 0.02; sysctl -w net.core.somaxconn=4096; sleep 0.02; echo "doctor" >/etc/tool.conf; sleep 0.02'
undo = 'sleep 0.02; sysctl -w net.core.somaxconn="$before"; sleep 0.02; echo "tool" >>/etc/tool.conf; sleep 0.02'

[[step]]
say = "Write names"
file = "/etc/names"
filter = 'cat; echo "10.0.0.1 $host"'

[[step]]
say = "Write a file in a new folder"
file = "/etc/new/deep/file"
text = "doctor\\n"
mode = "0640"

[[step]]
say = "Set another value"
before = "sysctl -n net.ipv4.tcp_max_syn_backlog"
run = "sleep 0.03; sysctl -w net.ipv4.tcp_max_syn_backlog=4096; sleep 0.03"
undo = 'sleep 0.03; sysctl -w net.ipv4.tcp_max_syn_backlog="$before"; sleep 0.03'
"""
SETUP = """set -e; cd /etc
printf 'a\\nb' >names.real; chmod 640 names.real; ln -sf names.real names
printf 'kept\\n' >tool.conf; chmod 604 tool.conf; chown 7:8 tool.conf"""
SEE = """cd /etc; sysctl -n net.core.somaxconn net.ipv4.tcp_max_syn_backlog
for f in names names.real tool.conf; do stat -c '%N %a %u:%g' $f; sha256sum <$f; done
ls -d /etc/new 2>&1; ls -a /etc | grep doctor; ls /run/doctor-fix 2>/dev/null; true"""
ADMIN = {
    "sysctl -qw net.core.somaxconn=32768": ("sysctl -n net.core.somaxconn", "32768"),
    "echo 10.5.5.5 mine >>/etc/names": ("tail -n 1 /etc/names", "10.5.5.5 mine"),
    "echo mine >>/etc/tool.conf": ("tail -n 1 /etc/tool.conf", "mine"),
    "echo mine >>/etc/new/deep/file": ("tail -n 1 /etc/new/deep/file", "mine"),
    "chmod 600 /etc/names.real": ("stat -c %a /etc/names.real", "600"),
    "touch /etc/new/mine": ("ls /etc/new/mine", "/etc/new/mine"),
}
"""What an administrator does after a fix, and how it is seen to be there."""
VICTIMS = {
    "doctor": "",
    "the host's python": "pkill -9 -f 'python3 -I -S'",
    "the host's sshd": "for p in $(pgrep -f '[s]shd:.*@notty'); do kill -9 $p; done",
    "all of the host": "kill -9 -1",
}
"""Who is killed; on the host by a command that runs in its own process namespace."""


class FixTrial:
    """One host, and `doctor fix` with one playbook."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self.draw, self.folder = draw, folder
        short = {"net.core.somaxconn": 128, "net.ipv4.tcp_max_syn_backlog": 256}
        self.fleet = Fleet.up(1, {"*": {"sysctl": short}}, name="atk", shm="4g")
        self.host = self.fleet.hosts[0]
        (folder / "books").mkdir()
        (folder / "books" / "attacked.toml").write_text(BOOK)
        self.fleet.enter(self.host, SETUP)
        self.before = self.see()

    def see(self) -> str:
        return str(self.fleet.enter(self.host, SEE).stdout)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return start_doctor(
            self.fleet, ["fix", *arguments, "--yes", "--playbooks", str(self.folder / "books")], self.folder
        )

    def fix(self, *arguments: str) -> tuple[int, str]:
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=200)
        return process.returncode, output

    def plan(self) -> str:
        """The newest plan's id; empty where there is none."""
        folder = self.folder / "doctor" / "fix"
        return max((path.name for path in folder.iterdir()), default="") if folder.is_dir() else ""

    def lines(self, plan: str) -> int:
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / "doctor" / "fix" / plan / "journal.jsonl").read_bytes().count(b"\n")
        return 0

    def interrupted(self, victim: str, *arguments: str, plan: str = "") -> None:
        """Runs `doctor fix`, and kills the victim some time after a certain line of the journal."""
        old, first = self.plan(), self.lines(plan)
        process, at = self.start(*arguments), self.draw.randint(1, 11)
        pause = self.draw.uniform(0, 0.08)
        while process.poll() is None:
            current = plan or self.plan()
            if (current != old or plan) and self.lines(current) - first >= at:
                time.sleep(pause)
                break
            time.sleep(0.002)
        if victim == "doctor":
            kill_doctor(process)
        else:
            self.fleet.enter(self.host, VICTIMS[victim], check=False)
        process.communicate(timeout=200)

    def settled(self) -> str:
        """Undoes the plan; why the host is not as before although nothing was refused."""
        plan = self.plan()
        code, output = self.fix("--undo", plan)
        if code == 10:
            if "changed since" not in output and "is undone, which changes it" not in output:
                return f"not undone, and not refused:\n{output}"
            self.refused += 1
            code, output = self.fix("--undo", plan, "--changed", "overwrite")
        now = self.see()
        return (
            ""
            if code == 0 and now == self.before
            else f"exit {code}\n{output}\n--- before\n{self.before}--- now\n{now}"
        )

    refused = 0

    def renew(self) -> None:
        self.fleet.renew(self.host)
        self.fleet.enter(self.host, SETUP)
        self.before = self.see()


def attack_apply(trial: FixTrial) -> str:
    """Something is killed while a plan is applied."""
    old = trial.plan()
    trial.interrupted(trial.draw.choice(list(VICTIMS)), "attacked", "-w", trial.host, "--apply")
    if trial.plan() == old:
        return "" if trial.see() == trial.before else "changed without a plan"
    return trial.settled()


def attack_undo(trial: FixTrial) -> str:
    """Something is killed while a plan is undone."""
    code, output = trial.fix("attacked", "-w", trial.host, "--apply")
    if code:
        return f"not applied: {output}"
    plan = trial.plan()
    trial.interrupted(trial.draw.choice(list(VICTIMS)), "--undo", plan, plan=plan)
    return trial.settled()


def attack_change(trial: FixTrial) -> str:
    """An administrator changes something between a fix and its undo."""
    code, output = trial.fix("attacked", "-w", trial.host, "--apply")
    if code:
        return f"not applied: {output}"
    change = trial.draw.choice(list(ADMIN))
    trial.fleet.enter(trial.host, change)
    code, output = trial.fix("--undo", trial.plan())
    read, expected = ADMIN[change]
    now = trial.fleet.enter(trial.host, read, check=False).stdout.strip()
    trial.refused += code == 10
    trial.renew()
    return "" if now == expected else f"lost: {change}\n{output}"


ATTACKS: tuple[Callable[[FixTrial], str], ...] = (attack_apply, attack_apply, attack_undo, attack_change)


def campaign(count: int, seed: int) -> int:
    """Makes ``count`` attacks that follow from ``seed``; returns how many left something lost or half done."""
    failed, draw = 0, random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        trial = FixTrial(Path(folder), draw)
        try:
            for number in range(count):
                attack = draw.choice(ATTACKS)
                problem = attack(trial)
                if problem:
                    failed += 1
                    print(f"{number} {attack.__name__}: {problem}", flush=True)
                    trial.renew()
        finally:
            trial.fleet.down()
    print(f"{count - failed} of {count} restored exactly or refused; {trial.refused} were refused first")
    return failed
