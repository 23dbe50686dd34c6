"""SIGKILL to doctor at random moments: nothing of it stays on the hosts, and the next run is right.

Each attack starts a command on three hosts, kills the program at a moment of its usual course, waits until the hosts
are as they were (processes, files, listening ports, firewall rules), and counts what stays. `doctor fix` is attacked by
the group ``fix``.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.attack.doctor_process import kill_doctor, start_doctor
from tests.hosts.fleet import Fleet

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
}
STATE = """
for file in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <"$file" 2>/dev/null && echo; done |
    grep -v -e '^sh -c' -e '^tr ' -e '^grep ' -e '^sort' -e 'sshd: ' -e '^$' | sort
find /tmp /dev/shm /run /root /var/tmp /etc -xdev 2>/dev/null -newer /proc/1/comm | grep -v -e /run/sshd -e utmp | sort
cat /proc/net/tcp /proc/net/tcp6 /proc/net/udp | awk '$4 == "0A" || $4 == "07" { print $2 }' | sort
nft list ruleset 2>/dev/null
"""


def state(fleet: Fleet, host: str) -> str:
    """What runs, lies and listens on a host."""
    return str(fleet.enter(host, STATE, check=False).stdout)


def start(fleet: Fleet, name: str, folder: Path) -> subprocess.Popen[str]:
    command, *options = COMMANDS[name]
    return start_doctor(fleet, [command, ",".join(fleet.hosts), *options], folder)


def attack(fleet: Fleet, name: str, moment: float, before: dict[str, str], folder: Path) -> str:
    """What stays on a host; empty if nothing does."""
    process = start(fleet, name, folder)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=moment)
    kill_doctor(process)
    process.communicate(timeout=PATIENCE)
    end = time.monotonic() + PATIENCE
    remains = dict(before)
    while remains and time.monotonic() < end:
        remains = {host: text for host in before if (text := state(fleet, host)) != before[host]}
        if remains:
            time.sleep(0.5)
    return "; ".join(
        f"{host}: {sorted(set(text.splitlines()) ^ set(before[host].splitlines()))[:5]}"
        for host, text in remains.items()
    )


def campaign(count: int, seed: int) -> int:
    """``count`` kills. Returns how many left something, and in how many commands the next run was wrong."""
    draw, failed = random.Random(seed), 0
    fleet = Fleet.up(HOSTS, shm="4g")
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        try:
            spans, codes = {}, {}
            for command in COMMANDS:
                began = time.monotonic()
                process = start(fleet, command, folder)
                process.communicate(timeout=300)
                spans[command], codes[command] = time.monotonic() - began, process.returncode
                if process.returncode not in ENDS:
                    raise RuntimeError(f"{command} ends with {process.returncode} on healthy hosts: no attack")
            before = {host: state(fleet, host) for host in fleet.hosts}
            for number in range(count):
                command = list(COMMANDS)[number % len(COMMANDS)]
                moment = draw.uniform(0.1, spans[command])
                remains = attack(fleet, command, moment, before, folder)
                failed += bool(remains)
                if remains:
                    print(f"{command}, killed after {moment:.2f} of {spans[command]:.1f} s: {remains}", flush=True)
                    fleet.renew(*fleet.hosts)
                    before = {host: state(fleet, host) for host in fleet.hosts}
            for command, code in codes.items():
                process = start(fleet, command, folder)
                output, _ = process.communicate(timeout=300)
                if process.returncode != code:
                    failed += 1
                    print(f"{command} ends with {process.returncode}, and {code} before:\n{output[-800:]}")
        finally:
            fleet.down()
    return failed
