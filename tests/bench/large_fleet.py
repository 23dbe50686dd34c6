"""`doctor check --from FILE` for fleets of 1,000 and 10,000 hosts with eight NPUs each, on one core.

Run as root: python tests/bench/large_fleet.py [--sick] [HOSTS ...]. Two real test hosts are read once; their records
are multiplied, each with names and addresses of its own, and with --sick with troubles of its own.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.hosts.fleet import Fleet  # noqa: E402
from tests.hosts.npu import npu_fleet  # noqa: E402

MAKE = "--make"
SICK = "--sick"


def template(folder: Path) -> Path:
    """The saved run of two healthy hosts with NPUs."""
    path = folder / "two.json"
    fleet = Fleet.up(2, npu_fleet("A2", 2), shm="4g")
    arguments = ["check", "sb[0001-0002]", "-F", str(fleet.ssh_config), "--save", str(path), "-q"]
    try:
        subprocess.run(fleet.argv([sys.executable, "-m", "doctor", *arguments]), cwd=ROOT, check=False)
    finally:
        fleet.down()
    return path


def multiplied(run: dict[str, Any], count: int, names_each: int = 128) -> dict[str, Any]:
    """A run of ``count`` hosts: the first one's record, with what is a host's own replaced.

    Each host has resolved the names of ``names_each`` others, as `HostNames` does.
    """
    text = json.dumps(run["hosts"]["sb0001"])
    document = json.loads(run["hosts"]["sb0001"]["outputs"]["HostAddresses"][""]["out"])
    address = next(entry[1] for entry in document if entry[0] == "eth0" and "." in entry[1])
    names = [f"sb{number:05d}" for number in range(1, count + 1)]
    hosts = {}
    for number, name in enumerate(names):
        host = re.sub(r"\bsb0001\b", name, text)
        host = re.sub(rf"(?<![\d.]){re.escape(address)}(?![\d.])", f"10.{80 + number // 62500}.{at(number)}", host)
        host = re.sub(
            r"00:00:5e:00:53:01", f"00:00:5e:{number >> 16:02x}:{number >> 8 & 255:02x}:{number & 255:02x}", host
        )
        hosts[name] = json.loads(re.sub(r"(?<![\d.])29\.1\.101\.2(0\d)(?![\d])", device(number), host))
    peers = [f"10.{80 + number // 62500}.{at(number)}" for number in range(count)]
    for number, name in enumerate(names):
        outputs = hosts[name]["outputs"]
        sight = json.loads(outputs["HostNames"][""]["out"])
        near = [(number + step) % count for step in range(min(count, names_each))]
        sight["names"] = {names[peer]: {"addresses": [peers[peer]]} for peer in near} | {
            sight["own"]: {"addresses": [peers[number]]}
        }
        sight["fleet"] = count
        outputs["HostNames"][""]["out"] = json.dumps(sight)
        pings = outputs.get("DevicePings", {}).get("")
        if pings:
            rows = json.loads(pings["out"])
            pings["out"] = json.dumps([[npu, device_address((number + 1) % count, npu), text] for npu, _, text in rows])
    return {**run, "hosts": hosts, "probe_inputs": {**run["probe_inputs"], "hosts": names}}


_NUMBER = re.compile(r"(?<![\w.:-])\d+(?![\w.:])")
_ON_EVERY_HOST = {"HCCL_IF_IP": "10.99.0.1", "MS_WORKER_IP": "10.99.0.2", "GLOO_SOCKET_IFNAME": "eth0"}
CLOSED = "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"


def sickened(run: dict[str, Any], share: float = 0.3) -> dict[str, Any]:
    """The run with other numbers in ``share`` of what the hosts say: hot, lost and different devices, broken output.

    All hosts block the job's ports, call themselves by a loopback address, do not resolve some names, and have a home
    that cannot be written. The first third are each in a network of their own.
    """
    for number, record in enumerate(run["hosts"].values()):
        source = random.Random(number)
        outputs = record["outputs"]
        for fact in outputs.keys() - {"HostNames", "HostAddresses", "FirewallRules"}:
            for output in outputs[fact].values():
                if "out" in output and source.random() < share:
                    output["out"] = _NUMBER.sub(_other(source), output["out"])
        names = json.loads(outputs["HostNames"][""]["out"])
        names["names"][names["own"]] = {"addresses": ["127.0.1.1"], "bindable": "127.0.1.1"}
        for name in sorted(names["names"].keys() - {names["own"]})[:2]:
            names["names"][name] = {"error": "Name or service not known"}
        outputs["HostNames"][""]["out"] = json.dumps(names)
        disks = outputs["DiskSpace"][""]
        disks["out"] = disks["out"].replace('"refused": []', '"refused": ["/home/me"]')
        rules = json.loads(outputs["FirewallRules"][""]["out"])
        rules |= {"legacy": {"ip": ["filter"], "ip6": []}, "outputs": {"iptables-legacy": {"out": CLOSED}}}
        outputs["FirewallRules"][""]["out"] = json.dumps(rules)
        if 3 * number < len(run["hosts"]):
            for fact in ("Interfaces", "HostAddresses"):
                text = outputs[fact][""]["out"]
                outputs[fact][""]["out"] = re.sub(r'("10\.\d+\.\d+\.\d+"), 16', r"\1, 32", text)
    launch = {"master_addr": "sb00001", "master_port": 29500, "framework": "torch", "environ": _ON_EVERY_HOST}
    return {**run, "launch": {**run["launch"], **launch}}


def _other(source: random.Random) -> Callable[[re.Match[str]], str]:
    return lambda match: str(source.choice([0, 1, 85, 99, 2 * int(match[0])]))


def at(number: int) -> str:
    return f"{number % 62500 // 250}.{number % 250 + 1}"


def device(number: int) -> Any:
    return lambda match: device_address(number, int(match[1]))


def device_address(number: int, npu: int) -> str:
    serial = 8 * number + npu
    return f"29.{1 + serial // 62500}.{serial % 62500 // 250}.{serial % 250 + 2}"


def once(path: Path) -> tuple[float, float, int]:
    """CPU seconds, peak MB and exit code of an evaluation, on one core."""
    arguments = [sys.executable, "-m", "doctor", "check", "--from", str(path), "-q", "-f", "oneline"]
    process = subprocess.Popen(["taskset", "-c", "0", *arguments], cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, process.returncode


def make(two: str, count: str, path: str, *sick: str) -> None:
    """Writes a run of ``count`` hosts to ``path``, in the form of `run_lines`. No command takes equally long twice."""
    run, source = multiplied(json.loads(Path(two).read_text()), int(count)), random.Random(1)
    run = sickened(run) if sick else run
    hosts = run.pop("hosts")
    lines = []
    for name, record in hosts.items():
        text = json.dumps(record, separators=(",", ":"))
        text = re.sub(r'"seconds":[0-9.e-]+', lambda _: f'"seconds":{source.randrange(4000) / 1000}', text)
        lines.append(f"{json.dumps(name)}:{text}")
    first = ("schema", "source", "started", "seconds")
    head = json.dumps({key: run.pop(key) for key in first}, separators=(",", ":"))[:-1]
    with open(path, "w") as file:
        file.write(f'{head},"hosts":{{\n' + ",\n".join(lines) + "\n}," + json.dumps(run)[1:] + "\n")


def main() -> None:
    if sys.argv[1:2] == [MAKE]:
        return make(*sys.argv[2:])
    sick = [word for word in sys.argv[1:] if word == SICK]
    counts = [int(word) for word in sys.argv[1:] if word != SICK] or [1000, 10_000]
    with tempfile.TemporaryDirectory() as folder:
        two = template(Path(folder))
        for count in counts:
            path = Path(folder) / f"{count}.json"
            # In a process of its own: the peak of a child begins with the size of the process that it was forked from.
            subprocess.run([sys.executable, __file__, MAKE, str(two), str(count), str(path), *sick], check=True)
            began = time.perf_counter()
            cpu, peak, code = once(path)
            wall, size = time.perf_counter() - began, path.stat().st_size >> 20
            print(f"{count} hosts, {size} MB: CPU {cpu:.1f} s, wall {wall:.1f} s, peak {peak:.0f} MB, exit {code}")
    return None


if __name__ == "__main__":
    main()
