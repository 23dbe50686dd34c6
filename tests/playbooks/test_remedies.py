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

from doctor.facts.boot import FORMS
from doctor.remedy.catalog import load_playbooks
from doctor.remedy.playbook import Playbook
from tests.conftest import PREPARED
from tests.faults.gpus import RING, element
from tests.faults.versions import SITE, job, renamed
from tests.hosts.fleet import Fleet, merge
from tests.hosts.npu import npu_fleet
from tests.playbooks.cases import CASES, FIREWALLD, RULES, START_FIREWALLD, STOP_FIREWALLD, UFW, Case, enabled
from tests.playbooks.drive import Driver

ROOT = Path(__file__).parents[2]
BOOKS: dict[str, Playbook] = {playbook.name: playbook for playbook in load_playbooks()}
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
    net/ipv4/ip_local_port_range net/netfilter/nf_conntrack_max \\
    net/netfilter/nf_conntrack_buckets; do echo "$f $(cat /proc/sys/$f)"; done
nft -s list ruleset 2>&1 | grep -v '^# Warning'
iptables-legacy-save | grep -v '^#' | sed 's/\\[.*//'
findmnt -n -o OPTIONS /dev/shm
if cd /run/npu 2>/dev/null; then
    grep -rT '' . --exclude=calls --exclude=lock --exclude=cfg_status --exclude=tls_expiry | sort
fi
"""
"""All of a host that a playbook may change."""

BOOT = """\
ip link set lo up
if test -s /etc/fstab && grep -q /dev/shm /etc/fstab; then
    mount -o remount,"$(awk '$2 == "/dev/shm" { print $4 }' /etc/fstab)" /dev/shm
fi
sysctl --system >/dev/null 2>&1 || true
nft flush ruleset
if grep -q . /proc/net/ip_tables_names 2>/dev/null; then iptables-legacy -P INPUT ACCEPT; iptables-legacy -F; fi
starts() { test -e /etc/systemd/system/multi-user.target.wants/$1.service; }
if starts ufw && grep -q ENABLED=yes /etc/ufw/ufw.conf; then /lib/ufw/ufw-init start >/dev/null; fi
if starts netfilter-persistent; then iptables{kind}-restore </etc/iptables/rules.v4; fi
if starts nftables; then nft -f /etc/nftables.conf; fi
if test -f /etc/chrony.state; then chronyc -a makestep; fi
if test -f /etc/hccn.conf; then /usr/local/Ascend/driver/tools/hccn_tool -a -cfg recovery >/dev/null; fi
"""
"""What a host does with its files when it starts; systemd takes lo up itself (src/shared/loopback-setup.c)."""


@dataclass
class Course:
    """What became of a fleet: broken, mended, taken back, mended again, restarted."""

    hosts: tuple[str, ...]
    broken: dict[str, Any] = field(default_factory=dict)
    before: dict[str, list[str]] = field(default_factory=dict)
    during: dict[str, list[str]] = field(default_factory=dict)
    mended: dict[str, Any] = field(default_factory=dict)
    remaining: dict[Case, list[str]] = field(default_factory=dict)
    after: dict[str, list[str]] = field(default_factory=dict)
    computed: dict[str, Any] = field(default_factory=dict)
    """What the mended fleet's files say of a restart."""
    restarted: dict[str, Any] = field(default_factory=dict)

    def values_of(self, report: dict[str, Any], check: str, host: str) -> list[dict[str, Any]]:
        outcome = next(entry for entry in report["outcomes"] if entry["check"] == check)
        return [finding["values"] for finding in outcome["findings"] if host in finding["hosts"]]


def failures_in(report: dict[str, Any]) -> list[tuple[Any, ...]]:
    """All that is not well."""
    results: list[tuple[Any, ...]] = [
        (outcome["check"], each["hosts"], each["message"])
        for outcome in report["outcomes"]
        for each in outcome["findings"]
    ]
    return results + [
        (outcome["check"], outcome["unknown"])
        for outcome in report["outcomes"]
        if outcome["unknown"] or outcome["crashed"]
    ]


