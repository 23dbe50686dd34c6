"""Random networks of hosts, random variables and launchers: `doctor check` fails exactly where the real job dies.

``python -m tests.attack interfaces COUNT [--seed SEED]``, as root, with torch and Open MPI. Each attack is a real job
on three test hosts (gloo by hand, by torchrun with both of its rendezvous, or Open MPI's barrier) beside `doctor check`
of the same hosts, variables and launch line. VLANs and bonds are macvlans with their names: not every kernel has those.
"""

from __future__ import annotations

import random
import shlex
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from tests.hosts.fleet import INSIDE, Fleet
from tests.interfaces.gloo_fleet import GlooFleet, JobEnd, gloo_fleet
from tests.interfaces.test_gloo_table import sh, verdict
from tests.interfaces.test_openmpi_pairs import PROGRAM

AREAS = ("connectivity", "firewall", "ranks")
HOSTS = (0, 1, 2)
RANK = """\
import datetime, os
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=int(os.environ["ATTACK_SECONDS"])))
    value = torch.ones(70000)
    dist.all_reduce(value)
    dist.barrier()
    # A rank that ends with its group in place may abort while the interpreter ends: gloo's threads are still there.
    dist.destroy_process_group()
main()
"""
PREPARE = "cp /etc/hosts /run/hosts.kept; sysctl -qw net.ipv6.conf.all.disable_ipv6=0"
RESTORE = """\
for link in $(ls /sys/class/net); do
    case $link in lo|tunl0|sit0|eth0|primary*) ;; *) ip link del "$link" ;; esac
done 2>/dev/null
base=$(ip -o -4 addr show to 10.69.1.$N/32 | awk '{print $2; exit}')
if [ "$base" != eth0 ]; then ip link set "$base" down; ip link set "$base" name eth0; ip link set eth0 up; fi
ip -6 addr flush dev eth0 scope global
for one in $(ip -o -4 addr show dev eth0 | awk '{print $4}' | grep -v '^10.69.1'); do
    ip addr del $one dev eth0
done
cat /run/hosts.kept >/etc/hosts
true
"""
SECOND = "ip link add link $BASE name NIC type macvlan mode bridge; "
NICS = {
    "docker0": "ip link add docker0 type bridge; ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up",
    "virbr0": "ip link add virbr0 type bridge; ip addr add 192.168.122.1/24 dev virbr0; ip link set virbr0 up",
    "dead": "ip link add NIC type veth peer name p_NIC; ip addr add 10.200.0.$N/24 dev NIC",
    "no carrier": "ip link add NIC type veth peer name p_NIC; ip addr add 10.201.0.$N/24 dev NIC; ip link set NIC up",
    "no address": SECOND + "ip link set NIC up",
    "IPv6 alone": SECOND + "ip link set NIC up; ip -6 addr add fd00:69::$N/64 dev NIC nodad",
    "both families": SECOND + "ip link set NIC up; ip addr add 10.221.0.$N/24 dev NIC; "
    "ip -6 addr add fd00:70::$N/64 dev NIC nodad",
    "second network": SECOND + "ip link set NIC up; ip addr add 10.220.0.$N/24 dev NIC",
    "same subnet": SECOND + "ip link set NIC up; ip addr add 10.69.2.$N/16 dev NIC",
    "island": SECOND + "ip link set NIC up; ip addr add 10.23$N.0.1/24 dev NIC",
    "one address": SECOND + "ip link set NIC up; ip addr add 10.240.0.1/24 dev NIC",
    "point to point": SECOND + "ip link set NIC up; ip addr add 10.24$N.0.1 peer 10.24$N.0.2 dev NIC",
}  # fmt: skip
NAMES = ("eth1", "ens1f0", "ib0", "eth0.20", "bond0", "eno7", "enp4s0", "ibp3s0")
OWN_NAMES = {
    "192.0": "127.0.1.1",
    "second": "10.220.0.$N",
    "IPv6": "fd00:70::$N",
    "localhost": "127.0.0.1",
    "none": "#",
    "foreign": "203.0.113.7",
}


MASTERS = {
    "second network": "10.220.0.1",
    "both families": "fd00:70::1",
    "IPv6 alone": "fd00:69::1",
    "dead": "10.200.0.1",
    "no carrier": "10.201.0.1",
    "island": "10.231.0.1",
    "same subnet": "10.69.2.1",
    "docker0": "172.17.0.1",
    "one address": "10.240.0.1",
    "point to point": "10.241.0.1",
}
"""The first host's address there."""


class World(NamedTuple):
    """The network of three hosts, the job's variables, and its launcher."""

    setups: tuple[str, ...]
    """Shell text by host."""
    nics: tuple[str, ...]
    environ: Mapping[str, str]
    master: str
    launcher: str
    options: tuple[str, ...] = ()


