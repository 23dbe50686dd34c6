"""`doctor fix` on real hosts: what it changes is proven, can be taken back byte for byte, and is never half told."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.hosts.fleet import Fleet
from tests.regen import schema_file

pytestmark = pytest.mark.hosts
ROOT = Path(__file__).resolve().parents[2]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("DOCTOR_", "SLURM_", "RANK_"))}
FILE, CREATED_FILE = "/etc/site.conf", "/etc/site.d/deep/queues.conf"
KEPT = "# ours\nsomaxconn = 1\n\xe9 last line without an end"
SEE = f"""sysctl -n net.core.somaxconn; stat -c '%a %u:%g' {FILE}; sha256sum <{FILE}
ls -R /etc/site.d 2>&1 || true; ls -a /etc | grep doctor || true"""

QUEUES = f"""
title = "Longer queues, for a test"
treats = ["listen-queue-short"]
who = "host admin"
risk = "low"
root = true

[[step]]
say = "Set it now"
before = "sysctl -n net.core.somaxconn"
run = "sysctl -w net.core.somaxconn=4096"
undo = 'sysctl -w net.core.somaxconn="$before"'

[[step]]
say = "Write it down"
file = "{FILE}"
line = "somaxconn = 4096"
replaces = '^somaxconn\\s*='

[[step]]
say = "and where nothing was"
file = "{CREATED_FILE}"
text = "wanted {{expected}} on {{host}}\\n"
mode = "0640"
"""
OTHER = f"""
title = "A line more, for a test"
treats = ["syn-queue-short"]
who = "host admin"
risk = "none"
root = true

[[step]]
say = "Set the other now"
before = "sysctl -n net.ipv4.tcp_max_syn_backlog"
run = "sysctl -w net.ipv4.tcp_max_syn_backlog=4096"
undo = 'sysctl -w net.ipv4.tcp_max_syn_backlog="$before"'

[[step]]
say = "Write the other down"
file = "{FILE}"
line = "backlog = 4096"
"""
SLOW = """
title = "Steps that wait, for a test"
treats = ["listen-queue-short"]
who = "host admin"
risk = "none"
root = true

[[step]]
say = "Set it"
before = "sysctl -n net.core.somaxconn"
run = "sysctl -w net.core.somaxconn=2048"
undo = "sysctl -w net.core.somaxconn=128"

[[step]]
say = "Wait"
before = "sysctl -n net.core.somaxconn"
run = "echo begun >/run/begun; cat /run/gate; sysctl -w net.core.somaxconn=4096"
undo = "sysctl -w net.core.somaxconn=2048"

[[step]]
say = "Never come to"
before = "ls /run/too-far 2>/dev/null || :"
run = "touch /run/too-far"
undo = "rm -f /run/too-far"
"""
FAILING = """
title = "The second step fails, for a test"
treats = ["listen-queue-short"]
who = "host admin"
risk = "none"
root = true

[[step]]
say = "Set it, too low"
before = "sysctl -n net.core.somaxconn"
run = "sysctl -w net.core.somaxconn=129"
undo = "sysctl -w net.core.somaxconn=128"
"""
BROKEN = f"""
title = "The second step ends with an error, for a test"
treats = ["listen-queue-short"]
who = "host admin"
risk = "none"
root = true

[[step]]
say = "Write half of it"
file = "{FILE}"
line = "half = 1"

[[step]]
say = "End with an error"
before = "sysctl -n net.core.somaxconn"
run = "echo no room for it >&2; exit 3"
undo = ":"

[[step]]
say = "Never come to"
before = "ls /run/too-far 2>/dev/null || :"
run = "touch /run/too-far"
undo = "rm -f /run/too-far"
"""
ALONE = """
title = "What no other playbook touches, for a test"
treats = ["shm-too-small"]
who = "host admin"
risk = "none"
root = true

