"""`doctor watch --attach` on jobs that no launcher started: their ranks stand in no environment of a start."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from doctor.smoke.programs.agent.system_calls import memory_maps
from doctor.watch.attach.attached_run import attached_run
from doctor.watch.attach.inspector.connected import find_groups, helpers_of, joined_groups
from doctor.watch.attach.inspector.live_environment import live_environ
from doctor.watch.attach.inspector.rank_finder import argument_rank, set_groups, with_never_joined
from doctor.watch.attach.odd_ranks import find_odd
from doctor.watch.attach.process_groups import first_rank
from doctor.watch.attach.rank_report import ProcessReport
from tests import preloaded
from tests.hosts.fleet import Fleet
from tests.smoke.interpreter import visible_folders
from tests.watch.test_odd_ranks import host, looks, rank

pytestmark = pytest.mark.timeout(300)
PROGRAM = Path(__file__).with_name("spawned_job.py")


@contextlib.contextmanager
def spawned(start_method: str, folder: Path, *culprit: str) -> Iterator[list[int]]:
    """The pids of the ranks of such a job, when all are in their loop."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    argv = [sys.executable, str(PROGRAM), start_method, port, str(folder), *culprit]
    job = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        limit = time.monotonic() + 120
        files = [folder / f"{number}.pid" for number in range(3)]
        while not all(file.exists() and file.read_text() for file in files):
            assert time.monotonic() < limit and job.poll() is None, "the job did not start"
            time.sleep(0.1)
        time.sleep(1)
        yield [int(file.read_text()) for file in files]
    finally:
        children = psutil.Process(job.pid).children(recursive=True)
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        psutil.wait_procs(children, 10)


SERVES = "rank 0 is the process that serves the job's store"


def attach(*options: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "doctor", "watch", "--attach", "--json", "--interval", "2", *options]
    done = preloaded.run(command, capture_output=True, text=True, timeout=200)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout or "{}")


@pytest.mark.torch
@pytest.mark.parametrize(
    "start_method",
    ["environment", pytest.param("arguments", marks=pytest.mark.full), pytest.param("fork", marks=pytest.mark.full)],
)
def test_the_process_that_hangs_is_named(start_method: str, tmp_path: Path) -> None:
    with spawned(start_method, tmp_path, "1") as pids:
        code, report = attach("--py-spy", "off")
    assert code == 10
    states = [state["text"] for failure in report["smoke"]["failures"] for state in failure["states"]]
    notes = " ".join(report["smoke"]["notes"])
    assert f"pid {pids[1]}" in " ".join(states) + notes
    assert not any(f"pid {pid})" in text for pid in (pids[0], pids[2]) for text in states)
    if start_method != "environment":
        assert SERVES in notes and f"so they are counted: rank 0 is pid {pids[0]} on" in notes
    else:
        assert "3 ranks" in notes


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.parametrize("start_method", ["environment", "arguments", "fork"])
def test_a_healthy_one_is_not_accused(start_method: str, tmp_path: Path) -> None:
    with spawned(start_method, tmp_path) as pids:
        code, report = attach("--py-spy", "off")
    texts = [str(finding) for outcome in report["outcomes"] for finding in outcome["findings"]]
    assert not any(f"pid {pid}" in text for pid in pids for text in texts)
    notes = [note for note in report["smoke"]["notes"] if "3 ranks" in note or "3 connected processes" in note]
    assert code == 0 or any("The ranks move" in note for note in notes)  # other jobs may run on this host


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.parametrize("start_method", ["reversed", "driver"])
def test_who_serves_the_store_and_has_other_connections_is_rank_0(start_method: str, tmp_path: Path) -> None:
    """The last that starts, which no count would take for it; a driver that serves the store alone is no rank."""
    with spawned(start_method, tmp_path, "1") as pids:
        code, report = attach("--py-spy", "off")
    notes = " ".join(report["smoke"]["notes"])
    assert code == 10 and f"(pid {pids[1]} on" in notes
    assert (SERVES in notes) is (start_method == "reversed")
    assert (f"rank 0 is pid {pids[0]} on" in notes) is (start_method == "reversed")


