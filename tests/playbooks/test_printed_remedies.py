"""A printed remedy is a tested remedy: what a page's *What to do* tells to run is run on hosts with the fault.

Every command of every page is either run here, or listed with the reason why it is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from doctor.engine.catalog import load_checks
from doctor.engine.result import format_value
from doctor.report.layout.advice import fill_advice
from tests.conftest import PREPARED
from tests.faults import Row
from tests.hosts.fleet import INSIDE, Fleet
from tests.playbooks.cases import CASES
from tests.playbooks.test_remedies import ENVIRON, check, failures_in, put_in
from tests.test_faults import ROWS, outcome
from tests.test_faults import check as check_fleet

KEEP = "/etc/sysctl.d/99-zz-cluster.conf"
WITHOUT_LOOPBACK = r"sed -i.bak -E '/^(127\.|::1)/s/[[:space:]]{name}([[:space:]]|$)/\1/g' /etc/hosts"
RUN: dict[str, tuple[str, ...]] = {
    "listen-queue-short": (
        "sysctl -w net.core.somaxconn=65535",
        f'echo "net.core.somaxconn = 65535" >> {KEEP}',
    ),
    "syn-queue-short": (
        "sysctl -w net.ipv4.tcp_max_syn_backlog=65535",
        f'echo "net.ipv4.tcp_max_syn_backlog = 65535" >> {KEEP}',
    ),
    "sysctl-lost-at-reboot": ("{remedy}",),
    "master-port-unreserved": (
        "sysctl -w net.ipv4.ip_local_reserved_ports={merged}",
        f'echo "net.ipv4.ip_local_reserved_ports = {{merged}}" >> {KEEP}',
    ),
    "master-port-taken": ('ss -tlnp "sport = :{port}"', "kill {pid}"),
    "shm-stale-segments": ("ls -l /dev/shm", "ipcs -m", "{remove}"),
    "shm-docker-default": ("mount -o remount,size=50% /dev/shm",),
    "host-name-ambiguous": ("getent hosts {name}", "{correction}"),
    "host-name-unresolved": ("{hosts_command}", "getent hosts {first}"),
    "host-name-is-loopback": (f"{WITHOUT_LOOPBACK} && echo {{hosts_entry}} >> /etc/hosts",),
    "master-address-unresolved": ("{hosts_command}", "getent hosts {name}"),
    "firewall-blocks-job": ("{fix}",),
}
"""In the order in which they are run. What is not itself on the page stands there in words."""
RUN_ALONE = {
    "hccl-rootinfo-stale": "mv {path} {path}.old",
    "interfaces-in-one-subnet": "{routing}",
    "local-ports-few": 'sysctl -w net.ipv4.ip_local_port_range="{wider}" && echo '
    f'"net.ipv4.ip_local_port_range = {{wider}}" >> {KEEP}',
}
"""The same on a host with the first fault of the check in `tests.faults`."""
NOT_RUN = {
    "devices: the playbooks run such commands on emulated ones (tests/playbooks/test_remedies.py)": """
        ipmitool
        hccn_tool npu-smi ascend-dmi nvidia-smi amd-smi rocm-smi nvidia-imex-ctl dcgmi gpud curl modprobe lsmod dkms for
        {up} {command} sminfo msnpureport enable ldconfig printenv rmmod -mig setpci nv-fabricmanager
        ethtool nmcli netplan rdma mlxfwmanager perfquery ibstat ibv_devinfo mlxlink mlxconfig mlnx_qos cma_roce_tos
        flint devlink nvidia-bug-report.sh v=$(nvidia-smi""",
    "containers: there is none on a test host": """
        docker podman --net --add-host --shm-size --ipc --pids --device kubectl "default medium: nsenter -v useradd""",
    "software, and the job's own programs and settings": """
        pip {pip} {path} python sh apt yum dnf rpm conda ./ bash source torchrun mpirun srun msrun hccl_tools doctor git
        chmod uname export unset ulimit set MASTER_ HCCL NCCL GLOO ASCEND torch os. dist. model -- PYTORCH DDP
        {python} make mkdir command cd sbatch accelerate
        env --within DataLoader( num_shards= set_auto_parallel_context( mindspore.set_seed
        int(os {trial} dos2unix""",
    "would change this machine's clock, services, mounts or frequency": """
        umount swapoff update-grub if grubby cpupower tuned-adm chronyc systemctl timedatectl hwclock reboot
        scontrol""",
    "reads only, or leaves the choice to the reader": """
        ss ps du find fuser ls getent ipcs ssh ip ping dmesg grep cat df lspci journalctl id getfacl free top lsof
        smartctl ras-mc-ctl swapon findmnt coredumpctl timeout nfsstat lfs lctl rsync arping tracepath taskset
        dmidecode tc head""",
    "a text in a file or in a message, and no command": """
        "rank_id": "status": "version": Compatibility Two {item}:{expected} {observed}
        privileged: securityContext.capabilities.add: {setting} {option} {expected}""",
    "limits: root of a container may not raise them; the filters of the playbooks are tested": """* USER LimitMEMLOCK
        printf""",
    "run for another check, or by its playbook": """sysctl nft {nft} {iptables} {queues} echo mount kill sudo usermod
        install {fix} {hosts_command}""",
    "as a person decides what lies in the way": "mv",
    "copies a file from this machine, or on the job's hosts": "{copy} cp scp",
    "run on a table, in tests/checks/test_rank_table_not_completed.py": "sed",
    "run below, in the place of a report": "hostname {unlimited}",
}
"""Why commands are not run here, and how they begin."""
PAGES = {
    entry.name: [
        text for text in re.findall(r"`([^`]+)`", entry.section("What to do")) if " " in text or text[0] == "{"
    ]
    for entry in load_checks()
    if entry.area != "smoke"
}