def world(choose: random.Random) -> World:
    """One world."""
    kinds = choose.sample(sorted(NICS), choose.choice((1, 2, 2, 3)))
    names = choose.sample(NAMES, len(kinds))
    setups, observed = ["BASE=eth0", "BASE=eth0", "BASE=eth0"], []
    for kind, name in zip(kinds, names, strict=True):
        own_name = kind if kind in ("docker0", "virbr0") else name
        absent = choose.choice(HOSTS) if choose.random() < 0.2 else -1
        other = choose.choice(HOSTS) if choose.random() < 0.2 and own_name == name else -1
        for host in HOSTS:
            if host != absent:
                setups[host] += "\n" + NICS[kind].replace("NIC", "enx9" if host == other else own_name)
        observed.append(own_name)
    if choose.random() < 0.15:
        renamed = HOSTS if choose.random() < 0.5 else (choose.choice(HOSTS),)
        for host in renamed:
            setups[host] += "\nip link set eth0 down; ip link set eth0 name primary0; ip link set primary0 up"
        observed.append("primary0")
    if choose.random() < 0.35:
        address = choose.choice(sorted(OWN_NAMES.values()))
        for host in choose.choice((HOSTS, (0,), (1, 2))):
            setups[host] += (
                f'\nsed "/ $(hostname)$/d" /run/hosts.kept >/etc/hosts; echo "{address} $(hostname)" >>/etc/hosts'
            )
    launcher = choose.choice(("hand", "hand", "hand", "torchrun", "torchrun c10d", "torchrun c10d", "mpirun"))
    environ = {} if launcher == "mpirun" else _variables(choose, observed)  # its program sends by MPI
    return World(
        tuple(setups), tuple(observed), environ, _master(choose, kinds), launcher, _mpi(choose, launcher, observed)
    )


def _variables(choose: random.Random, nics: list[str]) -> dict[str, str]:
    environ = {}
    if choose.random() < 0.6:
        name = choose.choice([*nics, *nics, *nics, "eth0", "eth0", "eth0", "lo", "eth"])
        forms = (*7 * (name,), "=" + name, f"eth0,{name}", name + ",")
        environ["GLOO_SOCKET_IFNAME"] = choose.choice(forms)
    if choose.random() < 0.3:
        name = choose.choice([*nics, "eth0", "eth", "lo", "none0"])
        environ["NCCL_SOCKET_IFNAME"] = choose.choice(("", "=", "^")) + name
    if choose.random() < 0.15:
        environ["TP_SOCKET_IFNAME"] = choose.choice([*nics, "eth0"])
    if choose.random() < 0.2:
        environ["HCCL_SOCKET_IFNAME"] = choose.choice(("", "=", "^")) + choose.choice([*nics, "eth0"])
    return environ


def _master(choose: random.Random, kinds: list[str]) -> str:
    good = ["10.69.1.1"] * 9 + ["nw0001"] * 5
    bad = ["127.0.0.1", "localhost", "203.0.113.9", "nosuch.invalid", "[10.69.1.1]", "0.0.0.0", "::1", "127.0.1.1"]
    masters = [MASTERS[kind] for kind in kinds if kind in MASTERS]
    return choose.choice([*good, *masters, choose.choice(bad)])


def _mpi(choose: random.Random, launcher: str, nics: list[str]) -> tuple[str, ...]:
    if launcher != "mpirun":
        return ()
    options: list[str] = []
    if choose.random() < 0.8:
        name = choose.choice([*nics, "eth0", "eth0", "10.69.0.0/16", "eth0," + choose.choice(nics)])
        options += ["--mca", choose.choice(("btl_tcp_if_include", "btl_tcp_if_include", "btl_tcp_if_exclude")), name]
        if options[1].endswith("exclude") and choose.random() < 0.7:
            options[2] += ",lo"
    if choose.random() < 0.25:
        options += ["--mca", "oob_tcp_if_include", choose.choice([*nics, "eth0"])]
    return tuple(options)


