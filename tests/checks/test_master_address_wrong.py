import msgspec
import pytest

from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.fact import Fact, Visit
from doctor.engine.record import HostRecord, LaunchOptions
from doctor.engine.result import Outcome, Status
from doctor.environment.job_environment import of_launch_line
from doctor.facts.master_trial import MasterTrial
from doctor.job import LaunchConfig
from tests.checks.network import alike_hosts, interfaces, named
from tests.checks.run_check import check, job, messages, run_check, skipped

NAME = "master-address-wrong"


def blamed(hosts: dict[str, list[Fact]], **environ: str) -> dict[str, str]:
    findings = run_check(NAME, hosts, job(**environ)).findings
    return {host: str(finding.values["reason"]) for finding in findings for host in finding.hosts}


def knowing(master: str, *addresses: str) -> dict[str, list[Fact]]:
    """Hosts that each resolve the master's name to an address of their own."""
    hosts = alike_hosts(len(addresses))
    for number, address in enumerate(addresses, 1):
        name = f"w{number}"
        others = {} if name == master else {master: address}
        hosts[name][1] = named(name, address if name == master else f"10.0.0.{number}", **others)
    return hosts


@pytest.mark.parametrize("master", ["10.0.0.1", "10.0.0.3"])
def test_an_address_of_the_fleet(master: str) -> None:
    assert blamed(alike_hosts(3), MASTER_ADDR=master) == {}


@pytest.mark.parametrize("master", ["127.0.0.1", "localhost", "127.1.2.3", "::1"])
def test_loopback(master: str) -> None:
    assert blamed(alike_hosts(2), MASTER_ADDR=master) == dict.fromkeys(("w1", "w2"), "leads every host to itself")


def test_a_name_that_is_loopback_on_all_hosts() -> None:
    assert set(blamed(knowing("w1", "127.0.1.1", "127.0.1.1", "127.0.1.1"), MASTER_ADDR="w1")) == {"w2", "w3"}


def test_an_address_of_no_host() -> None:
    assert blamed(alike_hosts(2), MASTER_ADDR="10.0.5.5") == dict.fromkeys(
        ("w1", "w2"), "is the address of none of these hosts"
    )


def test_an_address_of_all_hosts() -> None:
    hosts: dict[str, list[Fact]] = {
        f"w{n}": [interfaces(eth0=f"10.0.0.{n}/24", docker0="172.17.0.1/16"), named(f"w{n}", f"10.0.0.{n}")]
        for n in (1, 2)
    }
    assert set(blamed(hosts, MASTER_ADDR="172.17.0.1").values()) == {"is an address of w1, w2"}


def test_no_route_to_the_masters_other_network() -> None:
    hosts = alike_hosts(2)
    hosts["w1"] = [interfaces(eth0="10.0.0.1/24", eth1="10.9.0.1/24"), named("w1", "10.0.0.1")]
    assert blamed(hosts, MASTER_ADDR="10.9.0.1") == {"w2": "is in a network that the host has no route to"}
    hosts["w2"] = [interfaces(eth0="10.0.0.2/24", routes=("0.0.0.0/0",)), named("w2", "10.0.0.2")]
    assert blamed(hosts, MASTER_ADDR="10.9.0.1") == {}
    hosts["w2"] = [interfaces(eth0="10.0.0.2/32"), named("w2", "10.0.0.2", w1="10.0.0.1")]
    (finding,) = run_check(NAME, hosts, job(MASTER_ADDR="w1")).findings
    assert finding.values["fault"] == "route"
    assert "ip address add 10.0.0.2/24" in finding.values["remedy"] and "/etc/hosts" not in finding.values["remedy"]


def test_a_name() -> None:
    assert blamed(knowing("w1", "10.0.0.1", "10.0.0.1", "10.0.0.1"), MASTER_ADDR="w1") == {}


def test_the_masters_own_name_may_be_loopback() -> None:
    assert blamed(knowing("w1", "127.0.1.1", "10.0.0.1", "10.0.0.1"), MASTER_ADDR="w1") == {}


def test_a_name_that_is_loopback_elsewhere() -> None:
    assert blamed(knowing("w1", "10.0.0.1", "10.0.0.1", "127.0.0.1"), MASTER_ADDR="w1") == {
        "w3": "resolves to 127.0.0.1 and leads the host to itself"
    }


