"""The test hosts are what they claim to be: real, apart from the machine and from one another, and gone afterwards."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.hosts import fleet as fleets
from tests.hosts import testbed
from tests.hosts.fleet import SSH, Fleet, merge, sweep

MakeFleet = Callable[..., Fleet]


def ssh_options(fleet: Fleet, *options: str) -> list[str]:
    return [*SSH, "-F", str(fleet.ssh_config), *options]


# ---- hosts are hosts


def test_hosts_are_reached_by_name_and_by_address(fleet_cpu: Fleet) -> None:
    assert fleet_cpu.hosts == ("sb0001", "sb0002", "sb0003", "sb0004")
    for name in fleet_cpu.hosts[:2]:
        for target in name, fleet_cpu.addresses[name]:
            completed = fleet_cpu.ssh(target, "hostname; cat /proc/1/comm; ls /sys/class/net | sort | xargs")
            assert (completed.stdout, completed.stderr, completed.returncode) == (f"{name}\nsshd\neth0 lo\n", "", 0)


def test_hosts_know_one_another_by_name(fleet_cpu: Fleet) -> None:
    completed = fleet_cpu.enter("sb0001", ["getent", "hosts", "sb0004"])
    assert completed.stdout.split() == [fleet_cpu.addresses["sb0004"], "sb0004"]
    fleet_cpu.enter(
        "sb0001", ["bash", "-c", "exec 3<>/dev/tcp/sb0002/22; read -r banner <&3; [[ $banner == SSH-2.0-* ]]"]
    )


def test_nothing_of_the_hosts_is_in_the_machines_network(fleet_cpu: Fleet) -> None:
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout
    assert not any(name in links for name in fleet_cpu.hosts)


def test_a_plain_host_has_no_accelerator(fleet_cpu: Fleet) -> None:
    completed = fleet_cpu.enter("sb0001", "ls -d /dev/davinci* /usr/local/Ascend /etc/hccn.conf /run/npu", check=False)
    assert completed.stdout == ""


# ---- hosts are apart


def test_each_host_has_a_dev_of_its_own(fleet_cpu: Fleet) -> None:
    before = sorted(os.listdir("/dev"))
    with fleet_cpu.broken("sb0001", devices={"davinci0": "660 root:daemon"}):
        listed = fleet_cpu.enter("sb0001", "ls -l /dev/davinci0; echo x >/dev/davinci0; head -c 1 /dev/davinci0").stdout
        assert listed.split()[:4] == ["crw-rw----", "1", "root", "daemon"]
        assert not pathlib.Path("/dev/davinci0").exists()
        assert fleet_cpu.enter("sb0002", "ls /dev").stdout.split() == [
            *("fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty"),
            *("urandom", "zero"),
        ]
    assert sorted(os.listdir("/dev")) == before


def test_the_hosts_dev_works(fleet_cpu: Fleet) -> None:
    fleet_cpu.enter("sb0001", "head -c 8 /dev/urandom >/dev/null; ! echo x >/dev/full; echo x >/dev/stdout")
    completed = fleet_cpu.run([*ssh_options(fleet_cpu, "-tt"), "sb0001", "tty; test -t 0 && test -t 1"])
    assert completed.stdout.startswith("/dev/pts/")
    assert completed.returncode == 0


def test_what_a_host_writes_nobody_else_sees(fleet_cpu: Fleet) -> None:
    place = "/usr/local/bin/written-on-one-host"
    for path in place, "/tmp/written-on-one-host", "/dev/shm/written-on-one-host", "/root/written", "/run/written":
        fleet_cpu.write("sb0001", path, "hello\n", mode="755")
        assert fleet_cpu.read("sb0001", path) == "hello\n"
        assert fleet_cpu.enter("sb0002", ["ls", path], check=False).returncode != 0
        assert not pathlib.Path(path).exists()


@pytest.mark.parametrize(
    ("name", "value"), [("net.core.somaxconn", "77"), ("kernel.shmmax", "123456"), ("vm.swappiness", "3")]
)
def test_sysctls_are_a_hosts_own(fleet_cpu: Fleet, name: str, value: str) -> None:
    path = "/proc/sys/" + name.replace(".", "/")
    machine, other = pathlib.Path(path).read_text(), fleet_cpu.read("sb0002", path)
    fleet_cpu.sysctl("sb0001", name, value)
    assert fleet_cpu.ssh("sb0001", f"cat {path}").stdout == value + "\n"
    fleet_cpu.sysctl("sb0001", name, int(value) + 1)
    assert fleet_cpu.read("sb0001", path) == f"{int(value) + 1}\n"
    assert pathlib.Path(path).read_text() == machine
    assert fleet_cpu.read("sb0002", path) == other


def test_firewalls_are_a_hosts_own(fleet_cpu: Fleet) -> None:
    machine = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True).stdout
    rules = "table inet f {\n chain in {\n  type filter hook input priority 0\n  tcp dport 29500 reject\n }\n}\n"
    with fleet_cpu.broken(["sb0001"], nft=rules):
        assert "29500" in fleet_cpu.enter("sb0001", ["nft", "list", "ruleset"]).stdout
        assert fleet_cpu.enter("sb0002", ["nft", "list", "ruleset"]).stdout == ""
        assert subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True).stdout == machine


def test_processes_are_a_hosts_own(fleet_cpu: Fleet) -> None:
    with fleet_cpu.broken("sb0001", "sleep 1234567 &"):
        assert "1234567" in fleet_cpu.enter("sb0001", ["ps", "-eo", "args"]).stdout
        assert "1234567" not in fleet_cpu.enter("sb0002", ["ps", "-eo", "args"]).stdout
    assert "1234567" not in fleet_cpu.enter("sb0001", ["ps", "-eo", "args"]).stdout


def test_files_in_sys_can_be_added_and_shown_otherwise(fleet_cpu: Fleet) -> None:
    new, old = "/sys/bus/pci/devices/0000:c1:00.0/device", "/sys/class/net/lo/address"
    fleet_cpu.write("sb0001", new, "0xd802\n")
    fleet_cpu.write("sb0001", old, "01:02:03:04:05:06\n")
    assert fleet_cpu.enter("sb0001", ["cat", new, old]).stdout == "0xd802\n01:02:03:04:05:06\n"
    assert not pathlib.Path(new).exists()
    assert pathlib.Path(old).read_text() == "00:00:00:00:00:00\n"


# ---- overrides


@pytest.fixture(scope="module")
def mixed(make_fleet: MakeFleet) -> Fleet:
    """Eight hosts, each out of the ordinary in ways of its own."""
    ann = {"groups": ["video"], "sudo": "nopasswd"}
    bob = {"uid": 2002, "sudo": "password", "password": "secret"}
    noise = ["welcome to this host", "come again"]
    overrides = {
        "*": {"groups": {"video": 1944}, "users": {"ann": ann, "bob": bob, "cat": {"uid": 2003}}},
        "sb0001": {"clock": -5.25, "limits": {"nofile": [1000, 2000], "memlock": [65536, 65536]}},
        "sb0002": {"python": False, "full_disk": True},
        "sb0003": {"shell": "/usr/bin/fish", "noise": noise, "disk": "16m"},
        "sb0004": {"shell": "/bin/csh", "noise": noise, "shm": "3m"},
        "sb0005": {"noise": noise, "share": "/run/npu"},
        "sb0006": {
            "share": "/run/npu",
            "files": {
                "/etc/motd": None,
                "/opt/tool": {"text": "#!/bin/sh\necho tool\n", "mode": "750", "owner": "ann:video"},
                "/run/npu/0/link": "DOWN\n",
            },
            "links": {"/opt/latest": "tool"},
            "path": {"nvidia-smi": "#!/bin/sh\necho 8\n"},
            "setup": "echo $$ >/etc/was-set-up",
            "sshd": ["SetEnv SITE=here"],
        },
        "sb0007": {"clock": 86400 * 400},
    }
    return make_fleet(8, overrides)


@pytest.mark.parametrize(("host", "offset"), [("sb0001", -5.25), ("sb0007", 86400 * 400), ("sb0008", 0)])
@pytest.mark.parametrize("as_user", ["", "ann@"])
def test_every_program_of_a_host_sees_its_clock(mixed: Fleet, host: str, offset: float, as_user: str) -> None:
    sudo = "sudo -n " if as_user else ""
    for ask in "python3 -c 'import time; print(time.time())'", f"{sudo}date +%s.%N":
        before = time.time()
        response = float(mixed.ssh(as_user + host, ask).stdout)
        assert before - 0.1 <= response - offset <= time.time() + 0.1


def test_a_wrong_clock_leaves_waiting_alone(mixed: Fleet) -> None:
    script = "import threading, time; t = time.monotonic(); threading.Event().wait(.05); print(time.monotonic() - t)"
    assert 0.04 < float(mixed.ssh("sb0001", f"python3 -c '{script}'").stdout) < 10


def test_a_clock_can_be_changed_while_the_host_runs(fleet_cpu: Fleet) -> None:
    with fleet_cpu.broken("sb0003", clock=3600):
        assert abs(int(fleet_cpu.ssh("sb0003", "date +%s").stdout) - time.time() - 3600) < 60
    assert abs(int(fleet_cpu.ssh("sb0003", "date +%s").stdout) - time.time()) < 60


def test_limits_hold_for_sessions(mixed: Fleet, fleet_cpu: Fleet) -> None:
    assert mixed.ssh("sb0001", "ulimit -Sn; ulimit -Hn; ulimit -l").stdout == "1000\n2000\n64\n"
    with fleet_cpu.broken("sb0004", limits={"nofile": [99, 100]}):
        assert fleet_cpu.ssh("sb0004", "ulimit -n").stdout == "99\n"


def test_python_can_be_missing(mixed: Fleet) -> None:
    completed = mixed.ssh(
        "sb0002", "python3 -V; for p in /usr/bin/python3 /usr/libexec/platform-python; do test -e $p; done"
    )
    assert "not found" in completed.stderr
    assert completed.returncode == 1
    assert mixed.ssh("sb0008", "python3 -V").stdout.startswith("Python 3.")


def test_the_disk_can_be_full(mixed: Fleet) -> None:
    for place in "/tmp/x", "/etc/x", "/root/x", "/run/x":
        completed = mixed.ssh("sb0002", f"echo more >{place}")
        assert "No space left on device" in completed.stderr
        assert completed.returncode == 1
    used = mixed.ssh("sb0002", "df --output=avail,pcent / /tmp").stdout.split()
    assert used == ["Avail", "Use%", "0", "100%", "0", "100%"]
    assert mixed.ssh("sb0002", "echo more >/dev/shm/x; df --output=avail /dev/shm").returncode == 0


def test_disk_and_shm_have_the_size_that_was_asked_for(mixed: Fleet) -> None:
    assert mixed.enter("sb0003", ["df", "--output=size", "/", "/tmp"]).stdout.split()[1:] == ["16384", "16384"]
    assert mixed.enter("sb0004", ["df", "--output=size", "/dev/shm"]).stdout.split()[1:] == ["3072"]


@pytest.mark.parametrize(
    ("host", "ask", "answer"), [("sb0003", "echo $fish_pid", "[0-9]+"), ("sb0004", "echo $shell", "/bin/csh")]
)
def test_root_can_have_another_login_shell(mixed: Fleet, host: str, ask: str, answer: str) -> None:
    lines = mixed.ssh(host, ask).stdout.splitlines()
    assert lines[0] == "welcome to this host"
    assert subprocess.run(["grep", "-Exq", answer], input=lines[1], text=True).returncode == 0


@pytest.mark.parametrize(
    ("host", "last"), [("sb0003", True), ("sb0004", False), ("sb0005", True), ("ann@sb0005", True)]
)
def test_startup_files_can_make_noise(mixed: Fleet, host: str, last: bool) -> None:
    expected = ["welcome to this host", "answer", *["come again"] * last]
    assert mixed.ssh(host, "echo answer").stdout.splitlines() == expected


def test_ordinary_users(mixed: Fleet) -> None:
    assert mixed.ssh("ann@sb0008", "id -un; id -nG; pwd").stdout == "ann\nann video\n/home/ann\n"
    assert mixed.ssh("ann@sb0008", "sudo -n id -un").stdout == "root\n"
    requested = mixed.ssh("bob@sb0008", "sudo -n id -un")
    assert (requested.returncode, requested.stdout, requested.stderr) == (1, "", "sudo: a password is required\n")
    assert mixed.ssh("bob@sb0008", "echo secret | sudo -S -p '' id -un").stdout == "root\n"
    assert mixed.ssh("cat@sb0008", "sudo -n id").returncode == 1


def test_files_links_and_scripts(mixed: Fleet) -> None:
    assert mixed.ssh("sb0006", "nvidia-smi").stdout == "8\n"
    assert (
        mixed.ssh("sb0006", "/opt/latest; stat -c '%a %U %G' /opt/tool; ls /etc/motd").stdout == "tool\n750 ann video\n"
    )
    assert mixed.ssh("sb0006", "echo $SITE; test -s /etc/was-set-up && echo yes").stdout == "here\nyes\n"


def test_hosts_can_share_a_directory(mixed: Fleet) -> None:
    assert (mixed.directory / "share/sb0006/0/link").read_text() == "DOWN\n"
    assert mixed.enter("sb0005", "ls /run/npu-all; cat /run/npu-all/sb0006/0/link").stdout == "sb0005\nsb0006\nDOWN\n"
    assert mixed.enter("sb0005", "echo UP >/run/npu-all/sb0006/0/link", check=False).returncode != 0
    assert "npu" not in mixed.enter("sb0001", "ls /run").stdout


def test_merge() -> None:
    record = {"files": {"/a": "1", "/b": "1"}, "nft": "x", "sshd": ["A 1"], "shm": "1m"}
    two = {"files": {"/b": "2"}, "nft": "y", "sshd": ["A 2"], "shm": "2m"}
    assert merge(record, two) == {"files": {"/a": "1", "/b": "2"}, "nft": "x\ny", "sshd": ["A 2", "A 1"], "shm": "2m"}
    assert record["files"] == {"/a": "1", "/b": "1"}


# ---- faults of the way to a host


@pytest.fixture(scope="module")
def faulty(make_fleet: MakeFleet) -> Iterator[Fleet]:
    """Eight hosts, each with one of the faults, and a good one."""
    fleet = make_fleet(9, {f"sb{i:04d}": {"fault": fault} for i, fault in enumerate(testbed.FAULTS, 1)})
    yield fleet
    fleet.down()


def host_with(fault: str) -> str:
    return f"sb{list(testbed.FAULTS).index(fault) + 1:04d}"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("refuse", "Connection refused"),
        ("drop", "Connection timed out"),
        ("silent", "Connection timed out during banner exchange"),
        ("wrong-key", "Host key verification failed"),
        ("deny", "Permission denied (publickey)"),
    ],
)
def test_hosts_that_no_command_reaches(faulty: Fleet, fault: str, message: str) -> None:
    completed = faulty.run([*ssh_options(faulty, "-o", "ConnectTimeout=1"), host_with(fault), "echo hi"])
    assert completed.returncode == 255
    assert completed.stdout == ""
    assert message in completed.stderr


def test_a_host_where_any_command_hangs(faulty: Fleet) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        faulty.ssh(host_with("hang"), "true", timeout=1)


def test_a_host_where_any_command_floods(faulty: Fleet) -> None:
    with subprocess.Popen(
        faulty.argv([*ssh_options(faulty), host_with("flood"), "true"]), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert len(process.stdout.read(5_000_000)) == 5_000_000
        process.kill()


def test_a_host_that_cuts_the_connection(faulty: Fleet) -> None:
    completed = faulty.ssh(host_with("cut"), "true")
    assert (completed.returncode, completed.stdout) == (255, "first line\n")


def test_a_host_next_to_faulty_ones_is_good(faulty: Fleet) -> None:
    assert faulty.ssh("sb0009", "echo hi").stdout == "hi\n"


@pytest.mark.parametrize("fault", ["refuse", "wrong-key", "deny"])
def test_a_good_host_can_get_a_fault_and_lose_it_again(fleet_cpu: Fleet, fault: str) -> None:
    with fleet_cpu.broken("sb0004", fault=fault):
        assert fleet_cpu.ssh("sb0004", "true").returncode == 255
        assert fleet_cpu.ssh("sb0003", "true").returncode == 0
    assert fleet_cpu.ssh("sb0004", "true").returncode == 0


# ---- breaking and mending


def test_a_broken_host_is_as_before_afterwards(fleet_cpu: Fleet) -> None:
    key, address = fleet_cpu.read("sb0001", "/etc/ssh/ssh_host_ed25519_key"), fleet_cpu.addresses["sb0001"]
    # not the number of the link at the other end, which is a new one, nor the column that its digits shift
    addresses = "ip -4 -br address | sed 's/@[^ ]*//; s/  */ /g'"
    look = f"cat /proc/sys/net/core/somaxconn /etc/hosts; {addresses}; nft list ruleset; ls / /etc /dev /tmp"
    before = fleet_cpu.enter("sb0001", look).stdout
    ruin = "rm /etc/hosts; ip address add 192.0.2.1/24 dev eth0; mount -t tmpfs none /usr/local; touch /etc/new"
    with pytest.raises(ZeroDivisionError), fleet_cpu.broken("sb0001", ruin, sysctl={"net.core.somaxconn": 5}):
        assert fleet_cpu.enter("sb0001", look, check=False).stdout != before
        raise ZeroDivisionError
    assert fleet_cpu.enter("sb0001", look).stdout == before
    assert fleet_cpu.read("sb0001", "/etc/ssh/ssh_host_ed25519_key") == key
    assert address in fleet_cpu.enter("sb0001", ["ip", "-br", "address"]).stdout


def test_a_script_that_fails_says_so_and_leaves_nothing(fleet_cpu: Fleet) -> None:
    with pytest.raises(AssertionError, match="exit status 3: sorry"), fleet_cpu.broken("sb0001", "echo sorry; exit 3"):
        pass
    with (
        fleet_cpu.broken("sb0001"),
        pytest.raises(AssertionError, match="broken already: sb0001"),
        fleet_cpu.broken(["sb0001", "sb0002"]),
    ):
        pass


def test_a_wrong_change_is_refused(fleet_cpu: Fleet) -> None:
    for overrides, message in (
        ({"fault": "hang"}, "cannot be changed in a running host: fault"),
        ({"nft": "nonsense"}, "syntax error"),
        ({"users": {"ann": {"groups": ["no-such-group"]}}}, "no-such-group"),
    ):
        with pytest.raises(testbed.Problem, match=message):
            fleet_cpu.change("sb0001", **overrides)


def test_mend_renews_only_what_was_touched(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(2)
    pids = [host["pid"] for host in testbed.load(fleet.directory)["hosts"]]
    fleet.write("sb0002", "/etc/new", "")
    with fleet.broken("sb0001", "touch /etc/new"):
        fleet.mend()
        assert fleet.read("sb0001", "/etc/new") == ""
        fleet.mend()
        assert testbed.load(fleet.directory)["hosts"][0]["pid"] == pids[0]
    assert testbed.load(fleet.directory)["hosts"][1]["pid"] != pids[1]
    assert fleet.enter("sb0002", ["ls", "/etc/new"], check=False).returncode != 0
    fleet.down()


def test_two_fleets_do_not_mix(fleet_cpu: Fleet, make_fleet: MakeFleet) -> None:
    second = make_fleet(1, {"*": {"files": {"/etc/which": "second\n"}}})
    assert second.hosts[0] == fleet_cpu.hosts[0]
    assert second.ssh("sb0001", "cat /etc/which").stdout == "second\n"
    assert fleet_cpu.ssh("sb0001", "cat /etc/which").returncode == 1
    second.down()
    assert fleet_cpu.ssh("sb0001", "true").returncode == 0


# ---- coming and going


def traces(fleet: Fleet) -> list[str]:
    """What is on the machine of a fleet: processes, network namespace, mounts, files."""
    result = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            mounts = (process / "mountinfo").read_text()
        except OSError:
            continue
        if str(fleet.directory) in mounts:
            result.append(process.name)
    return result + [str(path) for path in (fleet.directory, pathlib.Path("/run/netns", fleet.hub)) if path.exists()]


def own_mounts() -> list[str]:
    """The mounts of this process's fleets, and those of no fleet: other workers make fleets at the same time."""
    own_value, any_fleet = (
        re.compile(rf"doctor-{os.getpid()}-|/{os.getpid()}-\d"),
        re.compile(r"doctor-\d+-\d|doctor-hosts"),
    )
    lines = pathlib.Path("/proc/mounts").read_text().splitlines()
    return sorted(line for line in lines if own_value.search(line) or not any_fleet.search(line))


