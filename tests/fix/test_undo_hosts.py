"""What an administrator did after a fix is there after its undo: on real hosts, with every kind of step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fix.test_fix_hosts import FILE, Site
from tests.hosts.fleet import Fleet

pytestmark = pytest.mark.hosts
HEAD = """
title = "A test"
treats = ["listen-queue-short"]
who = "host admin"
risk = "low"
root = true
"""
EVERY = (
    HEAD
    + """
[[step]]
say = "Save the tool's file"
file = "/etc/tool.conf"
keep = true

[[step]]
say = "Save the zones"
file = "/etc/zones/*.xml"
keep = true

[[step]]
say = "Set it now"
before = "sysctl -n net.core.somaxconn"
run = '''
sysctl -w net.core.somaxconn=4096; echo "doctor 1" >/etc/tool.new; mv /etc/tool.new /etc/tool.conf
echo new >/etc/zones/new.xml; echo two >>/etc/zones/old.xml'''
undo = 'sysctl -w net.core.somaxconn="$before"; echo "tool 2" >>/etc/tool.conf'

[[step]]
say = "Write names"
file = "/etc/names"
filter = 'cat; printf "10.0.0.1 %s\\n" "$host"'
"""
)
SETUP = """
cd /etc; printf 'a\\nb\\n' >names.real; chmod 640 names.real; ln -s names.real names
printf 'kept\\n' >tool.real; chmod 604 tool.real; chown 7:8 tool.real; ln -s tool.real tool.conf
mkdir zones; echo one >zones/old.xml; chmod 600 zones/old.xml
"""
SEE = """cd /etc; sysctl -n net.core.somaxconn; for f in names names.real tool.conf tool.real zones/*; do
stat -c '%N %a %u:%g' $f; sha256sum <$f; done; ls -a /etc /etc/zones | grep doctor; ls /run | grep doctor; true"""
MERGE = ("--changed", "merge")


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet(1, {"*": {"sysctl": {"net.core.somaxconn": 128}}}, name="und", shm="4g")


@pytest.fixture
def site(fleet: Fleet, tmp_path: Path) -> Iterator[Site]:
    created_site = Site(fleet, tmp_path)
    (created_site.books / "every.toml").write_text(EVERY)
    with fleet.broken(fleet.hosts, "set -e" + SETUP):
        yield created_site


def see(site: Site) -> str:
    return str(site.fleet.enter(site.hosts[0], SEE).stdout)


def applied(site: Site, book: str = "every", *arguments: str) -> str:
    """The plan's id."""
    site.fix(book, "-w", site.hosts[0], "--apply", "--yes", *arguments)
    return site.ids()[-1]


@pytest.mark.every
def test_an_undo_is_exact_for_every_kind_of_step(site: Site) -> None:
    was = see(site)
    plan = applied(site)
    assert see(site) != was
    assert "doctor 1" in site.fleet.read(site.hosts[0], "/etc/tool.conf")
    site.fix("--undo", plan, "--yes")
    assert see(site) == was
    assert "Nothing to undo" in site.fix("--undo", plan, "--yes")


SECOND = (
    HEAD
    + """
[[step]]
say = "Save the tool's file"
file = "/etc/tool.conf"
keep = true

[[step]]
say = "Set the tool's mode"
before = "grep -c '^mode' /etc/tool.conf || true"
run = 'echo "mode $host" >>/etc/tool.conf'
undo = 'echo "mode none" >>/etc/tool.conf'

[[step]]
say = "Write the tool's zone"
file = "/etc/zones/old.xml"
line = "three"
"""
)


@pytest.mark.parametrize("order", [("every", "second"), ("second", "every")], ids="-".join)
def test_an_undo_is_exact_where_two_playbooks_change_one_file(site: Site, order: tuple[str, str]) -> None:
    (site.books / "second.toml").write_text(SECOND)
    was, host = see(site), site.hosts[0]
    site.fix(*order, "-w", host, "--apply", "--yes")
    assert "mode" in site.fleet.read(host, "/etc/tool.conf") and "doctor 1" in site.fleet.read(host, "/etc/tool.conf")
    site.fix("--undo", site.ids()[-1], "--yes")
    assert see(site) == was


def test_a_line_added_since_to_a_file_of_two_playbooks_is_never_lost(site: Site) -> None:
    (site.books / "second.toml").write_text(SECOND)
    host = site.hosts[0]
    site.fix("every", "second", "-w", host, "--apply", "--yes")
    site.fleet.enter(host, "echo mine >>/etc/tool.conf")
    site.fix("--undo", site.ids()[-1], "--yes", code=10)
    assert "mine" in site.fleet.read(host, "/etc/tool.conf")
    site.fix("--undo", site.ids()[-1], "--yes", "--changed", "merge")
    assert site.fleet.read(host, "/etc/tool.conf") == "kept\nmine\n"


CHANGES = {
    "a value": ("sysctl -qw net.core.somaxconn=32768", "sysctl -n net.core.somaxconn", "32768", "Set it now"),
    "a line of a file": ("echo 10.5.5.5 mine >>/etc/names", "grep mine /etc/names", "10.5.5.5 mine", "Write names"),
    "a line of a tool's file": (
        "echo mine >>/etc/tool.conf",
        "grep mine /etc/tool.conf",
        "mine",
        "Save the tool's file",
    ),
    "a file beside the tool's": ("echo dmz >/etc/zones/dmz2.xml", "cat /etc/zones/dmz2.xml", "dmz", ""),
    "a file that the tool made": (
        "echo more >>/etc/zones/new.xml",
        "tail -n 1 /etc/zones/new.xml",
        "more",
        "Save the zones",
    ),
    "a mode": ("chmod 600 /etc/names.real", "stat -c %a /etc/names.real", "600", ""),
    "a link": ("rm /etc/names; echo own >/etc/names", "cat /etc/names", "own", ""),
}


@pytest.mark.sample
@pytest.mark.parametrize("name", CHANGES)
def test_what_was_changed_since_is_never_lost(site: Site, name: str) -> None:
    change, read, expected, refused = CHANGES[name]
    host = site.hosts[0]
    plan = applied(site)
    site.fleet.enter(host, change)
    output = site.fix("--undo", plan, "--yes", code=10 if refused else 0)
    assert site.fleet.enter(host, read).stdout.strip() == expected
    if refused:
        assert f"FAILED   {host}: {refused} (" in output
        assert "was changed since, by a user or by a newer plan" in output
        assert "changed since:" in output or "as the fix left it:" in output
        assert "still in effect" in output
        site.fix("--undo", plan, "--yes", *MERGE, code=10 if name in ("a value",) else 0)
        assert site.fleet.enter(host, read).stdout.strip() == expected
        assert name == "a value" or "doctor" not in site.fleet.enter(host, "cat /etc/tool.conf /etc/names").stdout
        site.fix("--undo", plan, "--yes", "--changed", "skip")
        assert site.fleet.enter(host, read).stdout.strip() == expected


def test_what_was_changed_since_can_be_overwritten_by_choice(site: Site) -> None:
    host, was = site.hosts[0], see(site)
    plan = applied(site)
    site.fleet.enter(host, "sysctl -qw net.core.somaxconn=32768; echo mine >>/etc/names")
    output = site.fix("--undo", plan, "--yes", "--force", code=10)
    assert "before the fix:" in output and "  128" in output and "  32768" in output and "+mine" in output
    site.fix("--undo", plan, "--yes", "--changed", "overwrite")
    assert see(site) == was


def test_the_older_of_two_plans_can_be_undone_first(site: Site) -> None:
    """It takes back its own line alone, and so does the newer one."""
    host, was = site.hosts[0], site.fleet.read(site.hosts[0], "/etc/names")
    older = applied(site)
    (site.books / "second.toml").write_text(
        HEAD.replace("listen", "syn") + '[[step]]\nsay = "One more"\nfile = "/etc/names"\nline = "10.9.9.9 second"\n'
    )
    site.fleet.enter(host, "sysctl -qw net.ipv4.tcp_max_syn_backlog=64")
    site.fix("second", "-w", host, "--apply", "--yes", code=10)
    newer = site.ids()[-1]
    assert "by a newer plan" in site.fix("--undo", older, "--yes", code=10)
    site.fix("--undo", older, "--yes", *MERGE)
    assert site.fleet.read(host, "/etc/names") == was + "10.9.9.9 second\n"
    site.fix("--undo", newer, "--yes", *MERGE)
    assert site.fleet.read(host, "/etc/names") == was


@pytest.mark.parametrize("header", ["# Ansible managed: hosts.j2", "# This file is managed by Puppet. DO NOT EDIT"])
def test_a_file_of_a_configuration_management_is_left_alone_unless_named(site: Site, header: str) -> None:
    host = site.hosts[0]
    site.fleet.enter(host, f"echo '{header}' >{FILE}")
    output = site.fix("listen-queue-short", "-w", host, "--verbose")
    assert (
        f"“{header}” stands in {FILE}: change it where it comes from, or name the playbook: doctor fix queues" in output
    )
    assert f"the file says: “{header}”" in site.fix("queues", "-w", host)


def test_no_other_user_of_a_host_can_hold_its_lock(site: Site) -> None:
    """A name in the abstract space is anybody's; a file in /run is root's."""
    host = site.hosts[0]
    squat = "import socket, time; s = socket.socket(socket.AF_UNIX); s.bind('\\0doctor-fix-0')"
    squat += "; open('/tmp/up', 'w'); time.sleep(600)"
    site.fleet.enter(host, f'setpriv --reuid 65534 --clear-groups python3 -c "{squat}" >/dev/null 2>&1 &')
    site.until(host, "/tmp/up")
    plan = applied(site)
    site.fix("--undo", plan, "--yes")


@pytest.mark.parametrize("problem", ["mode", "owner", "link"])
def test_a_journal_that_another_user_could_have_written_is_not_run(site: Site, problem: str) -> None:
    plan = applied(site)
    folder = site.state / "doctor" / "fix" / plan
    if problem == "mode":
        folder.chmod(0o777)
    elif problem == "owner":
        import os

        os.chown(folder / "undo.jsonl", 65534, 65534)
    else:
        (folder / "undo.jsonl").rename(folder / "real")
        (folder / "undo.jsonl").symlink_to("real")
    output = site.fix("--undo", plan, "--yes", code=78)
    assert "others can write it" in output or "is owned by user 65534" in output or "is not a regular file" in output
    assert site.queue(site.hosts[0]) == 4096


def test_a_check_that_the_fix_turned_red_is_reported_and_ends_it(site: Site) -> None:
    host = site.hosts[0]
    (site.books / "harm.toml").write_text(
        HEAD
        + """
[[step]]
say = "Mend one, break another"
before = "sysctl -n net.core.somaxconn; sysctl -n net.ipv4.tcp_max_syn_backlog"
run = "sysctl -w net.core.somaxconn=4096 net.ipv4.tcp_max_syn_backlog=64 net.ipv4.tcp_syncookies=0"
undo = "true"
"""
    )
    output = site.fix("harm", "-w", host, "--apply", "--yes", code=10)
    assert f"ok       {host}: listen-queue-short passes" in output
    assert f"NEW      {host}: syn-queue-short failed since the fix, and passed before" in output


LISTENER = r"""
import os, socket, sys
log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
if os.path.exists("/dev/log"):
    os.unlink("/dev/log")
log.bind("/dev/log")
os.chmod("/dev/log", 0o666)
with open("/run/log-lines", "wb", 0) as lines:
    while True:
        lines.write(log.recv(4096) + b"\n")
"""
SECRET = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1cE3g"


def test_what_was_done_stands_in_the_log_of_the_host(site: Site) -> None:
    """An auditor of the host finds plan, user, step and outcome; no secret, and no line that a name forges."""
    host = site.hosts[0]
    book = f"""{HEAD}
[[step]]
say = "Set it now token={SECRET}"
before = "sysctl -n net.core.somaxconn"
run = "sysctl -w net.core.somaxconn=4096"
undo = 'sysctl -w net.core.somaxconn="$before"'
"""
    (site.books / "logged.toml").write_text(book)
    site.fleet.write(host, "/run/listener.py", LISTENER)
    site.fleet.enter(
        host, "setsid python3 /run/listener.py >/dev/null 2>&1 & until test -S /dev/log; do sleep 0.05; done"
    )
    site.fix("logged", "-w", host)
    plan = site.ids()[-1]
    site.fix(plan, "--apply", "--yes")
    site.fix("--undo", plan, "--yes")
    site.fleet.enter(host, "for _ in $(seq 100); do test $(wc -l </run/log-lines) -ge 3 && break; sleep 0.05; done")
    lines = site.fleet.read(host, "/run/log-lines").splitlines()
    bodies = [line.partition("]: ")[2] for line in lines]
    assert all(line.startswith("<37>doctor-fix[") for line in lines)
    assert all(body.startswith(f"plan {plan} by ") for body in bodies)
    assert [body.partition(": ")[2].split(" token=")[0] for body in bodies] == [
        "applied, up to 1 step",
        "logged: Set it now",
        "logged: Set it now",
    ]
    assert [body.rpartition(": ")[2] for body in bodies[1:]] == ["done", "undone"]
    assert SECRET not in "".join(lines)