def test_a_name_that_is_another_host_elsewhere() -> None:
    assert blamed(knowing("w1", "10.0.0.1", "10.0.0.1", "10.0.0.2"), MASTER_ADDR="w1") == {
        "w3": "resolves to 10.0.0.2 and leads to w2; on other hosts to w1"
    }


def test_a_host_may_have_localhost_for_itself_alone() -> None:
    """The PyTorch operator of Kubernetes gives the master localhost."""
    own_values = {"w1": {"MASTER_ADDR": "localhost"}, "w2": {"MASTER_ADDR": "10.0.0.1"}}
    launch = LaunchConfig.from_environment({"MASTER_ADDR": "10.0.0.1"}, by_host=own_values)
    assert messages(run_check(NAME, alike_hosts(2), launch)) == []


def test_only_ipv6() -> None:
    hosts: dict[str, list[Fact]] = {
        f"w{n}": [interfaces(eth0=f"fd00::{n}/64"), named(f"w{n}", f"fd00::{n}")] for n in (1, 2)
    }
    assert blamed(hosts, MASTER_ADDR="fd00:0::1") == {}
    assert set(blamed(hosts, MASTER_ADDR="fd00::9")) == {"w1", "w2"}


def test_what_is_not_judged() -> None:
    assert skipped(run_check(NAME, alike_hosts(2))) == {"MASTER_ADDR is not given"}
    assert skipped(run_check(NAME, alike_hosts(1), job(MASTER_ADDR="127.0.0.1"))) == {
        "only one host: the master is the host itself"
    }
    assert skipped(run_check(NAME, alike_hosts(2), job(MASTER_ADDR="job.ns.svc.cluster.local"))) == {
        "MASTER_ADDR is a service of Kubernetes"
    }


RANKS: list[tuple[dict[str, str], dict[str, str], list[str]]] = [
    ({"RANK": "0"}, {"RANK": "1"}, []),
    ({"RANK": "1"}, {"RANK": "0"}, ["w2"]),
    ({"NODE_RANK": "1"}, {"NODE_RANK": "0"}, ["w2"]),
    ({"NODE_RANK": "0", "RANK": "0"}, {"NODE_RANK": "1", "RANK": "8"}, []),
    ({}, {"RANK": "1"}, []),
    ({}, {}, []),
]


@pytest.mark.parametrize(("first", "second", "hosts"), RANKS)
def test_rank_zero_is_on_the_master(first: dict[str, str], second: dict[str, str], hosts: list[str]) -> None:
    master = {"MASTER_ADDR": "10.0.0.1"}
    launch = LaunchConfig.from_environment(master, by_host={"w1": {**master, **first}, "w2": {**master, **second}})
    findings = run_check(NAME, alike_hosts(2), launch).findings
    assert [host for finding in findings for host in finding.hosts] == hosts
    assert [str(finding) for finding in findings] == [
        f"MASTER_ADDR 10.0.0.1 is the address of w1, and rank 0 is on {host}" for host in hosts
    ]


@pytest.mark.parametrize(
    ("line", "master", "is_told"),
    [
        ("srun python3 t.py", "10.0.0.2", True),
        ("srun python3 t.py", "10.0.0.1", False),
        ("srun -w w2,w1 python3 t.py", "10.0.0.2", False),  # another host may be the first
        ("srun --distribution=arbitrary python3 t.py", "10.0.0.2", False),
        ("srun torchrun --nnodes 2 --master-addr 10.0.0.2 t.py", "10.0.0.2", False),
    ],
)
def test_srun_starts_rank_zero_on_the_first_host(line: str, master: str, is_told: bool) -> None:
    environ = {"MASTER_ADDR": master, "SLURM_JOB_NODELIST": "w[1-2]", "SLURM_JOB_ID": "5"}
    launch = LaunchConfig.from_options(of_launch_line(line.split(), environ).complete(LaunchOptions()))
    told = [str(finding) for finding in run_check(NAME, alike_hosts(2), launch).findings]
    assert told == [f"MASTER_ADDR {master} is the address of w2, and rank 0 is on w1"] * is_told


