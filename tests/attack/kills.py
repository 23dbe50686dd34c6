"""SIGKILL to doctor at random moments: nothing of it stays on the hosts, and the next run is right.

Each attack starts a command on three hosts, kills the program at a moment of its usual course, waits until the hosts
are as they were (processes, files, listening ports, firewall rules), and counts what stays. A plan of `doctor fix` that
was begun is undone first, and must then be undone exactly. A job goes on where `doctor watch` is killed; when it has
ended, the next watch removes what is left.
"""

from __future__ import annotations

import contextlib
import difflib
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.attack.doctor_process import ROOT, kill_doctor, start_doctor, start_on_host
from tests.attack.fix import BOOK, SEE, SETUP
from tests.hosts.fleet import Fleet
from tests.smoke.interpreter import visible_folders

HOSTS = 3
ENDS = (0, 10, 12)
"""Exit codes of a run that has judged the hosts."""
PATIENCE = 90.0
"""Seconds within which a host must be as before; what ends sooner costs no more."""
SMOKE = ("--ranks-per-host", "1", "--python", sys.executable)
COMMANDS: dict[str, tuple[str, ...]] = {
    "check": ("check",),
    "net": ("net",),
    "preflight": ("preflight",),
    "smoke": ("smoke", *SMOKE),
    "fix": ("fix", "attacked", "--apply", "--yes"),
    "watch": ("watch", "--", sys.executable, str(ROOT / "tests/watch/fleet_program.py"), "100"),
}
SHORT = {"net.core.somaxconn": 128, "net.ipv4.tcp_max_syn_backlog": 256}
"""What the playbook of `tests.attack.fix` mends."""
JOB = {"FORK": "2", "FIRST": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29777"}
JOB |= {"PAUSE": "0.02", "XDG_STATE_HOME": "/opt/watched"}
STATE = """
for file in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <"$file" 2>/dev/null && echo; done |
    grep -v -e '^sh -c' -e '^tr ' -e '^grep ' -e '^sort' -e 'sshd: ' -e '^$' | sort
find /var/tmp -xdev -maxdepth 1 -name '*doctor*' 2>/dev/null
find /tmp /dev/shm /run /root /etc -xdev 2>/dev/null -newer /run/before-attacks | grep -v -e /run/sshd -e utmp | sort
cat /proc/net/tcp /proc/net/tcp6 /proc/net/udp | awk '$4 == "0A" || $4 == "07" { print $2 }' | sort
nft list ruleset 2>/dev/null
"""


def state(fleet: Fleet, host: str) -> str:
    """What runs, lies and listens on a host."""
    return str(fleet.enter(host, STATE + SEE, check=False).stdout)


def start(fleet: Fleet, name: str, folder: Path) -> subprocess.Popen[str]:
    command, *options = COMMANDS[name]
    hosts = ",".join(fleet.hosts)
    if name == "watch":
        return start_on_host(fleet, fleet.hosts[0], [command, *options], **JOB)
    if name == "fix":
        return start_doctor(fleet, [command, *options, "-w", hosts, "--playbooks", str(folder / "books")], folder)
    return start_doctor(fleet, [command, hosts, *options], folder)


def settle(fleet: Fleet, name: str, folder: Path) -> str:
    """What a user does after a command that was killed: why it did not succeed, or the empty string."""
    if name == "watch":
        while "fleet_program" in state(fleet, fleet.hosts[0]):
            time.sleep(0.3)
        process = start_on_host(fleet, fleet.hosts[0], ["watch", "--", "true"], **JOB)
        output, _ = process.communicate(timeout=PATIENCE)
        return "" if process.returncode == 0 else f"the next watch: {output[-300:]}"
    plans = folder / "doctor" / "fix"
    names = sorted(path.name for path in plans.iterdir() if path.is_dir()) if plans.is_dir() else []
    if name != "fix" or not names:
        return ""
    process = start_doctor(fleet, ["fix", "--undo", names[-1], "--yes", "--playbooks", str(folder / "books")], folder)
    output, _ = process.communicate(timeout=2 * PATIENCE)
    undone = process.returncode == 0 or "nothing" in output
    return "" if undone else f"not undone ({process.returncode}): {output[-500:]}"


def prepare(fleet: Fleet, *hosts: str) -> None:
    for host in hosts or fleet.hosts:
        # Not a file of /proc: the kernel may forget its inode, and makes it anew with the time of then.
        fleet.enter(host, f"{SETUP}\ntouch -d '1 hour ago' /run/before-attacks")


def attack(fleet: Fleet, name: str, moment: float, before: dict[str, str], folder: Path) -> str:
    """What stays on a host; empty if nothing does."""
    process = start(fleet, name, folder)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=moment)
    kill_doctor(process)
    process.communicate(timeout=PATIENCE)
    if problem := settle(fleet, name, folder):
        return problem
    end = time.monotonic() + PATIENCE
    remains = dict(before)
    while remains and time.monotonic() < end:
        remains = {host: text for host in before if (text := state(fleet, host)) != before[host]}
        if remains:
            time.sleep(0.5)
    return "; ".join(f"{host}: {_changed(before[host], text)}" for host, text in remains.items())


def _changed(before: str, after: str) -> list[str]:
    """The first lines that came, with ``+``, and that went, with ``-``."""
    return [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"][:5]


def campaign(count: int, seed: int, only: str = "") -> int:
    """``count`` kills. Returns how many left something, and in how many commands the next run was wrong.

    ``only``: of these commands, with commas between.
    """
    names = only.split(",") if only else list(COMMANDS)
    draw, failed = random.Random(seed), 0
    fleet = Fleet.up(HOSTS, {"*": {"sysctl": SHORT, "shows": visible_folders()}}, shm="4g")
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        (folder / "books").mkdir()
        (folder / "books" / "attacked.toml").write_text(BOOK)
        try:
            prepare(fleet)
            spans, codes = {}, {}
            for command in names:
                began = time.monotonic()
                process = start(fleet, command, folder)
                process.communicate(timeout=300)
                spans[command], codes[command] = time.monotonic() - began, process.returncode
                problem = settle(fleet, command, folder)
                if process.returncode not in ENDS or problem:
                    raise RuntimeError(f"{command} ends with {process.returncode} on healthy hosts: no attack{problem}")
            before = {host: state(fleet, host) for host in fleet.hosts}
            for number in range(count):
                command = names[number % len(names)]
                moment = draw.uniform(0.1, spans[command])
                remains = attack(fleet, command, moment, before, folder)
                failed += bool(remains)
                print(f"{number + 1} of {count}", flush=True)
                if remains:
                    print(f"{command}, killed after {moment:.2f} of {spans[command]:.1f} s: {remains}", flush=True)
                    fleet.renew(*fleet.hosts)
                    prepare(fleet)
                    before = {host: state(fleet, host) for host in fleet.hosts}
            for command, code in codes.items():
                process = start(fleet, command, folder)
                output, _ = process.communicate(timeout=300)
                settle(fleet, command, folder)
                if process.returncode != code:
                    failed += 1
                    print(f"{command} ends with {process.returncode}, and {code} before:\n{output[-800:]}")
        finally:
            fleet.down()
    return failed