def check(fleet: Fleet, environ: dict[str, str], *more: str) -> dict[str, Any]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "HCCL", "RANK"))}
    arguments = [
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
    done = fleet.run(arguments, env={**clean, **environ}, text=False, cwd=ROOT, timeout=100)
    assert done.stdout, done.stderr.decode()
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def put_in(fleet: Fleet, cases: list[Case], stack: ExitStack) -> None:
    for number, host in enumerate(fleet.hosts):
        scripts = [f"(\n{entry.fault}\n)" for entry in cases if entry.host == number]
        stack.enter_context(fleet.broken(host, "set -e\n" + "\n".join(scripts)))


def mend(fleet: Fleet, cases: list[Case], course: Course) -> dict[Case, Driver]:
    drivers = {item: Driver(fleet, fleet.hosts[item.host]) for item in cases}
    for entry, driver in drivers.items():
        checks = [values for name in entry.checks for values in course.values_of(course.broken, name, driver.host)]
        driver.apply(
            BOOKS[entry.playbook], [{**values, "host": driver.host, "hosts": [driver.host]} for values in checks]
        )
    return drivers


def restart(fleet: Fleet, cases: list[Case]) -> None:
    """Every host anew, as it was broken at first, with the files that it has now: what it does with them counts."""
    for number, host in enumerate(fleet.hosts):
        mine = [entry for entry in cases if entry.host == number]
        script = "\n".join(f"(\n{entry.fault}\n)" for entry in mine if not entry.leaves)
        kind = "-legacy" if any("iptables-legacy" in entry.fault for entry in mine) else "-nft"
        start_again(fleet, host, script, BOOT.replace("{kind}", kind))


def start_again(fleet: Fleet, host: str, fault: str, boot: str, disk: str = "etc") -> None:
    """A host anew, broken as it was, with the files that are on its ``disk``."""
    files = fleet.enter(host, f"tar -C / -c {disk}", text=False).stdout
    fleet.renew(host)
    with TemporaryFile("w") as stream:
        fleet.enter(host, f"set -e\n{fault}", stdout=stream, stderr=stream)
        fleet.enter(host, "tar -C / -x --recursive-unlink", input=files, text=False)
        fleet.enter(host, f"set -e\n{boot}", stdout=stream, stderr=stream)


@pytest.fixture(scope="module")
def courses(make_fleet: Callable[..., Fleet]) -> Callable[[str], Course]:
    """The course of a kind of fleet, which is run once: one that failed is no other test's minutes again."""
    begun: set[str] = set()

    @functools.cache
    def run(kind: str) -> Course:
        assert kind not in begun, "the course failed in the first test that asked for it"
        begun.add(kind)
        npus = npu_fleet("A2", 4) if kind == "a2" else {}
        names = [f"sb{number:04d}" for number in range(1, 5)]
        fleet = make_fleet(4, {name: merge(PREPARED, LOGIN, npus.get(name, {})) for name in names}, shm="4g")
        try:
            return taken(fleet, kind)
        finally:
            fleet.down()

    return run


def taken(fleet: Fleet, kind: str) -> Course:
    cases = [entry for entry in CASES if entry.fleet == kind]
    course = Course(fleet.hosts)
    with ExitStack() as stack:
        put_in(fleet, cases, stack)
        course.broken = check(fleet, ENVIRON[kind])
        course.before = host_states(fleet)
        drivers = mend(fleet, cases, course)
        course.during = host_states(fleet)
        course.mended = check(fleet, ENVIRON[kind])
        course.remaining = {entry: driver.undo() for entry, driver in reversed(drivers.items())}
        course.after = host_states(fleet)
        mend(fleet, [entry for entry in cases if not entry.leaves], course)
        course.computed = check(fleet, ENVIRON[kind], "--after-reboot")
        restart(fleet, cases)
        course.restarted = check(fleet, ENVIRON[kind])
    return course


def host_states(fleet: Fleet) -> dict[str, list[str]]:
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
        assert course.values_of(course.broken, name, host)
        assert course.values_of(course.mended, name, host) == []


@pytest.mark.parametrize("kind", KINDS)
def test_all_of_them_together_leave_nothing_broken(courses: Callable[[str], Course], kind: str) -> None:
    """So no playbook breaks what another one, or the administrator, has set."""
    assert failures_in(courses(kind).mended) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_fix_survives_a_restart(courses: Callable[[str], Course], kind: str) -> None:
    """All but what was ended or removed, which a restart does not bring back."""
    assert failures_in(courses(kind).restarted) == []


@pytest.mark.parametrize("case", [case for case in CASES if not case.leaves], ids=lambda c: f"{c.fleet}-{c}")
def test_what_is_computed_for_a_restart_is_what_a_restart_shows(courses: Callable[[str], Course], case: Case) -> None:
    course = courses(case.fleet)
    host = course.hosts[case.host]
    for name in case.checks:
        outcome = next(entry for entry in course.computed["outcomes"] if entry["check"] == name)
        unknown = [entry for entry in outcome["unknown"] if host in entry["hosts"]]
        looked_at = name in FORMS
        assert (course.values_of(course.computed, name, host), unknown) == ([], [])
        assert (host in outcome["evaluated_hosts"], outcome["status"] == "skipped") == (looked_at, not looked_at)
        assert course.values_of(course.restarted, name, host) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_undo_leaves_every_file_setting_and_rule_as_it_was(courses: Callable[[str], Course], kind: str) -> None:
    course = courses(kind)
    for number, host in enumerate(course.hosts):
        traces = {f"./{trace}" for case in CASES if (case.fleet, case.host) == (kind, number) for trace in case.traces}
        before, after = (
            [line for line in lines[host] if line.partition(":")[0].strip() not in traces]
            for lines in (course.before, course.after)
        )
        assert after == before


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.fleet}-{case}")
def test_the_undo_reports_what_it_cannot_restore(courses: Callable[[str], Course], case: Case) -> None:
    remaining = courses(case.fleet).remaining[case]
    assert len(remaining) == bool(case.leaves)
    assert all(case.leaves in name for name in remaining)


