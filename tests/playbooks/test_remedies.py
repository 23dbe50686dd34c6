"""Every playbook that software can carry out mends its fault on a real host, for good, and can be taken back.

Many faults are put into one fleet at once. All playbooks are run, so they also prove that they go together; what each
of them did is looked at by itself.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest

from doctor.remedy.catalog import load_playbooks
from doctor.remedy.playbook import Playbook
from tests.conftest import PREPARED
from tests.faults.gpus import RING, element
from tests.faults.versions import SITE, job, renamed
from tests.hosts.fleet import Fleet, merge
from tests.hosts.npu import npu_fleet
from tests.playbooks.cases import CASES, RULES, UFW, Case
from tests.playbooks.drive import Driver

ROOT = Path(__file__).parents[2]
BOOKS: dict[str, Playbook] = {one.name: one for one in load_playbooks()}
ENVIRON = {"cpu": {"MASTER_ADDR": "sb0004", "MASTER_PORT": "31000"}, "a2": {}}
PAM = "auth required pam_permit.so\naccount required pam_permit.so\nsession required pam_limits.so\n"
LOGIN: dict[str, Any] = {
    "sshd": ["UsePAM yes"],
    "files": {"/etc/pam.d/sshd": PAM, "/etc/security/limits.conf": "root soft nofile 16384\n"},
}
"""Logins go through PAM, as everywhere: limits come from it."""

LOOK = """\
find /etc -type f -printf '%p %m %U:%G\\n' | sort
find /etc -type f ! -name '*-' ! -name '*.lock' ! -name .pwd.lock -exec sha256sum {} + | sort -k 2
for f in net/core/somaxconn net/ipv4/tcp_max_syn_backlog net/ipv4/ip_local_reserved_ports \\
    net/ipv4/ip_local_port_range net/netfilter/nf_conntrack_max; do echo "$f $(cat /proc/sys/$f)"; done
nft -s list ruleset 2>&1 | grep -v '^# Warning'
iptables-legacy-save | grep -v '^#' | sed 's/\\[.*//'
findmnt -n -o OPTIONS /dev/shm
if cd /run/npu 2>/dev/null; then
    grep -rT '' . --exclude=calls --exclude=lock --exclude=cfg_status --exclude=tls_expiry | sort
fi
"""
"""All of a host that a playbook may change."""

BOOT = """\
if test -s /etc/fstab && grep -q /dev/shm /etc/fstab; then
    mount -o remount,"$(awk '$2 == "/dev/shm" { print $4 }' /etc/fstab)" /dev/shm