[[step]]
say = "Enlarge /dev/shm"
before = "findmnt -n -o OPTIONS /dev/shm | tr , '\\n' | grep ^size="
run = "mount -o remount,size=4g /dev/shm"
undo = 'mount -o "remount,$before" /dev/shm'
"""
MORE = {"broken": BROKEN, "alone": ALONE}


class Site:
    """Three hosts with short queues, and playbooks of a site."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.fleet, self.hosts, self.folder = fleet, fleet.hosts, folder
        self.books, self.state = folder / "books", folder / "state"
        self.books.mkdir()
        for name, text in {"queues": QUEUES, "other": OTHER, "slow": SLOW, "failing": FAILING, **MORE}.items():
            (self.books / f"{name}.toml").write_text(text)

    def argv(self, *arguments: str, program: tuple[str, ...] = ("-m", "doctor")) -> list[str]:
        more = ["-F", str(self.fleet.ssh_config), "--playbooks", str(self.books)]
        return [sys.executable, *program, "fix", *arguments, *more]

    def env(self) -> dict[str, str]:
        return {**CLEAN, "XDG_STATE_HOME": str(self.state)}

    def fix(self, *arguments: str, code: int = 0, **options: Any) -> str:
        """What it says on stdout; stderr when that is empty."""
        done = self.fleet.run(self.argv(*arguments, **options), env=self.env(), cwd=ROOT, stdin=subprocess.DEVNULL)
        assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        if "--json" in arguments and done.stdout:
            document = json.loads(done.stdout)
            jsonschema.validate(document, json.loads(schema_file(document["schema"]).read_text()))
        return str(done.stdout or done.stderr)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        argv = self.fleet.argv(self.argv(*arguments))
        out = subprocess.PIPE
        return subprocess.Popen(argv, env=self.env(), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, text=True)

    def ids(self) -> list[str]:
        return sorted(path.name for path in (self.state / "doctor" / "fix").iterdir())

    def journal(self, name: str) -> list[dict[str, Any]]:
        lines = (self.state / "doctor" / "fix" / name / "journal.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def sees(self, host: str) -> str:
        return str(self.fleet.enter(host, SEE).stdout)

    def queue(self, host: str) -> int:
        return int(self.fleet.enter(host, "sysctl -n net.core.somaxconn").stdout)

    def until(self, host: str, path: str) -> None:
        self.fleet.enter(host, f"until [ -e {path} ]; do sleep 0.05; done", timeout=100)


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    users = {
        "may": {"uid": 2001, "groups": [], "sudo": "nopasswd"},
        "asks": {"uid": 2002, "groups": [], "sudo": "password", "password": "not-this-one"},
    }
    short = {"net.core.somaxconn": 128, "net.ipv4.tcp_max_syn_backlog": 128}
    files = {FILE: {"text": KEPT, "mode": "604", "owner": "may:root"}}
    return make_fleet(3, {"*": {"users": users, "sysctl": short, "files": files}}, name="fix", shm="4g")


@pytest.fixture
def site(fleet: Fleet, tmp_path: Path) -> Iterator[Site]:
    """Its hosts are made anew after each test."""
    created_site = Site(fleet, tmp_path)
    with fleet.broken(fleet.hosts):
        yield created_site


@pytest.mark.every
def test_a_plan_changes_nothing_and_is_applied_as_it_was_shown(site: Site) -> None:
    hosts, sample_host = ",".join(site.hosts), site.hosts[0]
    was = [site.sees(host) for host in site.hosts]
    message = site.fix("queues", "-w", hosts)
    assert "$ sysctl -w net.core.somaxconn=4096" in message
    assert 'undo: before=128\n             sysctl -w net.core.somaxconn="$before"\n' in message
    assert "-somaxconn = 1\n" in message
    assert "+somaxconn = 4096\n" in message
    assert f"+wanted 256 on {sample_host}" in message
    assert [site.sees(host) for host in site.hosts] == was
    (plan,) = site.ids()
    assert "no terminal for the confirmation; expected --yes" in site.fix(plan, "--apply", code=2)

    output = site.fix(plan, "--apply", "--yes")
    for host in site.hosts:
        assert f"ok       {host}: listen-queue-short passes" in output
        assert site.queue(host) == 4096
        text = "# ours\nsomaxconn = 4096\n\xe9 last line without an end"
        assert site.fleet.read(host, FILE) == text
        assert site.fleet.enter(host, f"stat -c '%a %u:%g' {FILE}").stdout == "604 2001:0\n"
        assert site.fleet.read(host, CREATED_FILE) == f"wanted 256 on {host}\n"
        assert site.fleet.enter(host, f"stat -c %a {CREATED_FILE}").stdout == "640\n"
    first = [line for line in output.splitlines() if line.startswith(("applied", "ok"))]
    assert first[3] == f"ok       {sample_host}: listen-queue-short passes", (
        "the canary is proven before any other is touched"
    )
    assert "was applied already" in site.fix(plan, "--apply", "--yes", code=10)
    assert f"{plan}  3 hosts: applied, 9 steps in effect" in site.fix("--list")

    site.fix("--undo", plan, "--yes")
    assert [site.sees(host) for host in site.hosts] == was
    assert "Nothing to undo" in site.fix("--undo", plan, "--yes")


def test_the_journal_is_for_its_owner_alone_and_tells_who_did_what(site: Site) -> None:
    host = site.hosts[1]
    site.fix("queues", "-w", host, "--apply", "--yes", "--json")
    (plan,) = site.ids()
    folder = site.state / "doctor" / "fix" / plan
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    entries = site.journal(plan)
    assert [entry["kind"] for entry in entries] == ["began", *["step", "ended"] * 3, "proof", "finished"]
    assert {path.name for path in folder.iterdir()} == {"plan.json", "journal.jsonl", "undo.jsonl", "after.jsonl"}
    assert entries[0]["who"]
    assert (entries[1]["host"], entries[1]["command"]) == (host, "sysctl -w net.core.somaxconn=4096")
    assert entries[2]["output"].startswith("net.core.somaxconn = 4096")
    assert entries[-1]["code"] == 0


BOUNDARIES = ["3-", "3+", "4-", "5-", "6+", "7-", "10-", "10+"]
"""The writes of one host: began, then undo, step and ended of each of three steps."""


@pytest.mark.sample
@pytest.mark.parametrize("where", BOUNDARIES)
def test_a_fix_killed_at_any_step_is_reported_and_undone_exactly(fleet: Fleet, tmp_path: Path, where: str) -> None:
    site, host = Site(fleet, tmp_path), fleet.hosts[0]
    was = site.sees(host)
    killer = ("-m", "tests.fix.killed", where)
    site.fix("queues", "-w", host, "--apply", "--yes", code=-signal.SIGKILL, program=killer)
    (plan,) = site.ids()
    begun = [record for record in site.journal(plan) if record["kind"] == "step"]
    undone = json.loads(site.fix("--undo", plan, "--yes", "--json"))["steps"]
    assert site.sees(host) == was
    assert [step["undone"] for step in undone] == [True] * len(begun)
    assert [row["id"] for row in json.loads(site.fix("--list", "--json"))["plans"]] == [plan]
    assert "Nothing to undo" in site.fix("--undo", plan, "--yes")


def test_what_has_changed_since_the_plan_is_not_touched(site: Site) -> None:
    first, second, third = site.hosts
    document = json.loads(site.fix("queues", "-w", ",".join(site.hosts), "--json"))
    (plan,) = site.ids()
    assert (document["schema"], document["id"]) == ("doctor.plan/1", plan)
    site.fleet.enter(second, f"echo '# mine' >>{FILE}")
    site.fleet.enter(third, "sysctl -qw net.core.somaxconn=8192")
    was = [site.sees(host) for host in site.hosts]
    output = site.fix(plan, "--apply", "--yes", code=10)
    assert f"{second}: the state that “Write it down” changes is different now" in output
    assert f"{third}: the planned findings no longer exist" in output
    assert [site.sees(host) for host in site.hosts] == was, first


def test_a_saved_plan_goes_on_without_a_host_that_is_down(site: Site) -> None:
    first, second, third = site.hosts
    site.fix("queues", "-w", ",".join(site.hosts))
    (plan,) = site.ids()
    site.fleet.enter(second, "nft 'add table inet down; add chain inet down in { type filter hook input priority 0; }'")
    site.fleet.enter(second, "nft 'add rule inet down in tcp dport 22 reject with tcp reset'")
    output = site.fix(plan, "--apply", "--yes", code=10)
    assert f"{second}: not reached: " in output
    assert f"expected a new plan, or --exclude {second} for the other hosts" in output
    assert [site.queue(host) for host in site.hosts] == [128] * 3
    output = site.fix(plan, "--apply", "--yes", "--exclude", second, code=10)
    assert f"excluded, and not changed: {second}" in output
    assert "NOT FIXED: 2 of 3 hosts verified, 2 changed" in output
    assert [site.queue(host) for host in site.hosts] == [4096, 128, 4096]
    assert "on 2 of 3 hosts" in site.fix("--list")
    assert "UNDONE" in site.fix("--undo", plan, "--yes")
    assert [site.queue(host) for host in (first, third)] == [128, 128]


def test_from_a_saved_run_and_with_a_terminal_to_ask_on(site: Site) -> None:
    """It says what the answer is for, looks again after it, and knows later how the host was reached."""
    host, run = site.hosts[0], site.folder / "run.json"
    check = [sys.executable, "-m", "doctor", "check", host, "-F", str(site.fleet.ssh_config), "--save", str(run)]
    site.fleet.run([*check, "--select", "listen-queue-short"], env=site.env(), cwd=ROOT)
    ours, theirs = pty.openpty()
    answers = {"n": 10, "y": 0}
    for answer, code in answers.items():
        os.write(ours, f"{answer}\n".encode())
        argv = site.argv("queues", "--from", str(run), "--apply")
        done = site.fleet.run(argv, env=site.env(), cwd=ROOT, stdin=theirs)
        assert done.returncode == code, done.stderr
        assert "Apply this to 1 host? [y/N]" in done.stderr
        assert site.queue(host) == (4096 if code == 0 else 128)
    os.close(ours)
    os.close(theirs)
    argv = [sys.executable, "-m", "doctor", "fix", "--undo", site.ids()[-1], "--yes"]
    assert site.fleet.run(argv, env=site.env(), cwd=ROOT).returncode == 0
    assert site.queue(host) == 128


def test_two_fixes_compose_and_are_undone_the_newer_first(site: Site) -> None:
    host = site.hosts[0]
    was = site.sees(host)
    site.fix("queues", "-w", host, "--apply", "--yes")
    site.fix("other", "-w", host, "--apply", "--yes")
    older, newer = site.ids()
    assert "somaxconn = 4096" in site.fleet.read(host, FILE)
    assert site.fleet.read(host, FILE).endswith("an end\nbacklog = 4096\n")
    output = site.fix("--undo", older, "--yes", code=10)
    assert "was changed since, by a user or by a newer plan" in output
    assert "NOT UNDONE: 1 step still in effect" in output
    site.fix("--undo", newer, "--yes")
    site.fix("--undo", older, "--yes")
    assert site.sees(host).replace("backlog", "") == was


def test_a_host_that_cannot_be_written_is_said_to_be_before_anything_is_done(site: Site) -> None:
    host = site.hosts[0]
    site.fleet.enter(host, "mount --bind /etc /etc && mount -o remount,ro,bind /etc")
    output = site.fix("queues", "-w", host, "--apply", "--yes", code=10)
    assert f"{FILE}: the file system is read-only" in output
    assert site.queue(host) == 128


SMALL_SHM = "mount -o remount,size=16m /dev/shm"
SHM_SIZE = "findmnt -n -o OPTIONS /dev/shm | tr , '\\n' | grep ^size="


def test_a_playbook_that_fails_holds_back_those_that_depend_on_it_alone(site: Site) -> None:
    """What does not depend on it goes on and is proven; the other hosts are not begun, as behind every failure."""
    first, second, _ = site.hosts
    for host in (first, second):
        site.fleet.enter(host, SMALL_SHM)
    was = site.sees(first)
    output = site.fix("broken", "other", "alone", "-w", f"{first},{second}", "--apply", "--yes", code=10)
    assert f"applied  {first}: Write half of it\n" in output
    assert f"FAILED   {first}: “End with an error”: the command ended with 3: no room for it\n" in output
    assert f"held     {first}: other was not begun: broken was not applied, and both change {FILE}\n" in output
    assert f"applied  {first}: Enlarge /dev/shm\n" in output
    assert f"ok       {first}: shm-too-small passes\n" in output
    assert "listen-queue-short" not in output.split("Apply")[-1].split("FAILED")[-1], "nothing is proven of what failed"
    assert "not started: " in output
    assert "NOT FIXED: 0 of 2 hosts verified, 1 changed" in output
    assert site.fleet.enter(first, SHM_SIZE).stdout == "size=4194304k\n"
    assert site.fleet.enter(first, "sysctl -n net.ipv4.tcp_max_syn_backlog; ls /run").stdout.startswith("128\n")
    assert site.fleet.enter(second, SHM_SIZE).stdout == "size=16384k\n"
    site.fix("--undo", site.ids()[0], "--yes")
    assert site.sees(first) == was
    assert site.fleet.enter(first, SHM_SIZE).stdout == "size=16384k\n"


def test_a_playbook_that_does_not_fit_a_host_leaves_the_others_in_its_plan(site: Site) -> None:
    host = site.hosts[0]
    site.fleet.enter(host, f"{SMALL_SHM}; rm {FILE}; mkdir {FILE}")
    output = site.fix("queues", "other", "alone", "-w", host, code=10)
    assert "alone: What no other playbook touches" in output
    assert "queues: " not in output
    assert f"listen-queue-short: playbook queues, step 2: {FILE}: is not a regular file\n" in output
    assert f"syn-queue-short: playbook other, step 2: {FILE}: is not a regular file\n" in output
    output = site.fix(site.ids()[0], "--apply", "--yes", code=10)
    assert f"ok       {host}: shm-too-small passes\n" in output
    assert "some findings are not part of this plan" in output
    assert site.queue(host) == 128


def test_a_sysctl_that_cannot_be_set_ends_it_there_and_says_what_stands(site: Site) -> None:
    """As in a container, and on the canary: the others are not begun."""
    name, *others = site.hosts
    site.fleet.enter(name, "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys")
    output = site.fix("queues", "-w", ",".join(site.hosts), "--apply", "--yes", code=10)
    assert f"FAILED   {name}: “Set it now”: the command ended with" in output
    assert "permission denied" in output
    assert "not started: fix[0002-0003]" in output
    assert [site.queue(host) for host in others] == [128, 128]
    assert "already as before" in site.fix("--undo", site.ids()[0], "--yes")


def test_steps_that_do_not_turn_the_check_green_end_it(site: Site) -> None:
    first, second, _ = site.hosts
    output = site.fix("failing", "-w", ",".join(site.hosts), "--apply", "--yes", code=10)
    assert f"FAILED   {first}: listen-queue-short still fails: net.core.somaxconn is 129" in output
    assert "NOT FIXED: 0 of 3 hosts verified, 1 changed" in output
    assert site.queue(second) == 128


def test_root_comes_through_sudo_or_nothing_is_touched(site: Site) -> None:
    host = site.hosts[0]
    was = site.sees(host)
    output = site.fix("queues", "-w", host, "-l", "asks", "--apply", "--yes", code=10)
    assert "root is not available: sudo -n: a password is required" in output
    assert site.sees(host) == was
    output = site.fix("queues", "-w", host, "-l", "may", "--apply", "--yes")
    assert "as root through sudo -n" in output
    site.fix("--undo", site.ids()[-1], "--yes")
    assert site.sees(host) == was


def test_a_host_in_use_is_left_alone_without_force(site: Site) -> None:
    busy, free, rendering = site.hosts
    hold = "mknod /dev/davinci0 c 1 3; (exec 7</dev/davinci0; echo $$ >/run/held; sleep 60) >/dev/null 2>&1 &"
    site.fleet.enter(busy, hold)
    site.until(busy, "/run/held")
    tool = "printf '#!/bin/sh\\necho 1\\n' >/usr/local/sbin/nvidia-smi; chmod +x /usr/local/sbin/nvidia-smi"
    site.fleet.enter(rendering, f"mknod /dev/nvidia0 c 1 3; {tool}")
    output = site.fix("queues", "-w", ",".join(site.hosts), "--apply", "--yes", code=10)
    assert f"refused  {busy}: process" in output
    assert "uses an NPU (--force proceeds); the host was not changed" in output
    assert f"refused  {rendering}: process 1 (sshd, root) uses a GPU" in output
    assert f"ok       {free}: listen-queue-short passes" in output
    assert [site.queue(host) for host in (busy, rendering)] == [128, 128]
    site.fix("queues", "-w", busy, "--apply", "--yes", "--force")
    assert site.queue(busy) == 4096


def test_a_host_lost_midway_is_known_to_be_half_done(site: Site) -> None:
    host = site.hosts[0]
    site.fleet.enter(host, "mkfifo /run/gate")
    process = site.start("slow", "-w", host, "--apply", "--yes")
    site.until(host, "/run/begun")
    site.fleet.enter(host, "for p in $(pgrep -f '[s]shd:.*@notty'); do kill -9 $p; done")
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 10
    assert f"applied  {host}: Set it\n" in out
    assert "connection lost during “Wait”, which may or may not be complete" in out
    site.fleet.enter(host, "echo go >/run/gate")
    site.fix("--undo", site.ids()[0], "--yes")
    assert site.queue(host) == 128


@pytest.mark.every
def test_an_interrupt_lets_the_step_end_and_says_what_stands(site: Site) -> None:
    host = site.hosts[0]
    site.fleet.enter(host, "mkfifo /run/gate")
    process = site.start("slow", "-w", host, "--apply", "--yes")
    site.until(host, "/run/begun")
    process.send_signal(signal.SIGINT)
    site.fleet.enter(host, "echo go >/run/gate")
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 130, out
    assert f"applied  {host}: Wait" in out
    assert "interrupted before the next step" in out
    assert site.queue(host) == 4096
    assert site.fleet.enter(host, "ls /run").stdout.count("too-far") == 0
    site.fix("--undo", site.ids()[0], "--yes")
    assert site.queue(host) == 128


def test_a_step_that_a_dead_controller_began_is_waited_for(site: Site) -> None:
    """Killed while the host works: the step comes to its end there, and only then is it taken back."""
    host = site.hosts[0]
    site.fleet.enter(host, "mkfifo /run/gate")
    process = site.start("slow", "-w", host, "--apply", "--yes")
    site.until(host, "/run/begun")
    process.kill()
    process.communicate()
    undo = site.start("--undo", site.ids()[0], "--yes")
    time.sleep(0.5)
    assert undo.poll() is None
    site.fleet.enter(host, "echo go >/run/gate")
    out, _ = undo.communicate(timeout=100)
    assert undo.returncode == 0, out
    assert site.queue(host) == 128
