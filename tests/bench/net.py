"""The network test of all pairs and 34 ports against loops of nc over the same SSH. It prints ratios and gates nothing.

    python tests/bench/net.py [HOSTS ...]      as root; 4, 8 and 16 hosts unless named; --no-nc for the cost alone,
        [--turns 1] [--beside FOLDER]          --quick for that of some pairs of each host, --beside another checkout

All try every port of every pair in both directions, on the same hosts, in turns; above 128 hosts doctor takes some of
the ports. The hosts' own network alone is tried, as nc does; a line tells how long it takes with the pings between
NPUs, whose tool is a shell script on these hosts. A loop starts one `nc -z` for each port, one after the other on each
host and all hosts at once, against listeners that are open already; ssh starts it on each host, or clush does with as
many hosts at once. Nobody proves who answers, and nothing is said of causes. Packets are those that cross the hosts'
bridge; SSH's own are among them. CPU is the time of all programs of a host, its sshd among them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.hosts.fleet import SSH, Fleet, merge  # noqa: E402
from tests.hosts.npu import npu_host  # noqa: E402

NPU_HOSTS = 100
"""With NPUs of different addresses; those of more hosts are not tried."""
PORTS = [29500, *range(60000, 60032), 29999]
LISTEN = f"""
import select, socket
servers = [socket.create_server(("", port), backlog=1024) for port in {PORTS}]
print("ready", flush=True)
while True:
    for server in select.select(servers, [], [])[0]:
        server.accept()[0].close()