def as_rank(**environ: str) -> LaunchConfig:
    return LaunchConfig.from_environment({"MASTER_ADDR": "10.9.9.9"}, by_host={"w1": environ})


def torchrun(line: str, launcher: str = "torchrun") -> LaunchConfig:
    source = of_launch_line([*launcher.split(), *line.split(), "train.py"], {})
    return LaunchConfig.from_options(source.complete(LaunchOptions()))


OF_ANOTHER = {"w1": "is the address of none of these hosts"}
ONE_HOST: list[tuple[LaunchConfig, dict[str, str] | None]] = [
    (torchrun("--nnodes 1 --master-addr 10.9.9.9"), OF_ANOTHER),
    (torchrun("--master-addr 10.9.9.9"), OF_ANOTHER),
    (torchrun("--nnodes 1 --rdzv-backend c10d --rdzv-endpoint 10.9.9.9"), OF_ANOTHER),
    (torchrun("--nnodes 1 --master-addr 10.0.0.1"), {}),
    (torchrun("--nnodes 1 --master-addr w1"), {}),
    (job(MASTER_ADDR="10.9.9.9", WORLD_SIZE="1"), OF_ANOTHER),
    (job(MASTER_ADDR="10.0.0.1", WORLD_SIZE="1"), {}),
    (torchrun("--worker_num 2 --local_worker_num 2 --master_addr 10.9.9.9", "msrun"), OF_ANOTHER),
    (torchrun("--worker_num 2 --local_worker_num 2 --master_addr 10.0.0.1", "msrun"), {}),
    (torchrun("--worker_num 2 --local_worker_num 2", "msrun"), None),
    (torchrun("--worker_num 4 --local_worker_num 2 --master_addr 10.9.9.9", "msrun"), {}),
    (torchrun("--num_machines 1 --num_processes 2 --main_process_ip 10.9.9.9", "accelerate launch"), None),
    (torchrun("--num_gpus 2 --master_addr 10.9.9.9", "deepspeed"), OF_ANOTHER),
    (torchrun("--nnodes 1"), None),
    (torchrun("--standalone --master-addr 10.9.9.9"), None),
    (torchrun("--nnodes 1:2 --rdzv-backend c10d --rdzv-endpoint 10.9.9.9"), None),
    (torchrun("--nnodes 2 --master-addr 10.9.9.9"), {}),
    (torchrun("--nnodes 2 --node-rank 0 --master-addr 10.9.9.9"), OF_ANOTHER),
    (torchrun("--nnodes 2 --node-rank 0 --master-addr w1"), {}),
    (torchrun("--nnodes 2 --node-rank 1 --master-addr 10.9.9.9"), {}),
    (torchrun("--nnodes 2 --node-rank 0 --master-addr 10.9.9.9", "srun --ntasks 2 torchrun"), {}),
    (as_rank(WORLD_SIZE="8", RANK="0"), OF_ANOTHER),
    (as_rank(WORLD_SIZE="8", RANK="8", NODE_RANK="0"), {}),
    (as_rank(NODE_RANK="0"), OF_ANOTHER),
    (as_rank(RANK="0", MASTER_ADDR="w1"), {}),
    (torchrun("--rdzv-backend etcd --rdzv-endpoint 10.9.9.9"), None),
    (job(MASTER_ADDR="10.9.9.9", WORLD_SIZE="8"), {}),
    (job(MASTER_ADDR="10.9.9.9"), {}),
    (msgspec.structs.replace(torchrun("--master-addr 10.9.9.9"), read_from="the job script a.sh, line 3"), None),
    (job(MS_SCHED_HOST="10.9.9.9", MS_WORKER_NUM="1"), {}),
    (job(), None),
]


@pytest.mark.parametrize(("launch", "results"), ONE_HOST, ids=lambda entry: getattr(entry, "launch_line", "") or None)
def test_one_host(launch: LaunchConfig, results: dict[str, str] | None) -> None:
    """None: not judged, as the launcher does not meet there; where rank 0 may be elsewhere, the address is tried."""
    hosts = alike_hosts(1)
    hosts["w1"] = [interfaces(eth0="10.0.0.1/24", routes=("0.0.0.0/0",)), *hosts["w1"][1:]]
    outcome = run_check(NAME, hosts, launch)
    assert {host: str(finding.values["reason"]) for finding in outcome.findings for host in finding.hosts} == (
        results or {}
    )
    assert bool(outcome.skipped) == (results is None)
    assert not outcome.unknown