def own_leavings() -> tuple[list[pathlib.Path], list[pathlib.Path]]:
    """The network namespaces and the folders of this process's fleets."""
    namespaces = pathlib.Path("/run/netns").glob(f"doctor-{os.getpid()}-*")
    return sorted(namespaces), sorted(fleets.BASE.glob(f"{os.getpid()}-*"))


def test_nothing_is_left_after_down(make_fleet: MakeFleet) -> None:
    mounts, devices = own_mounts(), sorted(pathlib.Path("/dev").iterdir())
    fleet = make_fleet(3, {"*": {"devices": {"davinci0": "666"}, "setup": "setsid sleep 4321 >/dev/null 2>&1 &"}})
    assert len(traces(fleet)) > 3
    hosts = testbed.load(fleet.directory)["hosts"]
    argv = fleet.argv([*ssh_options(fleet), "sb0001", "echo connected; sleep 1000"])
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as client:
        assert client.stdout and client.stdout.readline() == b"connected\n"
        fleet.down()
        client.wait(20)  # its connection is gone
    assert traces(fleet) == []
    assert not any(testbed.alive(host["pid"], host["start"]) for host in hosts)
    assert [
        line for line in pathlib.Path("/proc/mounts").read_text().splitlines() if str(fleet.directory) in line
    ] == []
    assert own_mounts() == mounts
    assert sorted(pathlib.Path("/dev").iterdir()) == devices
    fleet.down()  # a second time is no error