class Ground:
    """Three hosts, whose roots reach each other by SSH."""

    def __init__(self, jobs: GlooFleet) -> None:
        self.jobs = jobs
        self.fleet: Fleet = jobs.fleet
        key = (self.fleet.directory / "id_ed25519").read_text()
        for number, host in enumerate(self.fleet.hosts):
            self.fleet.enter(
                host,
                "mkdir -p -m 700 /root/.ssh && cat >/root/.ssh/known_hosts",
                input=self.fleet.known_hosts.read_text(),
            )
            self.fleet.enter(host, "umask 077 && cat >/root/.ssh/id_ed25519", input=key)
            self.fleet.enter(host, "cat >/root/program.py", input=PROGRAM)
            self.fleet.enter(host, "cat >/root/rank.py", input=RANK)
            sh(self.fleet, number, PREPARE)

    def line(self, trial: World) -> list[str]:
        """The launch line that doctor is given."""
        torchrun = ["torchrun", "--nnodes", "3", "--nproc-per-node", "1"]
        if trial.launcher == "torchrun":
            return [*torchrun, "--master-addr", trial.master, "/root/rank.py"]
        if trial.launcher == "torchrun c10d":
            endpoint = f"[{trial.master}]:29400" if ":" in trial.master else f"{trial.master}:29400"
            place = ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "attack"]
            return [*torchrun, *place, "/root/rank.py"]
        if trial.launcher == "mpirun":
            hosts = ",".join(f"{host}:1" for host in self.fleet.hosts)
            return ["mpirun", "-np", "3", "-H", hosts, *trial.options, "/usr/bin/python3", "/root/program.py"]
        return []

    def environ(self, trial: World) -> dict[str, str]:
        """The variables of the shell that starts the job."""
        by_hand = {"MASTER_ADDR": trial.master, "MASTER_PORT": "29500", "WORLD_SIZE": "3"}
        by_launcher = {"hand": by_hand, "mpirun": AS_ROOT}
        return {**by_launcher.get(trial.launcher, {}), **trial.environ}

    def run(self, trial: World, seconds: int) -> JobEnd:
        """The real job. ``seconds``: its timeouts."""
        line = self.line(trial)
        if trial.launcher == "mpirun":
            environ = {**AS_ROOT, "OMPI_MCA_plm_rsh_agent": "ssh", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self"}
            text = f"timeout -k 5 {2 * seconds + 10} {shlex.join(line)}"
            done = self.fleet.enter(self.fleet.hosts[0], text, env={**INSIDE, **environ}, check=False, timeout=200)
            lives = done.returncode == 0 and done.stdout.count("barrier 0") == 3
            return JobEnd(lives, {} if lives else {"mpirun": done.stderr[-300:]})
        if trial.launcher == "hand":
            return self.jobs.run(self.environ(trial), seconds=seconds)
        argv = line[1:]
        place = len(argv) - 1
        static = trial.launcher == "torchrun"
        waits = (
            f"timeout={seconds}" if static else f"join_timeout={3 * seconds},read_timeout={seconds},last_call_timeout=1"
        )
        argv[place:place] = ["--rdzv-conf", waits]
        by_host = {
            host: [*(["--node-rank", str(number)] if static else []), *argv]
            for number, host in enumerate(self.fleet.hosts)
        }
        return self.jobs.run_torchrun({**trial.environ, "ATTACK_SECONDS": str(seconds)}, by_host, seconds)


AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""The hosts of the tests have no other user."""
VERDICTS = ("agree", "FALSE OK", "FALSE FAIL", "undecided")
UNDECIDED = 12
"""The exit code where a check knows that it cannot tell."""


def campaign(count: int, seed: int) -> int:
    """Makes the worlds that follow from the seed; returns in how many the verdict and the job disagree."""
    jobs = gloo_fleet(Fleet.up, 3, name="nw", subnet="10.69.0.0/16", shm="4g")
    table: Counter[tuple[str, str]] = Counter()
    try:
        ground = Ground(jobs)
        for number in range(count):
            trial = world(random.Random(f"{seed} {number}"))
            verdict_word, text = attack(ground, trial)
            table[trial.launcher, verdict_word] += 1
            print(f"{seed}/{number}: {verdict_word}: {text}", flush=True)
    finally:
        jobs.down()
        jobs.fleet.down()
    print(f"{'launcher':14} " + " ".join(f"{word:>10}" for word in VERDICTS))
    for launcher in sorted({launcher for launcher, _ in table}):
        print(f"{launcher:14} " + " ".join(f"{table[launcher, word]:10}" for word in VERDICTS))
    return sum(number for (_, word), number in table.items() if word.startswith("FALSE"))


def attack(ground: Ground, trial: World) -> tuple[str, str]:
    """One job and the verdict about it: which of `VERDICTS`, and what happened in words."""
    fleet = ground.fleet
    try:
        for host in HOSTS:
            sh(fleet, host, trial.setups[host])
        line = ground.line(trial)
        code, results = verdict(fleet, ground.environ(trial), AREAS, line)
        # What Open MPI takes is a warning: its program may send nothing by MPI.
        warned = trial.launcher == "mpirun" and bool({"interface-doubtful"} & set(results))
        fails = code == 10 or warned
        end = ground.run(trial, 4)
        for seconds in () if fails else (15, 60):  # a busy machine starts slowly
            if not end.lives:
                end = ground.run(trial, seconds)
    finally:
        for host in HOSTS:
            sh(fleet, host, RESTORE)
    facts = f"{trial.launcher} {dict(trial.environ)} master={trial.master} {' '.join(trial.options)} nics={trial.nics}"
    result = f"job {'lives' if end.lives else 'dies'}, exit {code}, {sorted(results)}: {facts}"
    if code not in (0, 10, UNDECIDED):
        return "FALSE FAIL", result
    if code == UNDECIDED and not warned:
        return "undecided", f"{result}\n    {results}\n    {end.messages}"
    if fails != end.lives:
        return "agree", result
    setups = "\n        ".join("\n".join(trial.setups).split("\n"))
    return "FALSE FAIL" if fails else "FALSE OK", f"{result}\n    {end.messages}\n    {results}\n        {setups}"