fi
sysctl --system >/dev/null 2>&1 || true
if grep -q ENABLED=yes /etc/ufw/ufw.conf; then ufw --force enable >/dev/null; fi
if test -f /etc/iptables/rules.v4; then iptables{kind}-restore </etc/iptables/rules.v4; fi
if test -f /etc/nftables.conf; then nft -f /etc/nftables.conf; fi
if test -f /etc/chrony.state; then chronyc -a makestep; fi
if test -f /etc/hccn.conf; then /usr/local/Ascend/driver/tools/hccn_tool -a -cfg recovery >/dev/null; fi
"""
"""What a host does with its files when it starts."""


@dataclass
class Course:
    """What became of a fleet: broken, mended, taken back, mended again, restarted."""

    hosts: tuple[str, ...]
    broken: dict[str, Any] = field(default_factory=dict)
    before: dict[str, list[str]] = field(default_factory=dict)
    during: dict[str, list[str]] = field(default_factory=dict)
    mended: dict[str, Any] = field(default_factory=dict)
    left: dict[Case, list[str]] = field(default_factory=dict)
    after: dict[str, list[str]] = field(default_factory=dict)
    restarted: dict[str, Any] = field(default_factory=dict)

    def found(self, report: dict[str, Any], check: str, host: str) -> list[dict[str, Any]]:
        outcome = next(one for one in report["outcomes"] if one["check"] == check)
        return [one["values"] for one in outcome["findings"] if host in one["hosts"]]


def said(report: dict[str, Any]) -> list[tuple[Any, ...]]:
    """All that is not well."""
    found: list[tuple[Any, ...]] = [
        (one["check"], each["hosts"], each["message"]) for one in report["outcomes"] for each in one["findings"]
    ]
    return found + [(one["check"], one["unknown"]) for one in report["outcomes"] if one["unknown"] or one["crashed"]]


def check(fleet: Fleet, environ: dict[str, str], *more: str) -> dict[str, Any]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "HCCL", "RANK"))}
    words = [
        sys.executable,
        "-m",
        "doctor",
        "check",
        ",".join(fleet.hosts),
        "-F",
        str(fleet.ssh_config),
        "--json",
        *more,
    ]
    done = fleet.run(words, env={**clean, **environ}, text=False, cwd=ROOT, timeout=100)
    assert done.stdout, done.stderr.decode()
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def put_in(fleet: Fleet, cases: list[Case], stack: ExitStack) -> None:
    for number, host in enumerate(fleet.hosts):
        scripts = [f"(\n{one.fault}\n)" for one in cases if one.host == number]
        stack.enter_context(fleet.broken(host, "set -e\n" + "\n".join(scripts)))


def mend(fleet: Fleet, cases: list[Case], course: Course) -> dict[Case, Driver]:
    drivers = {one: Driver(fleet, fleet.hosts[one.host]) for one in cases}
    for one, driver in drivers.items():
        found = [values for name in one.checks for values in course.found(course.broken, name, driver.host)]
        driver.apply(BOOKS[one.playbook], [{**values, "host": driver.host, "hosts": [driver.host]} for values in found])
    return drivers


def restart(fleet: Fleet, cases: list[Case], folder: Path) -> None:
    """Every host anew, as it was broken at first, with the files that it has now: what it does with them counts."""
    for number, host in enumerate(fleet.hosts):
        files = fleet.enter(host, "tar -C / -c etc", text=False).stdout
        fleet.renew(host)
        mine = [one for one in cases if one.host == number]
        script = "\n".join(f"(\n{one.fault}\n)" for one in mine if not one.leaves)
        with (folder / "said").open("w+") as said:
            fleet.enter(host, "set -e\n" + script, stdout=said, stderr=said)
        fleet.enter(host, "tar -C / -x", input=files, text=False)
        kind = "-legacy" if any("iptables-legacy" in one.fault for one in mine) else "-nft"
        fleet.enter(host, "set -e\n" + BOOT.replace("{kind}", kind))


@pytest.fixture(scope="module")
def courses(make_fleet: Callable[..., Fleet], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Course]:
    """The course of a kind of fleet, which is run once."""

    @functools.cache
    def run(kind: str) -> Course:
        npus = npu_fleet("A2", 4) if kind == "a2" else {}
        names = [f"sb{number:04d}" for number in range(1, 5)]
        fleet = make_fleet(4, {name: merge(PREPARED, LOGIN, npus.get(name, {})) for name in names}, shm="4g")
        try:
            return taken(fleet, kind, tmp_path_factory.mktemp("restart"))
        finally:
            fleet.down()

    return run


def taken(fleet: Fleet, kind: str, folder: Path) -> Course:
    cases = [one for one in CASES if one.fleet == kind]
    made = Course(fleet.hosts)
    with ExitStack() as stack:
        put_in(fleet, cases, stack)
        made.broken = check(fleet, ENVIRON[kind])
        made.before = looked(fleet)
        drivers = mend(fleet, cases, made)
        made.during = looked(fleet)
        made.mended = check(fleet, ENVIRON[kind])
        made.left = {one: driver.undo() for one, driver in reversed(drivers.items())}
        made.after = looked(fleet)
        mend(fleet, [one for one in cases if not one.leaves], made)
        restart(fleet, cases, folder)
        made.restarted = check(fleet, ENVIRON[kind])
    return made


def looked(fleet: Fleet) -> dict[str, list[str]]:
    return {host: fleet.enter(host, LOOK).stdout.splitlines() for host in fleet.hosts}


KINDS = ("cpu", "a2")
RULE = re.compile(r"(table |-A |:|\s+\S)")
"""A line of what nft and iptables-legacy-save print."""
pytestmark = pytest.mark.hosts


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.fleet}-{case}")
def test_the_playbook_fixes_the_fault(courses: Callable[[str], Course], case: Case) -> None:
    course = courses(case.fleet)
    host = course.hosts[case.host]
    for name in case.checks:
        assert course.found(course.broken, name, host)
        assert course.found(course.mended, name, host) == []


@pytest.mark.parametrize("kind", KINDS)
def test_all_of_them_together_leave_nothing_broken(courses: Callable[[str], Course], kind: str) -> None:
    """So no playbook breaks what another one, or the administrator, has set."""
    assert said(courses(kind).mended) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_fix_survives_a_restart(courses: Callable[[str], Course], kind: str) -> None:
    """All but what was ended or removed, which a restart does not bring back."""
    assert said(courses(kind).restarted) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_undo_leaves_every_file_setting_and_rule_as_it_was(courses: Callable[[str], Course], kind: str) -> None:
    course = courses(kind)
    for number, host in enumerate(course.hosts):
        traces = {f"./{one}" for case in CASES if (case.fleet, case.host) == (kind, number) for one in case.traces}
        before, after = (
            [line for line in lines[host] if line.partition(":")[0].strip() not in traces]
            for lines in (course.before, course.after)
        )
        assert after == before


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.fleet}-{case}")
def test_the_undo_reports_what_it_cannot_restore(courses: Callable[[str], Course], case: Case) -> None:
    left = courses(case.fleet).left[case]
    assert len(left) == bool(case.leaves)
    assert all(case.leaves in one for one in left)


@pytest.mark.parametrize("kind", KINDS)
def test_the_rules_that_were_there_stay_and_in_their_order(courses: Callable[[str], Course], kind: str) -> None:
    course = courses(kind)
    for host in course.hosts:
        rules, during = ([line for line in lines[host] if RULE.match(line)] for lines in (course.before, course.during))
        left = iter(during)
        assert [line for line in rules if line not in left] == []


@pytest.mark.parametrize("kind", ["cpu"])
def test_the_ports_are_opened_to_the_hosts_of_the_fleet_alone(courses: Callable[[str], Course], kind: str) -> None:
    course = courses(kind)
    for host in course.hosts:
        added = [line for line in course.during[host] if line not in course.before[host] and "dport" in line]
        assert added
        assert all("10.77.1." in line for line in added), added


# ---- those that need a fleet of another kind


def look(fleet: Fleet, name: str, *words: str) -> list[dict[str, Any]]:
    """The findings of one check."""
    report = check(fleet, {}, "--select", name, *words)
    return next(one["findings"] for one in report["outcomes"] if one["check"] == name)


def proven(fleet: Fleet, playbook: str, name: str, *words: str, state: str) -> None:
    """The check finds the fault on the second host, the playbook mends it, and the undo leaves ``state`` as before."""
    driver = Driver(fleet, fleet.hosts[1])
    before = driver.sh(state)[1]
    findings = look(fleet, name, *words)
    assert [one["hosts"] for one in findings] == [[driver.host]]
    driver.apply(BOOKS[playbook], [{**one["values"], "host": driver.host} for one in findings])
    assert driver.sh(state)[1] != before
    assert look(fleet, name, *words) == []
    assert driver.undo() == []
    assert driver.sh(state)[1] == before


@pytest.mark.parametrize("rules", [RULES, UFW], ids=["nftables", "ufw"])
def test_the_firewall_is_switched_off_and_on_again(fleet_cpu: Fleet, rules: str) -> None:
    with fleet_cpu.broken(fleet_cpu.hosts[1], rules):
        state = "nft -s list ruleset; cat /etc/ufw/ufw.conf"
        proven(fleet_cpu, "switch-firewall-off", "firewall-blocks-job", state=state)


FIREWALLD = os.environ.get("DOCTOR_FIREWALLD", "")
"""A tar file with firewalld's Debian packages unpacked, for a machine that should not have it installed."""
START = """\
grep -q messagebus /etc/passwd || echo 'messagebus:x:990:990::/nonexistent:/usr/sbin/nologin' >>/etc/passwd
grep -q messagebus /etc/group || echo 'messagebus:x:990:' >>/etc/group
ldconfig
cd /usr/share/polkit-1/actions && ln -sf org.fedoraproject.FirewallD1.server.policy.choice \\
    org.fedoraproject.FirewallD1.policy  # as the package's own script does
mkdir -p /run/dbus /etc/firewalld/zones
test -s /etc/machine-id || dbus-uuidgen >/etc/machine-id
dbus-daemon --system --fork
firewalld --nofork --nopid &
until firewall-cmd --state; do sleep 0.1; done
firewall-cmd --add-port=53/udp
"""
"""The port is open for now alone: what the administrator has set so must not be forgotten."""