def test_hosts_that_do_not_start_leave_nothing(make_fleet: MakeFleet) -> None:
    before = own_leavings()
    for overrides, message in (
        ({"sb0002": {"setup": "echo no luck >&2; false"}}, "sb0002: sh -ec .*no luck"),
        ({"*": {"colour": "red"}}, "unknown override colour"),
        ({"sb0009": {}}, "no such host: sb0009"),
        ({"*": {"fault": "typo"}}, "fault is one of refuse, "),
    ):
        with pytest.raises(testbed.Problem, match=message):
            make_fleet(2, overrides)
    assert own_leavings() == before


def test_sixty_four_hosts(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(64)
    assert fleet.hosts[-1] == "sb0064"
    for name in "sb0001", "sb0033", "sb0064":
        assert fleet.ssh(name, "hostname").stdout == f"{name}\n"
    assert len(fleet.inventory.read_text().splitlines()) == 64
    fleet.down()


def test_a_killed_runs_hosts_are_swept_away(fleet_cpu: Fleet) -> None:
    script = (
        "import sys\nfrom tests.hosts.fleet import Fleet\nprint(Fleet.up(2).directory, flush=True)\nsys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout
        orphan = Fleet(pathlib.Path(process.stdout.readline().strip()))
        sweep()
        assert len(traces(orphan)) > 2  # its run still lives
        process.send_signal(signal.SIGKILL)
    sweep()
    assert traces(orphan) == []
    assert fleet_cpu.ssh("sb0001", "true").returncode == 0


def test_the_command_line(tmp_path: pathlib.Path, make_fleet: MakeFleet) -> None:
    overrides = tmp_path / "overrides.json"
    overrides.write_text('{"lab0002": {"fault": "refuse"}, "*": {"files": {"/etc/x": "one\\n"}}}')
    directory, hub = str(tmp_path / "tb"), f"cli-{os.getpid()}"

    def run(*argv: str, text_input: str | None = None) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, testbed.__file__, "--dir", directory, *argv]
        return subprocess.run(program, input=text_input, capture_output=True, text=True)

    completed = run("up", "2", "--name", "lab", "--hub", hub, "--overrides", str(overrides), "--subnet", "10.99.0.0/16")
    try:
        assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")
        assert [line.split()[:2] for line in run("list").stdout.splitlines()] == [
            ["lab0001", "10.99.1.1"],
            ["lab0002", "10.99.1.2"],
        ]
        assert [host["fault"] for host in json.loads(run("list", "--json").stdout)] == ["", "refuse"]
        config = f"{directory}/ssh_config"
        assert run("exec", "--", "ssh", "-F", config, "lab0001", "cat /etc/x").stdout == "one\n"
        assert run("enter", "lab0001", "--", "hostname").stdout == "lab0001\n"
        assert run("change", "lab0001", text_input='{"files": {"/etc/x": "two\\n"}}').returncode == 0
        assert run("enter", "lab0001", "--", "cat", "/etc/x").stdout == "two\n"
        assert run("renew", "lab0001", text_input="{}").returncode == 0
        assert run("enter", "lab0001", "--", "cat", "/etc/x").stdout == "one\n"
        assert "exists: run `down` first" in run("up", "1").stderr
        assert run("enter", "lab0009", "--", "true").stderr == "testbed: lab0009 is not up\n"
    finally:
        assert run("down").returncode == 0
    assert run("list").stderr == f"testbed: no hosts are up (no {directory}/state.json)\n"
    assert not pathlib.Path("/run/netns", hub).exists()


def test_why_there_can_be_no_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert fleets.unavailable() == "test hosts need root"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    assert fleets.unavailable().startswith("test hosts need ip, nft, nsenter, unshare, ssh-keygen, cc, sudo (Debian")