@pytest.mark.parametrize("kind", KINDS)
def test_the_rules_that_were_there_stay_and_in_their_order(courses: Callable[[str], Course], kind: str) -> None:
    course = courses(kind)
    for host in course.hosts:
        rules, during = ([line for line in lines[host] if RULE.match(line)] for lines in (course.before, course.during))
        remaining = iter(during)
        assert [line for line in rules if line not in remaining] == []


@pytest.mark.parametrize("kind", ["cpu"])
def test_the_ports_are_opened_to_the_hosts_of_the_fleet_alone(courses: Callable[[str], Course], kind: str) -> None:
    course = courses(kind)
    for host in course.hosts:
        added = [line for line in course.during[host] if line not in course.before[host] and "dport" in line]
        # Gloo, of a job without accelerators, connects from the greater address: the greatest one is called by none.
        assert added or (kind == "cpu" and host == course.hosts[-1])
        assert all("10.77.1." in line for line in added), added


# ---- those that need a fleet of another kind


def look(fleet: Fleet, name: str, *arguments: str) -> list[dict[str, Any]]:
    """The findings of one check."""
    report = check(fleet, {}, "--select", name, *arguments)
    return next(outcome["findings"] for outcome in report["outcomes"] if outcome["check"] == name)


def proven(fleet: Fleet, playbook: str, name: str, *arguments: str, state: str, boot: str = "") -> None:
    """The check finds the fault on the second host, the playbook mends it, and the undo leaves ``state`` as before.

    ``boot``: what a start of the host does with its rules; what is computed for it is then found.
    """
    driver = Driver(fleet, fleet.hosts[1])
    before = driver.sh(state)[1]
    findings = look(fleet, name, *arguments)
    assert [finding["hosts"] for finding in findings] == [[driver.host]]
    driver.apply(BOOKS[playbook], [{**finding["values"], "host": driver.host} for finding in findings])
    assert driver.sh(state)[1] != before
    assert look(fleet, name, *arguments) == []
    if boot:
        assert look(fleet, name, "--after-reboot", *arguments) == []
        with TemporaryFile("w") as stream:
            fleet.enter(driver.host, boot, stdout=stream, stderr=stream)
        assert look(fleet, name, *arguments) == []
    assert driver.undo() == []
    assert driver.sh(state)[1] == before