@pytest.mark.timeout(300)  # each firewall-cmd starts an interpreter
@pytest.mark.skipif(not FIREWALLD and not shutil.which("firewalld"), reason="firewalld is not installed")
def test_firewalld_opens_the_ports_now_and_for_good_and_closes_them_again(fleet_cpu: Fleet) -> None:
    host = fleet_cpu.hosts[1]
    if FIREWALLD:
        fleet_cpu.change(host, setup="true")
        fleet_cpu.enter(host, "tar -C / -x --keep-directory-symlink", input=Path(FIREWALLD).read_bytes(), text=False)
    state = (
        "firewall-cmd --list-all; firewall-cmd --permanent --list-all; find /etc/firewalld -type f -exec sha256sum {} +"
    )
    with fleet_cpu.broken(host) if not FIREWALLD else nullcontext():
        with TemporaryFile("w") as told:
            fleet_cpu.enter(host, START, stdout=told, stderr=told)
        proven(fleet_cpu, "open-job-ports", "firewall-blocks-job", state=state)
        assert "53/udp" in fleet_cpu.enter(host, "firewall-cmd --list-ports").stdout


def test_the_jobs_user_comes_into_the_group(fleet_a2: Fleet) -> None:
    for host in fleet_a2.hosts:
        fleet_a2.change(host, users={"ann": {"groups": ["HwHiAiUser"]}})
    with fleet_a2.broken(
        fleet_a2.hosts[1], "sed -i '/^HwHiAiUser:/s/ann//' /etc/group; echo 'HwHiAiUser:!::' >>/etc/gshadow"
    ):
        state = "cat /etc/group /etc/gshadow"
        proven(fleet_a2, "let-user-open-npus", "npu-user-not-in-group", "--user", "ann", state=state)