OVER_HOSTS = """import sys, time, torch, torch.distributed as dist
number, master = int(sys.argv[1]), sys.argv[2]  # of the hosts, the second has rank 0
dist.init_process_group("gloo", init_method="tcp://" + master + ":29777", rank=(number + 2) % 3, world_size=3)
for step in range(1 << 30):
    dist.all_reduce(torch.ones(1 << 14))
    if step == 5:
        print("in its loop", flush=True)
        time.sleep(3600 if number == 2 else 0)
    time.sleep(0.02)
"""


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.hosts
def test_a_job_over_hosts_that_nothing_names_is_one_and_its_process_that_hangs_is_named(
    make_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    """By both ends of the connections; asked over SSH."""
    fleet = make_fleet(3, {"*": {"shows": visible_folders()}}, name="unn", subnet="10.188.0.0/16")
    master = fleet.addresses[fleet.hosts[1]]
    for number, name in enumerate(fleet.hosts):
        words = shlex.join([sys.executable, "-c", OVER_HOSTS, str(number), master])
        fleet.enter(name, f"setsid {words} >/run/rank.log 2>&1 </dev/null & echo $! >/run/rank.pid")
    limit = time.monotonic() + 120
    while not all("in its loop" in fleet.read(name, "/run/rank.log") for name in fleet.hosts):
        assert time.monotonic() < limit, [fleet.read(name, "/run/rank.log")[-500:] for name in fleet.hosts]
        time.sleep(0.5)
    time.sleep(2)
    argv = [sys.executable, "-m", "doctor", "watch", "--attach", ",".join(fleet.hosts), "--json", "--py-spy", "off"]
    done = fleet.run([*argv, "-F", str(fleet.ssh_config)], timeout=200)
    report = json.loads(done.stdout)
    pid = fleet.read(fleet.hosts[2], "/run/rank.pid").strip()
    [finding] = [finding for outcome in report["outcomes"] for finding in outcome["findings"]]
    assert (done.returncode, finding["hosts"]) == (10, [fleet.hosts[2]])
    assert f"(pid {pid})" in finding["message"] and "sleeps" in finding["message"]
    assert any("3 connected processes" in note for note in report["smoke"]["notes"])
    first = f"rank 0 is pid {fleet.read(fleet.hosts[1], '/run/rank.pid').strip()} on {fleet.hosts[1]}"
    assert any(SERVES in note and first in note for note in report["smoke"]["notes"])


def test_a_process_that_never_joined_is_one_of_the_job() -> None:
    """Started by the same script with the same words but for numbers; another program, parent or rank is not."""
    started = [(7, "train.py --id 0", None), (7, "train.py --id 1", None), (7, "train.py --id 2", None)]
    others = [(7, "train.py --eval 3", None), (8, "train.py --id 3", None), (7, "train.py --id 4", (4, 8, 0))]
    by_pid = {
        number: {"parent": parent, "words": words.split(), "rank": rank}
        for number, (parent, words, rank) in enumerate([*started, *others], 1)
    }
    groups = {1: [1, 2], **{pid: [pid] for pid in range(3, 7)}}
    joined: Any = with_never_joined(groups, by_pid)  # type: ignore[no-untyped-call]
    assert joined == {1: [1, 2, 3], 4: [4], 5: [5], 6: [6]}
    two_jobs = {1: [1, 2], 3: [3], 7: [7, 8]}
    by_pid |= {pid: {"parent": 7, "words": ["train.py", "--id", str(pid)], "rank": None} for pid in (7, 8)}
    assert with_never_joined(two_jobs, by_pid) == two_jobs  # type: ignore[no-untyped-call]


def test_what_a_program_has_set_since_its_start_is_read() -> None:
    program = "import os, time; os.environ['RANK'] = '7'; os.write(1, b'.'); time.sleep(100)"
    environ = {**os.environ, "KEPT": "x" * 300}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout and process.stdout.read(1) == b"."
        jobs = live_environ(process.pid, memory_maps(process.pid)) or {}
        process.kill()
    assert jobs["RANK"] == "7" and jobs["KEPT"] == "x" * 300


def test_a_process_whose_memory_cannot_be_read_has_no_live_environment() -> None:
    assert live_environ(1 << 30, "") is None
    assert live_environ(1 << 30, memory_maps(os.getpid())) is None


@pytest.mark.parametrize(
    ("command", "jobs"),
    [
        (["python", "t.py", "--rank=3", "--world-size", "8"], (3, 8)),
        (["python", "t.py", "--rank", "0"], (0, 0)),
        (["python", "t.py", "--lora-rank", "16", "--rank_file", "x"], None),
        (["python", "t.py", "--rank", "high"], None),
    ],
)
def test_ranks_of_command_lines(command: list[str], jobs: tuple[int, int] | None) -> None:
    result = argument_rank(command)
    assert (result and result[:2]) == jobs


PAIR = """
import os, socket, sys, time
{make}
pid = os.fork()
os.write(1, b".")
time.sleep(100)
"""


def test_a_fork_that_inherits_sockets_is_connected_with_nobody() -> None:
    """A loader worker has its rank's connections open, too."""
    make = "server = socket.create_server(('127.0.0.1', 0)); one = socket.create_connection(server.getsockname())"
    make += "; other = server.accept()[0]"
    argv = [sys.executable, "-c", PAIR.format(make=make)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout and process.stdout.read(2) == b".."
        pids = [process.pid, *(child.pid for child in psutil.Process(process.pid).children())]
        groups, *_ = find_groups(dict.fromkeys(pids, ""))
        os.killpg(process.pid, signal.SIGKILL)
    assert sorted(map(len, groups.values())) == [1, 1]


@pytest.mark.parametrize("kind", ["AF_INET", "AF_UNIX"])
def test_processes_that_are_connected_are_one_group(kind: str, tmp_path: Path) -> None:
    address = f"({str(tmp_path / 'socket')!r})" if kind == "AF_UNIX" else "('127.0.0.1', 0)"
    make = (
        f"server = socket.socket(socket.{kind}); server.bind({address}); server.listen(); name = server.getsockname()"
    )
    client = f"link = socket.socket(socket.{kind}); link.connect(name)"
    program = f"import os, socket, time; {make}\nif os.fork(): link = server.accept()[0]\nelse: {client}\n"
    program += "os.write(1, b'.'); time.sleep(100)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout and process.stdout.read(2) == b".."
        pids = [process.pid, *(child.pid for child in psutil.Process(process.pid).children())]
        groups, links, _ = find_groups(dict.fromkeys(pids, ""))
        os.killpg(process.pid, signal.SIGKILL)
    assert groups == {min(pids): sorted(pids)} and not any(links.values())


def test_a_program_that_connects_for_each_call_is_seen_though_it_is_not_connected_at_every_moment() -> None:
    """Connected for 0.15 s of each 0.2 s."""
    program = """if 1:
        import os, socket, time
        server = socket.create_server(("127.0.0.1", 0))
        pid = os.fork()
        os.write(1, b".")
        while True:
            link = server.accept()[0] if pid else socket.create_connection(server.getsockname())
            time.sleep(0.15)
            link.close()
            time.sleep(0.05)
    """
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout and process.stdout.read(2) == b".."
        pids = [process.pid, *(child.pid for child in psutil.Process(process.pid).children())]
        seen = []
        for _ in range(8):
            known = {"maps": "", "rank": None, "parent": 1, "words": []}
            by_pid: dict[int, dict[str, Any]] = {pid: dict(known) for pid in pids}
            set_groups(by_pid, False)
            seen.append(sorted(by_pid))
            time.sleep(0.07)
        os.killpg(process.pid, signal.SIGKILL)
    assert seen == [sorted(pids)] * 8


def test_a_client_of_a_server_on_this_host_is_connected_with_nobody() -> None:
    """A notebook's kernel, or a user of a database: the other end is no process of a job."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = f"import os, socket, time; link = socket.create_connection({server.getsockname()!r})"
        program += "; os.write(1, b'.'); time.sleep(100)"
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
            assert process.stdout and process.stdout.read(1) == b"."
            alone, links, _ = find_groups({process.pid: ""})
            with server.accept()[0]:
                pair, *_ = find_groups({process.pid: "", os.getpid(): ""})
            process.kill()
    assert alone == {process.pid: [process.pid]} and links == {process.pid: []}
    assert [len(pids) for pids in pair.values()] == [2]


SERVER = """
import os, socket, threading, time
server = socket.create_server(({address!r}, 0))
port, name, kept, ready = server.getsockname()[1], {name!r}, [], threading.Event()
beside = socket.create_server(("127.0.0.1", 0))
pid = os.fork()
def serve():
    open("/proc/thread-self/comm", "w").write(name)
    ready.set()
    time.sleep(100)
if pid:
    kept += [socket.create_connection(("127.0.0.1", port))] if {itself} else []
    threading.Thread(target=serve).start()
    kept += [server.accept() for _ in range(1 + {itself})] + [beside.accept()]
    ready.wait()
    os.write(1, b"%d\\n" % port)
else:
    server.close()
    kept += [socket.create_connection(("127.0.0.1", port)), socket.create_connection(beside.getsockname())]
    beside.close()
time.sleep(100)
"""


@pytest.mark.parametrize(
    ("address", "name", "itself", "serves"),
    [
        ("", "pt_tcpstore_uv", True, True),
        ("", "pt_tcpstore", True, True),
        ("", "uvicorn", True, False),  # another server of the program
        ("", "pt_tcpstore_uv", False, False),
        ("127.0.0.1", "pt_tcpstore_uv", True, False),  # gloo's own listener, beside a store of a part of the job
    ],
)
def test_a_store_is_known_by_its_thread_and_its_sockets(address: str, name: str, itself: bool, serves: bool) -> None:
    argv = [sys.executable, "-c", SERVER.format(address=address, name=name, itself=itself)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout
        port = int(process.stdout.readline())
        child = psutil.Process(process.pid).children()[0].pid
        *_, stores = find_groups({process.pid: "", child: ""})
        os.killpg(process.pid, signal.SIGKILL)
    assert stores.get(process.pid, []) == ([[port, sorted([process.pid, child]), [child]]] if serves else [])
    assert child not in stores


def member(pid: int, *links: str, stores: tuple[tuple[int, list[int], list[int]], ...] = ()) -> ProcessReport:
    return rank(0, rank=None, pid=pid, world=0, job={}, group=11, links=list(links), stores=list(stores))


STORE = (29500, [11, 12, 13], [12])
FAR = ("10.0.0.1:29500>10.0.0.2:7", "10.0.0.1:41>10.0.0.2:8")
NEAR = tuple(f"{far}>{near}" for near, _, far in (link.partition(">") for link in FAR))


@pytest.mark.parametrize(
    ("ranks", "first"),
    [
        ({"n1": [member(11), member(12, stores=(STORE,)), member(13)]}, ("n1", 12)),
        ({"n1": [member(11), member(12, stores=((29500, [11, 12], [11]),)), member(13)]}, None),  # of a part alone
        ({"n1": [member(11), member(12, stores=((29500, [11, 12, 13], []),)), member(13)]}, None),  # a driver
        ({"n1": [member(11), member(12, stores=((29500, [11, 12, 13], [99]),)), member(13)]}, None),
        ({"n1": [member(11, stores=(STORE,)), member(12, stores=((29501, *STORE[1:2], [13]),)), member(13)]}, None),
        ({"n1": [member(11), member(12)]}, None),  # the store is on a host that was not asked
        ({"n1": [member(11, stores=((29500, [11], []),))]}, None),
        ({"n1": [member(11, *FAR, stores=((29500, [11], []),))], "n2": [member(21, *NEAR)]}, ("n1", 11)),
        ({"n1": [member(11, *FAR[:1], stores=((29500, [11], []),))], "n2": [member(21, *NEAR[:1])]}, None),
        ({"n1": [member(11, *FAR, stores=((29500, [11], []),))], "n2": [member(21, NEAR[1])]}, None),
    ],
)
def test_rank_0_is_the_one_process_whose_store_all_others_have(
    ranks: dict[str, list[ProcessReport]], first: tuple[str, int] | None
) -> None:
    assert first_rank({(name, one.pid): one for name, members in ranks.items() for one in members}) == first


@pytest.mark.parametrize(("of_other", "serves"), [("work", True), ("drive", False)])
def test_who_does_other_work_than_all_others_is_not_rank_0(of_other: str, serves: bool) -> None:
    stacks = [[(of_other if number == 2 else "work", "/job/train.py", 7)] for number in range(3)]
    ranks = [
        rank(0, None, stacks[number], rank=None, pid=11 + number, world=0, job={}, group=11, argument=argument,
             stores=[(29500, [11, 12, 13], [12])] if number == 2 else [])
        for number, argument in enumerate((0, 1, 2))
    ]  # fmt: skip
    run, _ = attached_run(find_odd({"n1": host(*ranks)}), {}, (), "doctor", 4.0, ())
    assert (SERVES in json.dumps(run.smoke)) is serves  # an argument that says otherwise is no rank


@pytest.mark.parametrize(
    ("function", "result"), [("serve", "undecided"), ("other", "moves")], ids=["of its equals", "alone in its role"]
)
def test_a_server_that_rests_beside_others_that_answer_is_not_healthy(function: str, result: str) -> None:
    """SGLang's router hands on requests; whether anybody needs the one that rests, the others do not show."""
    moving = looks(switches=900, ran=1.0)
    answer = [[("step", "/job/serve.py", 3), ("serve", "/job/serve.py", 9)]]
    rest = [[("sleep", "/job/serve.py", 2), (function, "/job/serve.py", 9)]]
    fields: dict[str, Any] = {"rank": None, "world": 0, "job": {}, "group": 11, "tcp": [0, 10**6, 2 * 10**6]}
    servers = [rank(0, moving, answer[0], **fields, pid=11 + number) for number in range(4)]
    resting = rank(0, looks("sleep"), rest[0], **{**fields, "tcp": [5, 5, 5]}, pid=15)
    [job] = find_odd({"n1": host(*servers, resting)})
    assert (job.result, job.odd_ranks) == (result, ())


@pytest.mark.parametrize("count", [1, 2])
def test_lone_servers_behind_a_router_are_one_group_and_those_of_several_processes_are_not(count: int) -> None:
    """The maps of the first process say that it has the router's library."""
    program = "import os, socket, time\nserver = socket.create_server(('127.0.0.1', 0)); kept = []\n"
    program += "for number in range(2):\n    if not os.fork():\n"
    program += "        link = socket.create_connection(server.getsockname()); server.close()\n"
    program += f"        pair = socket.create_server(('127.0.0.1', 0)) if {count} > 1 else None\n"
    program += "        if pair and not os.fork():\n            link.close(); to = socket.create_connection("
    program += "pair.getsockname()); pair.close()\n        elif pair: kept.append(pair.accept())\n        break\n"
    program += "else: kept = [server.accept() for _ in range(2)]\nos.write(1, b'.'); time.sleep(100)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout and len(process.stdout.read(1 + 2 * count)) == 1 + 2 * count
        pids = [process.pid, *(child.pid for child in psutil.Process(process.pid).children(recursive=True))]
        maps = {**dict.fromkeys(pids, ""), process.pid: "/x/sglang_router_rs.abi3.so"}
        groups, *_ = find_groups(maps)
        os.killpg(process.pid, signal.SIGKILL)
    assert sorted(map(len, groups.values())) == ([3] if count == 1 else [1, 2, 2])


def test_a_store_changes_no_number_that_a_launcher_gave() -> None:
    """Its agent serves the store, or, where it does not, rank 0; what the environment says counts."""
    ranks = [rank(number, stores=[(29500, [100, 101, 102], [101])] if number == 2 else []) for number in range(3)]
    run, _ = attached_run(find_odd({"n1": host(*ranks)}), {}, (), "doctor", 4.0, ())
    assert SERVES not in json.dumps(run.smoke)


@pytest.mark.parametrize(
    ("edges", "helpers"),
    [
        ([(2, 3), (2, 4)], {4}),
        ([(1, 2), (1, 3)], set()),  # a driver, and those that are connected with it alone
        ([(1, 2), (2, 4)], set()),
        ([(2, 3), (2, 4), (3, 4)], set()),  # it is connected with another rank
        ([(2, 3), (2, 4), (2, 5)], {4, 5}),
    ],
)
def test_what_is_connected_with_the_rank_alone_that_started_it_is_no_rank(
    edges: list[tuple[int, int]], helpers: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Process 1 has started 2 and 3, and 2 has started 4 and 5."""
    above = {1: [], 2: [1], 3: [1], 4: [2, 1], 5: [2, 1]}
    monkeypatch.setattr("doctor.watch.attach.inspector.connected.ancestors", above.__getitem__)
    assert helpers_of(edges) == helpers


def test_sets_are_joined_over_several_edges() -> None:
    assert joined_groups([1, 2, 3, 4, 5], [(1, 2), (4, 5), (5, 2)]) == {1: [1, 2, 4, 5], 3: [3]}


def test_processes_of_several_hosts_are_one_job_by_both_ends_of_their_links() -> None:
    here = rank(0, rank=None, pid=11, world=0, job={}, group=11, links=["10.0.0.1:5>10.0.0.2:6"])
    near = rank(0, rank=None, pid=12, world=0, job={}, group=11)
    far = rank(0, looks("sleep"), rank=None, pid=21, world=0, job={}, links=["10.0.0.2:6>10.0.0.1:5"])
    stranger = rank(0, looks("sleep"), rank=None, pid=31, world=0, job={}, links=["10.0.0.2:7>10.0.0.9:5"])
    jobs = find_odd({"n1": host(here, near), "n2": host(far, stranger)})
    assert [len(job.ranks) for job in jobs] == [3, 1]
    assert jobs[0].job.startswith("3 connected processes of ann (pid 11 on n1, pid 12 on n1, pid 21 on n2)")
    assert [odd_rank.pid for odd_rank in jobs[0].odd_ranks] == [21]


def test_an_unnamed_job_that_is_not_understood_is_not_healthy_beside_a_healthy_one() -> None:
    moves = [rank(number, looks(switches=900, ran=1.0), world=2, tcp=[0, 10**6, 2 * 10**6]) for number in (0, 1)]
    stuck = [rank(0, looks("sleep"), rank=None, pid=pid, world=0, job={}, group=50) for pid in (50, 51)]
    jobs = find_odd({"n1": host(*moves, *stuck)})
    assert {job.result for job in jobs} == {"moves", "undecided"}