@pytest.mark.parametrize("rules", [RULES, UFW], ids=["nftables", "ufw"])
def test_the_firewall_is_switched_off_and_on_again(fleet_cpu: Fleet, rules: str) -> None:
    with fleet_cpu.broken(fleet_cpu.hosts[1], rules):
        state = "nft -s list ruleset; cat /etc/ufw/ufw.conf"
        boot = f"set -e\n{BOOT.replace('{kind}', '-nft')}" if rules == UFW else ""  # those in no file go at a restart
        proven(fleet_cpu, "switch-firewall-off", "firewall-blocks-job", state=state, boot=boot)


UNSAVED = "firewall-cmd --add-port=53/udp"
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
        with TemporaryFile("w") as stream:
            fleet_cpu.enter(host, START_FIREWALLD + UNSAVED, stdout=stream, stderr=stream)
        proven(fleet_cpu, "open-job-ports", "firewall-blocks-job", state=state)
        assert "53/udp" in fleet_cpu.enter(host, "firewall-cmd --list-ports").stdout
        fleet_cpu.enter(host, enabled("firewalld"))
        kept, boot = "firewall-cmd --permanent --list-all", STOP_FIREWALLD + START_FIREWALLD
        proven(fleet_cpu, "open-job-ports", "firewall-blocks-job", state=kept, boot=boot)


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
    rm /run/gpu/says /run/gpu/code
    echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15' >/proc/driver/nvidia/version ;;
'-r nvidia')
    rm -r /proc/driver/nvidia
    echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver." >/run/gpu/says
    echo 9 >/run/gpu/code ;;