@pytest.mark.parametrize(
    ("trial", "as_first", "as_second"),
    [
        (MasterTrial(refused=True), Status.FAILED, Status.PASSED),
        (MasterTrial(accepted=True), Status.FAILED, Status.PASSED),  # by another host: this one listens
        (MasterTrial(reached="w1", accepted=True), Status.PASSED, Status.PASSED),  # translated to this host
        (MasterTrial(), Status.FAILED, Status.UNKNOWN),
        (MasterTrial(longest=2.0), Status.UNKNOWN, Status.UNKNOWN),
    ],
)
def test_what_answers_one_host(trial: MasterTrial, as_first: Status, as_second: Status) -> None:
    """Rank 0 must have the address itself; others need its answer. No route to it is no answer."""
    hosts: dict[str, list[Fact]] = {
        "w1": [interfaces(eth0="10.0.0.1/24", routes=("0.0.0.0/0",)), named("w1", "10.0.0.1"), trial]
    }
    for rank, status in (("0", as_first), ("1", as_second)):
        assert run_check(NAME, hosts, as_rank(RANK=rank)).status is status
    hosts["w1"][0] = interfaces(eth0="10.0.0.1/24")
    assert bool(blamed_alone := run_check(NAME, hosts, as_rank(RANK="1")).findings) != bool(trial.reached)
    assert all(str(finding).endswith("has no route to") for finding in blamed_alone)


def test_one_host_whose_interfaces_cannot_be_read_is_unknown_only_where_its_master_counts() -> None:
    cache = FactCache({"w1": HostRecord(Visit(), {})})
    for launch, status in [(job(), Status.SKIPPED), (ONE_HOST[0][0], Status.UNKNOWN)]:
        assert evaluate_check(check(NAME), ("w1",), cache, {LaunchConfig: launch}).status is status


C10D = "--nnodes 3 --rdzv-backend c10d --rdzv-endpoint"


def rendezvous(options: str, own_values: dict[str, str]) -> dict[str, str]:
    """What torchrun's agents make of three hosts, of which some have other addresses for their own names."""
    hosts = alike_hosts(3)
    addresses = {host: f"10.0.0.{number}" for number, host in enumerate(hosts, 1)}
    for host, facts in hosts.items():
        others = {name: address for name, address in addresses.items() if name != host}
        facts[1] = msgspec.structs.replace(named(host, own_values.get(host, addresses[host]), **others), full=host)
    outcome = run_check(NAME, hosts, torchrun(options))
    return {host: str(finding.values["reason"]) for finding in outcome.findings for host in finding.hosts}


@pytest.mark.parametrize(
    ("options", "own_values", "guilty"),
    [
        (f"{C10D} 10.0.0.1", {}, {}),
        (f"{C10D} 10.0.0.1", {"w1": "127.0.1.1"}, {"w1": "torchrun opens no store"}),
        (f"{C10D} w1", {"w1": "127.0.1.1"}, {}),
        (f"{C10D} 10.0.0.1", {"w2": "127.0.1.1"}, {}),
        (f"{C10D} 10.0.0.1", {"w1": "192.168.0.1"}, {"w1": "torchrun opens no store"}),
        (f"{C10D} 10.0.0.1", {"w2": ""}, {"w2": "which ends torchrun"}),
        (f"{C10D} 10.0.0.1 --rdzv-conf is_host=1", {"w1": "127.0.1.1"}, {}),
        ("--nnodes 3 --master-addr 10.0.0.1", {"w1": "127.0.1.1"}, {}),
        ("--nnodes 3 --master-addr 10.0.0.1", {"w2": ""}, {}),
    ],
)
def test_the_host_of_the_endpoint_must_know_itself_by_its_name(
    options: str, own_values: dict[str, str], guilty: dict[str, str]
) -> None:
    """As measured with PyTorch 2.13; the usual cause is Debian's line ``127.0.1.1 NAME``."""
    results = rendezvous(options, own_values)
    assert results.keys() == guilty.keys()
    assert all(results[host].endswith(reason) for host, reason in guilty.items())