def bare(text: str) -> str:
    return " ".join(text.split())


def test_every_printed_command_is_run_or_listed() -> None:
    for name, commands in PAGES.items():
        ours = {bare(command) for command in (*RUN.get(name, ()), RUN_ALONE.get(name, ""))}
        for command in map(bare, commands):
            listed = any(command.startswith(tuple(message.split())) for message in NOT_RUN.values())
            assert command in ours or listed, f"{name}: {command}"


def test_no_command_is_half_a_command() -> None:
    """`-gateway -g` behind `hccn_tool -i 3 -ip -g` is nothing that can be pasted."""
    assert [
        (name, command) for name, commands in PAGES.items() for command in commands if re.match(r"-[a-z]", command)
    ] == []


def test_what_is_run_is_what_is_printed() -> None:
    for name, commands in RUN.items():
        page = bare(next(entry for entry in load_checks() if entry.name == name).section("What to do"))
        for command in commands:
            message = bare(command)
            assert message in page, f"{name}: {message}"


@pytest.mark.hosts
def test_what_is_printed_mends_and_does_no_harm(make_fleet: Callable[..., Fleet]) -> None:
    """All faults at once, then all printed commands: the findings go, and no other one comes."""
    cases = [entry for entry in CASES if entry.fleet == "cpu" and entry.checks[0] in RUN]
    assert {entry.checks[0] for entry in cases} == set(RUN)
    fleet = make_fleet(4, {"*": PREPARED}, shm="4g")
    with ExitStack() as stack:
        put_in(fleet, cases, stack)
        before = check(fleet, ENVIRON["cpu"])
        for outcome in before["outcomes"]:
            for finding in outcome["findings"]:
                for command in RUN.get(outcome["check"], ()):
                    for host in finding["hosts"]:
                        fleet.enter(host, filled(command, finding["values"], host, fleet), env=INSIDE)
        after = check(fleet, ENVIRON["cpu"])
    fleet.down()
    assert [row for row in failures_in(after) if row[0] in RUN] == []
    assert {row[0] for row in failures_in(after)} <= {row[0] for row in failures_in(before)}


@pytest.mark.hosts
@pytest.mark.parametrize("name", RUN_ALONE)
def test_what_is_printed_for_one_fault_mends(name: str, request: pytest.FixtureRequest) -> None:
    row = next(row for row in ROWS if row.check == name)
    fleet: Fleet = request.getfixturevalue(f"fleet_{row.fleet}")
    host = fleet.hosts[row.host]
    with fleet.broken(host, row.fault):
        (finding,) = selected(fleet, row.check)["findings"]
        fleet.enter(host, filled(RUN_ALONE[name], finding["values"], host, fleet), env=INSIDE)
        after = selected(fleet, row.check)
        assert not after["findings"] and not after["unknown"]


def selected(fleet: Fleet, name: str) -> dict[str, Any]:
    _, report = check_fleet(fleet, "--select", name)
    return outcome(report, name)


def filled(command: str, values: dict[str, object], host: str, fleet: Fleet) -> str:
    """The command as a report prints it, with the address that the reader has to put in."""
    if command == "{remove}":
        return "; ".join(str(entry).strip("`") for entry in values["remove"])  # type: ignore[attr-defined]
    name = str(values.get("name", values.get("first", "")))
    texts = {key: format_value(value) for key, value in values.items()} | {"host": host}
    return fill_advice(f"`{command}`", texts)[1:-1].replace("ADDRESS", fleet.addresses.get(name, ""))


GROUPED = [row for row in ROWS if row.check in ("process-limit-low", "memory-short") and "mktemp -d" in row.fault]


@pytest.mark.hosts
@pytest.mark.parametrize("row", GROUPED, ids=lambda row: row.check)
def test_what_is_printed_for_a_limit_of_a_control_group_mends(row: Row, request: pytest.FixtureRequest) -> None:
    fleet: Fleet = request.getfixturevalue(f"fleet_{row.fleet}")
    host = fleet.hosts[row.host]
    with fleet.broken(host, row.fault):
        (finding,) = selected(fleet, row.check)["findings"]
        assert f"`{finding['values']['unlimited']}`" in finding["remedy"]
        fleet.enter(host, finding["values"]["unlimited"], env=INSIDE)
        after = selected(fleet, row.check)
    assert not after["findings"] and not after["unknown"]