MODPROBE = """\
#!/bin/sh
case $* in
nvidia)
    mkdir /proc/driver/nvidia
    echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15' >/proc/driver/nvidia/version ;;
'-r nvidia') rm -r /proc/driver/nvidia ;;
*) exit 1 ;;
esac
"""


def test_the_gpu_driver_is_loaded(fleet_gpu: Fleet) -> None:
    with fleet_gpu.broken(fleet_gpu.hosts[1], path={"modprobe": MODPROBE}, setup="rm -r /proc/driver/nvidia"):
        proven(fleet_gpu, "load-gpu-driver", "gpu-driver-not-loaded", state="ls /proc/driver")


PEERMEM = """\
#!/bin/sh
case $* in
nvidia-peermem) mount -t tmpfs none /sys/module; mkdir /sys/module/nvidia_peermem ;;
'-r nvidia-peermem') umount /sys/module ;;
*) exit 1 ;;
esac
"""
ETHTOOL = f"""{RING}
cat >/usr/local/sbin/ethtool <<'END'
#!/bin/sh
read -r now most </run/kernel/rings/$2
case $1 in
-g) printf 'Ring parameters for %s:\\n' "$2"
    printf '%s\\nRX:\\t\\t%s\\nTX:\\t\\t%s\\n' 'Pre-set maximums:' $most $most 'Current hardware settings:' $now 512 ;;
-G) echo "$4 $most" >/run/kernel/rings/$2 ;;
esac
END
chmod 755 /usr/local/sbin/ethtool
"""
GPU_FAULTS = {
    "receive-ring-full": ("enlarge-receive-rings", ETHTOOL),
    "gpu-persistence-off": ("switch-persistence-on", element(1, "persistence_mode", "Enabled", "Disabled")),
    "fabric-manager-not-running": (
        "start-fabric-manager",
        "echo inactive >/run/fabric; sed -i 's|<state>Completed|<state>N/A|' /run/gpu/[0-9].xml",
    ),
    "gpu-direct-rdma-off": ("load-peer-memory", "sed -i s/Open// /proc/driver/nvidia/version"),
    "cpu-governor-slow": (
        "set-cpu-governor",
        "echo powersave >/sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
    ),
    "numa-balancing-on": ("switch-numa-balancing-off", "echo 1 >/proc/sys/kernel/numa_balancing"),
}
"""By check: the playbook, and the fault."""
GPU_STATE = """\
ls -d /sys/module/nvidia_peermem 2>/dev/null || echo no module
cat /sys/devices/system/cpu/cpufreq/policy0/scaling_governor /proc/sys/kernel/numa_balancing /run/fabric
cat /run/kernel/rings/eth100
grep -c persistence_mode.Disabled /run/gpu/*.xml
grep -rs . /etc/tmpfiles.d /etc/modules-load.d /etc/sysctl.d || true
"""