"""


def know_neighbours(fleet: Fleet) -> None:
    """Every host knows the others' hardware addresses for good.

    The kernel keeps 1024 that were learned, of all network namespaces together; what is permanent does not count.
    """
    hardware = {host: fleet.read(host, "/sys/class/net/eth0/address").strip() for host in fleet.hosts}
    for host in fleet.hosts:
        rest = (other for other in fleet.hosts if other != host)
        lines = [f"neigh replace {fleet.addresses[o]} lladdr {hardware[o]} dev eth0 nud permanent\n" for o in rest]
        fleet.enter(host, ["ip", "-batch", "-"], input="".join(lines))


def packets(fleet: Fleet) -> tuple[int, int]:
    """Packets and bytes that the hosts have sent and received, since they were made."""
    lines = fleet.run(["cat", "/proc/net/dev"]).stdout.splitlines()[2:]
    rows = [line.replace(":", " ").split() for line in lines if line.strip().startswith(fleet.hosts[0][:2])]
    return sum(int(row[2]) + int(row[10]) for row in rows), sum(int(row[1]) + int(row[9]) for row in rows)


def cpu_seconds(fleet: Fleet) -> float:
    """Of all programs of all hosts that have ended, and of their first."""
    hosts = json.loads((fleet.directory / "state.json").read_text())["hosts"]
    fields = [Path(f"/proc/{host['pid']}/stat").read_text().rpartition(")")[2].split() for host in hosts]
    return sum(sum(map(int, row[11:15])) for row in fields) / os.sysconf("SC_CLK_TCK")


def timed(fleet: Fleet, name: str, run: Callable[[], object]) -> tuple[float, int]:
    """Seconds and packets of one turn."""
    before, cpu, began = packets(fleet), cpu_seconds(fleet), time.monotonic()
    run()
    seconds, after = time.monotonic() - began, packets(fleet)
    count, size, hosts = after[0] - before[0], after[1] - before[1], len(fleet.hosts)
    used = (cpu_seconds(fleet) - cpu) / hosts
    text = f"{seconds:.1f} s, {count} packets; a host {size / hosts / 1e6:.2f} MB, {used:.2f} s CPU"
    print(f"  {name}: {text}", flush=True)
    return seconds, count


def doctor(fleet: Fleet, root: Path, mode: list[str]) -> None:
    command = [sys.executable, "-m", "doctor", "net", ",".join(fleet.hosts), "-F", str(fleet.ssh_config)]
    done = fleet.run([*command, *mode, "--budget", "600"], cwd=root, timeout=900)
    lines = [line for line in done.stdout.splitlines() if "network test" in line or "HEALTHY" in line]
    print("   ", lines, done.returncode)
    if done.returncode:
        print("   ", *done.stdout.splitlines()[:12], done.stderr[-300:], sep="\n    ")


@contextlib.contextmanager
def listening(fleet: Fleet) -> Iterator[None]:
    """Listeners on all ports of all hosts."""
    start = f"setsid python3 -c '{LISTEN}' >/dev/null 2>&1 & echo $! >/run/listens"
    for host in fleet.hosts:
        fleet.enter(host, f"{start}; until grep -q :752F /proc/net/tcp; do :; done")
    yield
    for host in fleet.hosts:
        fleet.enter(host, "kill $(cat /run/listens); while grep -q ':752F 00000000:0000 0A' /proc/net/tcp; do :; done")


def loop(fleet: Fleet) -> str:
    """What each host runs: to all others."""
    ports, targets = " ".join(map(str, PORTS)), " ".join(fleet.addresses.values())
    name = f"for p in {ports}; do nc -z -w 4 $t $p || echo fail $t $p; done"
    return f'own=$(hostname -I); for t in {targets}; do case " $own" in *" $t "*) ;; *) {name};; esac; done'


def by_ssh(fleet: Fleet) -> None:
    def one_host(host: str) -> None:
        done = fleet.run([*SSH, "-F", fleet.ssh_config, host, loop(fleet)], timeout=1800)
        if done.stdout:
            print("   ", host, done.stdout.count("fail"), "failed")

    with ThreadPoolExecutor(len(fleet.hosts)) as pool:
        list(pool.map(one_host, fleet.hosts))


def by_clush(fleet: Fleet) -> None:
    command = [sys.executable, "-m", "ClusterShell.CLI.Clush", "-w", ",".join(fleet.hosts), "-f", str(len(fleet.hosts))]
    done = fleet.run([*command, "-o", f"-F {fleet.ssh_config}", "-b", loop(fleet)], timeout=1800)
    if done.returncode or "fail" in done.stdout:
        print("   ", done.returncode, done.stdout.count("fail"), "failed", done.stderr[-200:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("hosts", nargs="*", type=int, default=[4, 8, 16])
    parser.add_argument("--no-nc", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--beside", type=Path)
    options = parser.parse_args()
    mode = ["--net", "quick"] if options.quick else ["--no-speeds"]
    alone = [*mode, "--select", "network", "--ignore", "net-device-path-broken"]
    for count in options.hosts:
        overrides = {f"sb{number + 1:04d}": merge(npu_host("A2", number % NPU_HOSTS)) for number in range(count)}
        fleet = Fleet.up(count, overrides)
        know_neighbours(fleet)
        print(f"{count} hosts, {count * (count - 1) * len(PORTS)} attempts, load {os.getloadavg()[0]:.1f}", flush=True)
        contenders: dict[str, Callable[[], object]] = {"doctor net": partial(doctor, fleet, ROOT, alone)}
        if options.beside:
            contenders[f"doctor net of {options.beside}"] = partial(doctor, fleet, options.beside, alone)
        if not options.no_nc and not options.quick:
            contenders |= {"nc by ssh": partial(by_ssh, fleet), "nc by clush": partial(by_clush, fleet)}
        try:
            figures: dict[str, list[tuple[float, int]]] = {name: [] for name in contenders}
            for _ in range(options.turns):
                for name, contender in contenders.items():
                    with listening(fleet) if name.startswith("nc") else contextlib.nullcontext():
                        figures[name].append(timed(fleet, name, contender))
            ours, *theirs = contenders
            for name in theirs:
                pairs = list(zip(figures[ours], figures[name], strict=True))
                ratios = [
                    statistics.median(other[item] / own_entries[item] for own_entries, other in pairs)
                    for item in (0, 1)
                ]
                print(f"  {name} takes {ratios[0]:.2f} times as long, {ratios[1]:.2f} times the packets")
            if count <= NPU_HOSTS and not options.quick:
                timed(fleet, "doctor net with the pings between NPUs", partial(doctor, fleet, ROOT, mode))
        finally:
            fleet.down()


if __name__ == "__main__":
    main()