WRITABLE = [row for row in ROWS if row.check == "folder-not-writable"]


@pytest.mark.hosts
@pytest.mark.parametrize("row", WRITABLE, ids=lambda row: str(row.values["path"]))
def test_what_is_printed_for_a_folder_mends(row: Row, fleet_cpu: Fleet) -> None:
    """Its commands stand in sentences of the check; those that only look are not run."""
    host = fleet_cpu.hosts[row.host]
    arguments = ("--select", row.check)
    with fleet_cpu.broken(host, row.fault):
        _, before = check_fleet(fleet_cpu, *arguments, environ=row.environ)
        for finding in outcome(before, row.check)["findings"]:
            commands = re.findall(r"`((?:mount|mkdir) [^`]*)`", finding["values"]["remedy"])
            assert len(commands) == 1
            for name in finding["hosts"]:
                fleet_cpu.enter(name, commands[0], env=INSIDE)
        _, after = check_fleet(fleet_cpu, *arguments, environ=row.environ)
        assert outcome(before, row.check)["findings"] and not outcome(after, row.check)["findings"]


SITE_RULES = "flush ruleset\ntable inet site {{\n chain job {{\n  {hook}\n  tcp dport 29500 drop\n }}\n}}\n"


@pytest.mark.hosts
def test_what_keeps_a_rule_over_a_restart_is_a_command_too(fleet_cpu: Fleet) -> None:
    """It adds to the file that has the table, and to no other one."""
    host, name, file = fleet_cpu.hosts[1], "firewall-blocks-job", "/etc/nftables.conf"
    text = SITE_RULES.format(hook="type filter hook input priority 0; policy accept;")
    with fleet_cpu.broken(host, f"cat >{file} <<'END'\n{text}END\nnft -f {file}"):
        (finding,) = selected(fleet_cpu, name)["findings"]
        now, keep = re.findall(r"`(nft [^`]+|grep [^`]+)`", finding["remedy"])
        fleet_cpu.enter(host, f"{keep}; nft -f {file}", env=INSIDE)
        assert not selected(fleet_cpu, name)["findings"], now
        fleet_cpu.enter(host, f"echo >{file}; {keep}; test $(wc -l <{file}) = 1", env=INSIDE)


TYPED = (
    *("host-name-is-localhost", "duplicate-address", "default-port-taken", "interface-mtu-differs"),
    *("overcommit-forbidden", "host-name-is-loopback", "host-name-ambiguous", "sysctl-lost-at-reboot"),
    *("shm-docker-default", "master-address-unresolved", "hccl-ports-unreserved", "hccl-port-taken"),
    *("tls-switch-differs", "device-ip-conflict", "device-ip-unset", "detect-address-unset", "detect-address-is-self"),
    *("gateway-outside-segment", "device-netmask-differs", "hccn-conf-differs", "interfaces-in-one-subnet"),
    "peer-unreachable",
)
"""Faults of a host whose remedy holds all that there is to type."""


@pytest.mark.hosts
@pytest.mark.parametrize("name", TYPED)
def test_commands_typed_as_the_report_prints_them_mend(name: str, request: pytest.FixtureRequest) -> None:
    """Each command of the report that the host has is typed, in its order, on the host that its sentence names."""
    row = next(row for row in ROWS if row.check == name)
    fleet: Fleet = request.getfixturevalue(f"fleet_{row.fleet}")
    options = (*row.options, "--select", name)
    with fleet.broken(fleet.hosts[row.host], row.fault):
        _, before = check_fleet(fleet, *options, environ=dict(row.environ))
        findings = outcome(before, name)["findings"]
        for finding in findings:
            for found in re.finditer(r"`([^`]+)`", finding["remedy"]):
                named = re.findall(r"\b[Oo]n (sb\d+)", finding["remedy"][: found.start()])
                for host in named[-1:] or finding["hosts"]:
                    type_command(fleet, host, found[1])
        _, after = check_fleet(fleet, *row.options, environ=dict(row.environ))
    assert findings and not outcome(after, name)["findings"] and not outcome(after, name)["unknown"]
    assert {entry["check"] for entry in after["outcomes"] if entry["findings"]} <= set(row.also)


def type_command(fleet: Fleet, host: str, command: str) -> None:
    """In a shell like that of a login: what is no command of this host, such as a line of a file, it does not know."""
    program = command.partition(" ")[0]
    known = fleet.enter(host, f"command -v '{program}'", check=False, env=INSIDE).returncode == 0
    if known and program not in NOT_TYPED:
        fleet.enter(host, command, check=False, env=INSIDE)


NOT_TYPED = ("doctor", "torchrun", "docker", "kubectl", "systemctl", "reboot")
"""Of the machine that starts the job, of its containers, or of the test's machine itself."""