*) exit 1 ;;
esac
"""


def test_the_gpu_driver_is_loaded(fleet_gpu: Fleet) -> None:
    with fleet_gpu.broken(fleet_gpu.hosts[1], path={"modprobe": MODPROBE}, setup="modprobe -r nvidia"):
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
    gpu_faults = [word for name in GPU_FAULTS for word in ("--select", name)]
    with fleet_gpu.broken(host, "\n".join(fault for _, fault in GPU_FAULTS.values()), path={"modprobe": PEERMEM}):
        driver = Driver(fleet_gpu, host)
        before = driver.sh(GPU_STATE)[1]
        report = check(fleet_gpu, {}, *gpu_faults)
        assert {row[0] for row in failures_in(report)} == set(GPU_FAULTS)
        for outcome in report["outcomes"]:
            if outcome["findings"]:
                values = [{**finding["values"], "host": host} for finding in outcome["findings"]]
                driver.apply(BOOKS[GPU_FAULTS[outcome["check"]][0]], values)
        assert failures_in(check(fleet_gpu, {}, *gpu_faults)) == []
        assert driver.undo() == []
        assert driver.sh(GPU_STATE)[1] == before


GPU_BOOT = """
sed -n 's/^w //p' /etc/tmpfiles.d/*.conf | while read -r path _ _ _ _ value; do echo "$value" >$path; done
cat /etc/modules-load.d/*.conf | while read -r module; do modprobe "$module"; done
sed -n 's/^kernel.numa_balancing *= *//p' /etc/sysctl.d/99-zzz-doctor.conf >/proc/sys/kernel/numa_balancing
"""
"""What a host does with these files when it starts, as it was broken."""


def test_what_is_computed_for_hosts_with_gpus_is_what_a_restart_shows(fleet_gpu: Fleet) -> None:
    host = fleet_gpu.hosts[1]
    names = [name for name in GPU_FAULTS if name in FORMS and name != "fabric-manager-not-running"]  # no systemd here
    selected = [word for name in names for word in ("--select", name)]
    faults = "\n".join(GPU_FAULTS[name][1] for name in names)
    with fleet_gpu.broken(host, faults, path={"modprobe": PEERMEM}):
        driver = Driver(fleet_gpu, host)
        for outcome in check(fleet_gpu, {}, *selected)["outcomes"]:
            for finding in outcome["findings"]:
                driver.apply(BOOKS[GPU_FAULTS[outcome["check"]][0]], [{**finding["values"], "host": host}])
        computed = check(fleet_gpu, {}, *selected, "--after-reboot")
        fleet_gpu.enter(host, f"set -e\nif test -d /sys/module/nvidia_peermem; then umount /sys/module; fi\n{faults}")
        fleet_gpu.enter(host, GPU_BOOT)
        restarted = check(fleet_gpu, {}, *selected)
    found = [
        {
            outcome["check"]: any(host in finding["hosts"] for finding in outcome["findings"])
            for outcome in report["outcomes"]
            if outcome["check"] in names and not any(host in entry["hosts"] for entry in outcome["unknown"])
        }
        for report in (computed, restarted)
    ]
    assert found[0] == {name: found[1][name] for name in found[0]} and len(found[0]) > 1


PIP = """\
cat >$(echo {site})/pip.py <<'END'
import glob, os, sys
wanted = "1.26.4" if sys.argv[1:] == ["install", "numpy<2"] else sys.argv[2].partition("==")[2]
(old,) = glob.glob(os.path.dirname(__file__) + "/numpy-*.dist-info")
os.rename(old, os.path.dirname(old) + "/numpy-" + wanted + ".dist-info")
END
"""


def test_numpy_goes_back_to_version_1(fleet_a2: Fleet, tmp_path: Path) -> None:
    arguments = job(fleet_a2, tmp_path, True).arguments
    fleet_a2.enter(fleet_a2.hosts[1], renamed("numpy-1.26.4", "numpy-2.0.2") + "; " + PIP.format(site=SITE))
    proven(fleet_a2, "install-older-numpy", "numpy-too-new", *arguments, state=f"ls -d {SITE}/numpy-*")


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
        remaining = driver.sh("ls /dev/shm; tail -n +2 /proc/sysvipc/shm | awk '{ print $2 }'")[1]
        assert remaining.split() == ["mapped", "open", "0"]


def test_error_correction_is_switched_on_where_the_npu_decides(fleet_a1: Fleet) -> None:
    host = fleet_a1.hosts[1]
    with fleet_a1.broken(host, "echo no >/run/npu/3/fec; echo encoding_3=no >>/etc/hccn.conf"):
        driver = Driver(fleet_a1, host)
        driver.apply(BOOKS["switch-fec-on"], [record["values"] for record in look(fleet_a1, "fec-off")])
        assert look(fleet_a1, "fec-off") == []
        assert "no documented way" in driver.undo()[0]
        assert "encoding_3=no" in fleet_a1.read(host, "/etc/hccn.conf")


SERVICES = """\
cat >/usr/local/sbin/systemctl <<'END'
#!/bin/sh
for service; do :; done
state=$(cat /run/fabric 2>/dev/null || echo inactive)
case $1 in
show) printf 'LoadState=loaded\\nActiveState=%s\\n' "$state" ;;
is-active) echo "$state"; [ "$state" = active ] ;;
is-enabled) SYSTEMD_OFFLINE=1 exec /usr/bin/systemctl "$@" ;;
enable) SYSTEMD_OFFLINE=1 /usr/bin/systemctl enable "$service" && echo active >/run/fabric ;;
disable) SYSTEMD_OFFLINE=1 /usr/bin/systemctl disable "$service" && echo inactive >/run/fabric ;;
esac
END
chmod 755 /usr/local/sbin/systemctl
cat >/etc/systemd/system/nvidia-fabricmanager.service <<'END'
[Service]
ExecStart=true
[Install]
WantedBy=multi-user.target
END
"""
"""systemd's own program changes what is started at boot; a test host has no manager that it could ask."""
FABRIC = "if test -e /etc/systemd/system/multi-user.target.wants/nvidia-fabricmanager.service; then {}; fi"
FEC_OFF = """\
for npu in 0 1 2 4 5 6 7; do echo encoding_$npu=rs; done >>/etc/hccn.conf
echo no >/run/npu/3/fec; echo encoding_3=no >>/etc/hccn.conf
"""
OLD_NUMPY = renamed("numpy-1.26.4", "numpy-2.0.2") + "; " + PIP.format(site=SITE)
RESTARTED = {
    "switch-firewall-off": ("cpu", "firewall-blocks-job", SERVICES + RULES, BOOT.replace("{kind}", "-nft"), "etc"),
    "let-user-open-npus": (
        "a2",
        "npu-user-not-in-group",
        "sed -i '/^HwHiAiUser:/s/ann//' /etc/group",
        "true",
        "etc home",
    ),
    "switch-fec-on": ("a1", "fec-off", FEC_OFF, BOOT, "etc"),
    "start-fabric-manager": (
        "gpu",
        "fabric-manager-not-running",
        SERVICES + GPU_FAULTS["fabric-manager-not-running"][1],
        FABRIC.format("systemctl enable nvidia-fabricmanager"),
        "etc",
    ),
    "install-older-numpy": ("a2", "numpy-too-new", OLD_NUMPY, "true", "opt/job"),
}
"""By playbook: the fleet, the check, the fault, what a start of the host does, and what of its disk counts."""