def test_hosts_with_gpus_are_set_up_and_back_again(fleet_gpu: Fleet) -> None:
    """All faults at once: the playbooks fix them without touching one another's, and the undo leaves all as it was."""
    host = fleet_gpu.hosts[1]
    words = [word for name in GPU_FAULTS for word in ("--select", name)]
    with fleet_gpu.broken(host, "\n".join(fault for _, fault in GPU_FAULTS.values()), path={"modprobe": PEERMEM}):
        driver = Driver(fleet_gpu, host)
        before = driver.sh(GPU_STATE)[1]
        report = check(fleet_gpu, {}, *words)
        assert {row[0] for row in said(report)} == set(GPU_FAULTS)
        for outcome in report["outcomes"]:
            if outcome["findings"]:
                values = [{**one["values"], "host": host} for one in outcome["findings"]]
                driver.apply(BOOKS[GPU_FAULTS[outcome["check"]][0]], values)
        assert said(check(fleet_gpu, {}, *words)) == []
        assert driver.undo() == []
        assert driver.sh(GPU_STATE)[1] == before


PIP = """\
cat >$(echo {site})/pip.py <<'END'
import glob, os, sys
wanted = "1.26.4" if sys.argv[1:] == ["install", "numpy<2"] else sys.argv[2].partition("==")[2]
(old,) = glob.glob(os.path.dirname(__file__) + "/numpy-*.dist-info")
os.rename(old, os.path.dirname(old) + "/numpy-" + wanted + ".dist-info")
END
"""


def test_numpy_goes_back_to_version_1(fleet_a2: Fleet, tmp_path: Path) -> None:
    words = job(fleet_a2, tmp_path, True).words
    fleet_a2.enter(fleet_a2.hosts[1], renamed("numpy-1.26.4", "numpy-2.0.2") + "; " + PIP.format(site=SITE))
    proven(fleet_a2, "install-older-numpy", "numpy-too-new", *words, state=f"ls -d {SITE}/numpy-*")


IN_USE = """\
head -c 4096 /dev/zero >/dev/shm/open; head -c 4096 /dev/zero >/dev/shm/mapped; head -c 4096 /dev/zero >/dev/shm/idle
ipcmk -M 4096 >/dev/null; ipcmk -M 4096 >/dev/null
mkfifo /run/held
python3 - >/dev/null 2>&1 <<'END' &
import ctypes, mmap, os, signal
kept = open("/dev/shm/open")
fd = os.open("/dev/shm/mapped", os.O_RDWR)
mapped = mmap.mmap(fd, 4096)
os.close(fd)
attach = ctypes.CDLL(None).shmat
attach.restype = ctypes.c_void_p
attach(ctypes.c_int(0), None, 0)
with open("/run/held", "w") as ready:
    ready.write("ready")
signal.pause()
END
cat /run/held
"""


def test_shared_memory_that_somebody_uses_again_is_left_alone(fleet_cpu: Fleet) -> None:
    with fleet_cpu.broken(fleet_cpu.hosts[1], IN_USE):
        driver = Driver(fleet_cpu, fleet_cpu.hosts[1])
        objects = ["/dev/shm/open", "/dev/shm/mapped", "/dev/shm/idle", "/dev/shm/gone", "0", "1", "77"]
        driver.apply(BOOKS["remove-stale-segments"], [{"objects": objects, "names": objects}])
        left = driver.sh("ls /dev/shm; tail -n +2 /proc/sysvipc/shm | awk '{ print $2 }'")[1]
        assert left.split() == ["mapped", "open", "0"]


def test_error_correction_is_switched_on_where_the_npu_decides(fleet_a1: Fleet) -> None:
    host = fleet_a1.hosts[1]
    with fleet_a1.broken(host, "echo no >/run/npu/3/fec; echo encoding_3=no >>/etc/hccn.conf"):
        driver = Driver(fleet_a1, host)
        driver.apply(BOOKS["switch-fec-on"], [one["values"] for one in look(fleet_a1, "fec-off")])
        assert look(fleet_a1, "fec-off") == []
        assert "no documented way" in driver.undo()[0]
        assert "encoding_3=no" in fleet_a1.read(host, "/etc/hccn.conf")


ALONE = {"switch-firewall-off", "let-user-open-npus", "load-gpu-driver", "install-older-numpy", "switch-fec-on"}
ALONE |= {playbook for playbook, _ in GPU_FAULTS.values()}


def test_every_playbook_that_changes_something_is_tried_here() -> None:
    assert {one.name for one in BOOKS.values() if not one.manual} == {one.playbook for one in CASES} | ALONE
