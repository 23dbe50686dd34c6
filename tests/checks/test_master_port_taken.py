import msgspec
import pytest

from doctor.engine.record import LaunchOptions
from doctor.environment.job_environment import of_launch_line
from doctor.facts.ports import Listeners, ListeningSocket
from doctor.facts.python_env import PythonEnv
from doctor.job import LaunchConfig
from tests.checks.ports import known_as, taken
from tests.checks.run_check import job, messages, run_check, skipped

NAME = "master-port-taken"
HOSTS = {"w1": [taken(29500, 29501), *known_as("w1", "10.0.0.1")], "w2": [taken(29500), *known_as("w2", "10.0.0.2")]}


@pytest.mark.parametrize("master", ["w1", "W1.example.org", "10.0.0.1"])
def test_only_the_host_of_rank_0_is_judged(master: str) -> None:
    outcome = run_check(NAME, HOSTS, job(MASTER_ADDR=master))
    assert messages(outcome) == [("w1", "MASTER_PORT 29500 is taken by process 77 of user ann (python train.py)")]
    assert set(outcome.skipped) == {"w2"}


@pytest.mark.parametrize(
    ("line", "is_taken"),
    [
        ("torchrun --master-port 29500 t.py", True),
        ("torchrun --nnodes 2 --master-addr 127.0.0.1 --master-port 29500 t.py", False),  # not surely this host's
        ("torchrun --master-port 29502 t.py", False),
        ("torchrun --standalone t.py", False),
        ("accelerate launch --num_machines 1 --num_processes 2 t.py", False),  # it goes by another address
    ],
)
def test_the_loopback_address_of_a_launch_on_one_host(line: str, is_taken: bool) -> None:
    launch = LaunchConfig.from_options(of_launch_line(line.split(), {}).complete(LaunchOptions()))
    assert bool(messages(run_check(NAME, {"w1": HOSTS["w1"]}, launch))) == is_taken


@pytest.mark.parametrize(
    ("line", "torch", "severity"),
    [
        ("torchrun t.py", "2.13.0+cpu", None),
        ("torchrun --nnodes 1 --rdzv-backend static t.py", "2.12.0", None),
        ("torchrun t.py", "2.11.0", "error"),
        ("torchrun t.py", "", "warning"),  # of a torch in a container, or of another build
        ("torchrun --master-port 29500 t.py", "2.13.0", "error"),
        ("torchrun --rdzv-endpoint localhost:29500 t.py", "2.13.0", "error"),
        ("python -m torch.distributed.launch --nproc-per-node 2 t.py", "2.13.0", None),
    ],
)
def test_torchrun_for_one_host_takes_a_free_port_from_pytorch_2_12_on(
    line: str, torch: str, severity: str | None
) -> None:
    launch = LaunchConfig.from_options(of_launch_line(line.split(), {}).complete(LaunchOptions()))
    python = PythonEnv("/usr/bin/python3", "3.11.2", {"torch": torch} if torch else {}, bool(torch))
    findings = run_check(NAME, {"w1": [*HOSTS["w1"], python]}, launch).findings
    assert ["warning" if finding.is_warning else "error" for finding in findings] == [severity] * bool(severity)


def test_a_free_port_is_well() -> None:
    assert messages(run_check(NAME, HOSTS, job(MASTER_ADDR="w1", MASTER_PORT="29502"))) == []
    assert run_check(NAME, HOSTS, job(MASTER_ADDR="w1", MASTER_PORT="29502")).status.value == "passed"


def test_an_outgoing_connection_is_no_listener() -> None:
    host = {"w1": [taken(29500, listening=False), *known_as("w1", "10.0.0.1")]}
    assert messages(run_check(NAME, host, job(MASTER_ADDR="w1"))) == []


def test_a_port_that_is_bound_alone_is_taken() -> None:
    bound = Listeners((ListeningSocket(29500, "", False, "", bound=True),))
    expected = [("w1", "MASTER_PORT 29500 is taken by a socket that does not listen, of a program that is not known")]
    assert messages(run_check(NAME, {"w1": [bound, *known_as("w1", "10.0.0.1")]}, job(MASTER_ADDR="w1"))) == expected


def test_mindspores_names_for_it() -> None:
    outcome = run_check(NAME, HOSTS, job(MS_SCHED_HOST="10.0.0.1", MS_SCHED_PORT="29501"))
    assert outcome.findings[0].values["port"] == 29501


def test_no_master_is_not_judged() -> None:
    assert skipped(run_check(NAME, HOSTS)) == {"MASTER_ADDR is not given"}
    assert run_check(NAME, HOSTS, job(MASTER_ADDR="10.9.9.9")).status.value == "skipped"


def test_torchruns_own_store_is_meant_to_be_there() -> None:
    outcome = run_check(NAME, HOSTS, job(MASTER_ADDR="w1", TORCHELASTIC_USE_AGENT_STORE="True"))
    assert skipped(outcome) == {"started by torchrun: its agent listens there for the ranks"}


@pytest.mark.parametrize(("address", "blamed"), [("10.0.0.1", []), ("fd00::1", ["w1"])])
def test_a_listener_for_ipv6_alone_is_in_the_way_of_a_master_of_ipv6_alone(address: str, blamed: list[str]) -> None:
    (listening_socket,) = taken(29500).sockets
    listener = Listeners(sockets=(msgspec.structs.replace(listening_socket, address="::", ipv6_only=True),))
    outcome = run_check(NAME, {"w1": [listener, *known_as("w1", address)]}, job(MASTER_ADDR="w1"))
    assert [host for host, _ in messages(outcome)] == blamed


def test_a_service_of_the_host_is_never_to_be_ended() -> None:
    titles = ("/usr/sbin/rpcbind -w", "sshd: /usr/sbin/sshd -D [listener]", "/usr/lib/systemd/systemd-resolved")
    for holder in (*(taken(29500, command=title) for title in titles), taken(29500, pid=1), taken(22)):
        launch = job(MASTER_ADDR="a", MASTER_PORT=str(holder.sockets[0].port))
        finding = run_check("master-port-taken", {"a": [*known_as("a", "10.0.0.1"), holder]}, launch).findings[0]
        assert (finding.values["pid"], finding.values["case"]) == (None, "Service")


def test_the_other_port_is_given_as_the_launcher_takes_it() -> None:
    launch = msgspec.structs.replace(job(MASTER_ADDR="a", MASTER_PORT="22"), launchers=("torchrun",))
    finding = run_check("master-port-taken", {"a": [*known_as("a", "10.0.0.1"), taken(22)]}, launch).findings[0]
    assert finding.values["setting"] == "`torchrun --master-port 29500`"
