"""Reports of real runs on test hosts, which the golden reports show: ``python -m tests.report.recorded_fleets`` (root).

Each is kept as the JSON report of its run, in ``tests/report/recorded/``. Whoever changes the values of a check's
finding records them anew.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from doctor.engine.result import Report
from doctor.report.diff.load import decode
from tests.conftest import PREPARED
from tests.hosts.fleet import Fleet, merge, sweep
from tests.hosts.npu import npu_fleet

FOLDER = Path(__file__).with_name("recorded")
ROOT = Path(__file__).resolve().parents[2]
FIREWALL = """\
nft -f - <<'END'
table inet site {
    chain incoming {
        type filter hook input priority 0
        tcp dport 29500-60100 drop
    }
}
END
"""
LISTEN = """\
cat >/run/held.py <<'END'
import os, signal, socket
one = socket.create_server(("", 29500))
open("/run/held.ready", "w").close()
signal.pause()
END
python3 /run/held.py >/dev/null 2>&1 &
while [ ! -e /run/held.ready ]; do sleep 0.05; done
"""
OWN_NAME_IS_LOOPBACK = 'sed -i "/ $(hostname)$/d" /etc/hosts; echo "127.0.1.1 $(hostname)" >>/etc/hosts'
NPU_FAULTS = {
    "sb0001": "rm /run/npu/3/ip /run/npu/3/netmask",
    "sb0002": "echo DOWN >/run/npu/1/link",
    "sb0003": "echo 1 >/run/npu/6/tls",
    "sb0004": "sed -i 's/^address_0=.*/address_0=29.1.102.99/' /etc/hccn.conf; echo 1500 >/run/npu/4/mtu",
    "sb0005": "mount -o remount,size=64m /dev/shm",
    "sb0006": "echo 128 >/proc/sys/net/core/somaxconn",
    "sb0007": FIREWALL,
}
"""Eight faults on seven of eight hosts with NPUs."""


def numbered(first: int, last: int) -> tuple[str, ...]:
    return tuple(f"sb{number:04d}" for number in range(first, last + 1))


CPU_FAULTS: Mapping[tuple[str, ...], str] = {
    numbered(10, 11): FIREWALL,
    numbered(20, 22): OWN_NAME_IS_LOOPBACK,
    numbered(30, 35): "echo 128 >/proc/sys/net/core/somaxconn",
    numbered(40, 43): "mount -o remount,size=64m /dev/shm",
    numbered(50, 53): "prlimit --pid 1 --nofile=1024:",
    numbered(56, 57): "sed -i '/ sb0003$/d' /etc/hosts",
    numbered(60, 62): LISTEN,
}
"""With the host that refuses connections, eight kinds of fault on 25 of 64 hosts."""
DEAD = "sb0025"


@contextmanager
def fleet_of_npus() -> Iterator[Fleet]:
    hosts = {name: merge(PREPARED, own_values) for name, own_values in npu_fleet("A2", 8).items()}
    fleet = Fleet.up(8, hosts, shm="4g")
    try:
        for host, fault in NPU_FAULTS.items():
            fleet.enter(host, fault)
        yield fleet
    finally:
        fleet.down()


@contextmanager
def fleet_of_cpus() -> Iterator[Fleet]:
    fleet = Fleet.up(64, {"*": PREPARED, DEAD: {"fault": "refuse"}}, shm="4g")
    try:
        for hosts, fault in CPU_FAULTS.items():
            for host in hosts:
                fleet.enter(host, fault, capture_output=False, stdout=-3, stderr=-3, stdin=-3)
        yield fleet
    finally:
        fleet.down()


@contextmanager
def one_laptop() -> Iterator[Fleet]:
    fleet = Fleet.up(1, {"*": PREPARED}, shm="4g")
    try:
        yield fleet
    finally:
        fleet.down()


RECORDED: Mapping[str, tuple[Callable[[], object], Sequence[str], Mapping[str, str]]] = {
    "laptop": (one_laptop, ["check", "sb0001"], {}),
    "npu_fleet": (fleet_of_npus, ["check", "sb[0001-0008]"], {}),
    "cpu_fleet": (fleet_of_cpus, ["check", "sb[0001-0064]"], {"MASTER_ADDR": "sb0060", "MASTER_PORT": "29500"}),
}
"""By name: the hosts, the command, and the environment of the command."""


def report(name: str) -> Report:
    """The recorded report of this name."""
    return decode((FOLDER / f"{name}.json").read_bytes(), name)


def record(name: str) -> bytes:
    """The JSON report of a real run."""
    hosts, arguments, environ = RECORDED[name]
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "HCCL", "RANK", "DOCTOR"))}
    with hosts() as fleet:  # type: ignore[attr-defined]
        argv = [sys.executable, "-m", "doctor", *arguments, "--json"]
        argv += ["-F", str(fleet.ssh_config), "--budget", "300", "--timeout", "60", "--connect-timeout", "20"]
        done = fleet.run(argv, env={**clean, **environ}, cwd=ROOT, timeout=600)
    if done.returncode not in (0, 10, 11, 12):
        raise SystemExit(f"{name}: exit code {done.returncode}: {done.stderr}")
    return json.dumps(json.loads(done.stdout), sort_keys=True, separators=(",", ":")).encode() + b"\n"


if __name__ == "__main__":
    sweep()
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or RECORDED:
        (FOLDER / f"{name}.json").write_bytes(record(name))
        print(f"recorded {name}")