@pytest.mark.parametrize("playbook", RESTARTED)
def test_what_one_of_them_leaves_after_a_restart_is_what_is_computed(
    request: pytest.FixtureRequest, playbook: str, tmp_path: Path
) -> None:
    kind, name, fault, boot, disk = RESTARTED[playbook]
    fleet: Fleet = request.getfixturevalue(f"fleet_{kind}")
    arguments = job(fleet, tmp_path, True).arguments if playbook == "install-older-numpy" else []
    if playbook == "let-user-open-npus":
        arguments = ["--user", "ann"]
        for host in fleet.hosts:
            fleet.change(host, users={"ann": {"groups": ["HwHiAiUser"]}})
    host = fleet.hosts[1]
    with fleet.broken(host, f"set -e\n{fault}"):
        driver, findings = Driver(fleet, host), look(fleet, name, *arguments)
        assert [finding["hosts"] for finding in findings] == [[host]]
        driver.apply(BOOKS[playbook], [{**finding["values"], "host": host} for finding in findings])
        computed = check(fleet, {}, "--select", name, "--after-reboot", *arguments)["outcomes"]
        start_again(fleet, host, fault if disk.startswith("etc") else "", boot, disk)
        shown = check(fleet, {}, "--select", name, *arguments)["outcomes"]
    for outcome in (*computed, *shown):
        if outcome["check"] == name:
            assert host in outcome["evaluated_hosts"]
            assert not [entry for entry in outcome["unknown"] if host in entry["hosts"]]
            assert [finding for finding in outcome["findings"] if host in finding["hosts"]] == []


ALONE = {"switch-firewall-off", "let-user-open-npus", "load-gpu-driver", "install-older-numpy", "switch-fec-on"}
ALONE |= {playbook for playbook, _ in GPU_FAULTS.values()}


def test_every_playbook_that_changes_something_is_tried_here() -> None:
    assert {playbook.name for playbook in BOOKS.values() if not playbook.manual} == {
        entry.playbook for entry in CASES
    } | ALONE