@pytest.mark.parametrize("options", [f"{C10D} 10.0.0.2", f"{C10D} 10.0.0.2 --local-addr 10.0.0.2"])
def test_rank_0_is_found_by_the_first_name_of_all(options: str) -> None:
    """The agent of w1 announces "w1", whatever host has the endpoint."""
    hosts = alike_hosts(3)
    for number, (host, facts) in enumerate(hosts.items(), 1):
        w1 = {"w1": "127.0.1.1" if host == "w3" else "10.0.0.1"} if host != "w1" else {}
        facts[1] = msgspec.structs.replace(named(host, f"10.0.0.{number}", **w1), full=host)
    outcome = run_check(NAME, hosts, torchrun(options))
    reasons = {host: str(finding.values["reason"]) for finding in outcome.findings for host in finding.hosts}
    announced = "is not where the ranks meet: w1 announces itself as w1, which is loopback here"
    assert reasons == ({} if "local" in options else {"w3": announced})


@pytest.mark.parametrize(("full", "lost"), [("localhost", {"w2", "w3"}), ("w1", set())])
def test_a_host_that_calls_itself_localhost_cannot_be_rank_0(full: str, lost: set[str]) -> None:
    """As socket.getfqdn has it where /etc/hosts says ``127.0.0.1 localhost`` and then ``127.0.0.1 w1``."""
    hosts = alike_hosts(3)
    for number, (host, facts) in enumerate(hosts.items(), 1):
        w1 = {"w1": "10.0.0.1"} if host != "w1" else {}
        own = full if host == "w1" else host
        facts[1] = msgspec.structs.replace(named(host, f"10.0.0.{number}", **w1), full=own)
    outcome = run_check(NAME, hosts, torchrun(f"{C10D} 10.0.0.1"))
    assert {host for finding in outcome.findings for host in finding.hosts} == lost


VIRTUAL = {"MASTER_ADDR": "10.96.7.7"}


def tried(**trials: MasterTrial) -> Outcome:
    """Three hosts whose master is an address of none of them, with what came of their trials."""
    hosts = alike_hosts(3)
    for host, trial in trials.items():
        hosts[host].append(trial)
    return run_check(NAME, hosts, job(**VIRTUAL))


def test_an_address_that_is_translated_to_a_host_is_that_host() -> None:
    outcome = tried(**dict.fromkeys(("w1", "w2", "w3"), MasterTrial(reached="w1", accepted=True)))
    assert outcome.status is Status.PASSED


def test_one_that_is_translated_to_another_host_for_one() -> None:
    reached = MasterTrial(reached="w1", accepted=True)
    outcome = tried(w1=reached, w2=reached, w3=MasterTrial(reached="w2", accepted=True))
    assert {host for finding in outcome.findings for host in finding.hosts} == {"w3"}


@pytest.mark.parametrize(
    ("trial", "status"),
    [
        (MasterTrial(), Status.FAILED),
        (MasterTrial(accepted=True), Status.FAILED),  # a stranger: all listened
        (MasterTrial(reached="elsewhere", accepted=True), Status.FAILED),
        (MasterTrial(accepted=True, listened=False), Status.UNKNOWN),
        (MasterTrial(listened=False), Status.FAILED),
        (MasterTrial(longest=2.0), Status.UNKNOWN),
        (MasterTrial(needed=False), Status.FAILED),
    ],
)
def test_where_nobody_of_the_run_answers(trial: MasterTrial, status: Status) -> None:
    assert tried(**dict.fromkeys(("w1", "w2", "w3"), trial)).status is status


def test_what_is_not_decided_hides_no_other_fault() -> None:
    hosts = alike_hosts(3)
    for host in hosts.values():
        host.append(MasterTrial(longest=2.0))
    launch = LaunchConfig.from_environment(VIRTUAL, by_host={"w2": {"MASTER_ADDR": "127.0.0.1"}})
    outcome = run_check(NAME, hosts, launch)
    assert [finding.hosts for finding in outcome.findings] == [("w2",)]
    assert outcome.unknown
