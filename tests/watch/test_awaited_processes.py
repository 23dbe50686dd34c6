"""What computes at the other end of a rank's wait, with real processes in sessions of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from doctor.remote.runtime.stack_frames import is_of_program, without_own_frames
from doctor.watch.attach.inspector import awaited_processes
from doctor.watch.attach.inspector.awaited_processes import Helpers, far_end, lock_holders, other_ends, related
from doctor.watch.attach.inspector.rank_state import awaited_links, sleeps_for

SERVER = """
import os, socket, sys, time
kind, path, works = sys.argv[1:]
if kind == "fifo":
    os.mkfifo(path)
    end = open(path, "r+b", 0)
else:
    server = socket.socket(socket.AF_UNIX if "unix" in kind else socket.AF_INET)
    server.bind(path + ".socket" if "unix" in kind else ("127.0.0.1", 0))
    server.listen()
    with open(path, "w") as file:
        file.write(path + ".socket" if "unix" in kind else str(server.getsockname()[1]))
    if "backlog" not in kind:
        end = server.accept()[0]
while works == "works":
    sum(range(1000))
time.sleep(1000)
"""
CLIENT = """
import socket, sys
kind, path, _ = sys.argv[1:]
if kind == "fifo":
    open(path, "r+b", 0).read(1)
address = open(path).read()
client = socket.socket(socket.AF_UNIX if "unix" in kind else socket.AF_INET)
client.connect(address if "unix" in kind else ("127.0.0.1", int(address)))
client.recv(1)
"""


@contextmanager
def started(program: str, *words: str) -> Iterator[int]:
    argv = [sys.executable, "-c", program, *words]
    with subprocess.Popen(argv, start_new_session=True) as process:
        yield process.pid
        process.kill()


def until(happened: Callable[[], object], seconds: float = 60.0) -> None:
    limit = time.monotonic() + seconds
    while not happened() and time.monotonic() < limit:
        time.sleep(0.05)


@pytest.mark.parametrize("kind", ["tcp", "tcp_backlog", "unix", "unix_backlog", "fifo"])
@pytest.mark.parametrize("does", ["works", "rests"])
def test_a_server_beside_the_rank_is_found_by_what_the_rank_waits_for(kind: str, does: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    with started(SERVER, kind, str(place), does) as server:
        until(lambda: place.exists() and (kind == "fifo" or place.read_text()))
        with started(CLIENT, kind, str(place), does) as rank:
            until(lambda: any("socket:" in link or link == str(place) for link in awaited_links(rank)))  # type: ignore[no-untyped-call]
            time.sleep(0.5)  # the server has accepted it
            helpers, limit = Helpers({rank: {}}), time.monotonic() + (30 if does == "works" else 1)  # type: ignore[no-untyped-call]
            while (ran := helpers.ran(rank, "recv")) < 0.3 and time.monotonic() < limit:  # type: ignore[no-untyped-call]
                time.sleep(0.1)
            assert (ran >= 0.3) == (does == "works")
            ((name, stopped),) = helpers.names(rank)  # type: ignore[no-untyped-call]
            assert name.startswith(f"pid {server} (") and not stopped
            os.kill(server, signal.SIGSTOP)
            until(lambda: helpers.names(rank)[0][1])  # type: ignore[no-untyped-call]
            assert helpers.names(rank)[0][1]  # type: ignore[no-untyped-call]


def in_a_network_of_its_own(*words: str) -> list[str]:
    return ["nsenter", "--net=/run/netns/" + words[0], *words[1:]]


@pytest.fixture
def other_host() -> Iterator[tuple[str, str]]:
    """Name and address of a network beside this one's."""
    name, here, there = f"far{os.getpid()}", "10.203.7.1", "10.203.7.2"
    script = (
        f"ip netns add {name} && ip link add {name} type veth peer name eth0 netns {name} && "
        f"ip addr add {here}/30 dev {name} && ip link set {name} up && "
        f"ip -n {name} addr add {there}/30 dev eth0 && ip -n {name} link set eth0 up"
    )
    try:
        subprocess.run(["sh", "-c", script], check=True)
        yield name, there
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_end_on_another_host_that_a_rank_waits_for(other_host: tuple[str, str]) -> None:
    name, address = other_host
    server = f"import socket; s = socket.create_server(('{address}', 4711)); print(flush=True); s.accept()[0].recv(9)"
    client = f"import socket; s = socket.create_connection(('{address}', 4711)); s.recv(1)"
    argv = in_a_network_of_its_own(name, sys.executable, "-c", server)
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as far:
        assert far.stdout and far.stdout.readline()
        with started(client) as rank:
            until(lambda: far_end(rank))  # type: ignore[no-untyped-call]
            link, seconds = far_end(rank)  # type: ignore[no-untyped-call]
            assert link.startswith("10.203.7.1:") and link.endswith(f">{address}:4711") and -1 <= seconds < 60
            assert other_ends(rank) == set()  # type: ignore[no-untyped-call]
        far.kill()
    assert far_end(os.getpid()) is None  # type: ignore[no-untyped-call]


IDLE = "import sys, time; file = open(sys.argv[1]) if sys.argv[1] else None; time.sleep(1000)"


@pytest.mark.parametrize(
    ("tie", "is_related"),
    [
        ("", False),
        ("groups", True),
        ("unread", True),
        ("folder", True),
        ("job", True),
        ("file", True),
        ("step of slurm", True),
        ("container of the pod", True),
        ("another job of slurm", False),
    ],
)
def test_who_computes_for_a_rank_that_asks_again_and_again_has_something_in_common_with_it(
    tie: str, is_related: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts on which each service and each login has a control group of its own, as with systemd; else all share it."""
    texts = {"": "0::/system.slice/other.service\n", "unread": "", "groups": "0::/job\n"}
    # Slurm's and the kubelet's names of groups: each task, step and container has one of its own.
    slurm, pod = "0::/system.slice/slurmstepd.scope/job_{}/step_{}", "0::/kubepods.slice/kubepods-pod" + "a1" * 18
    texts["groups of the rank"] = texts["groups"]
    if "slurm" in tie:
        texts["groups of the rank"] = slurm.format(71, "0/user/task_1")
        texts[tie] = slurm.format(72 if "another" in tie else 71, "batch/user/task_0")
    if "pod" in tie:
        texts["groups of the rank"], texts[tie] = (
            pod + ".slice/cri-containerd-1.scope",
            pod + ".slice/cri-containerd-2.scope",
        )
    folder, other_folder = tmp_path / "job", tmp_path / "other"
    folder.mkdir()
    other_folder.mkdir()
    (folder / "file").touch()
    environ = {name: value for name, value in os.environ.items() if "PORT" not in name}
    command = [sys.executable, "-c", IDLE]
    job = {**environ, "MASTER_PORT": "29511"}
    step = {**job, "SLURM_STEP_ID": "4"}
    with (
        subprocess.Popen([*command, ""], cwd=folder, env=job, start_new_session=True) as rank,
        subprocess.Popen(
            [*command, str(folder / "file") if tie == "file" else ""],
            cwd=folder if tie == "folder" else other_folder,
            env=step if tie == "job" else environ,
            start_new_session=True,
        ) as other,
    ):
        # The kernel shows the variables a moment after exec has closed what it closes.
        until(lambda: all(Path(f"/proc/{each.pid}/environ").read_bytes() for each in (rank, other)))
        until(lambda: tie != "file" or str(folder / "file") in awaited_processes.open_files(other.pid, 64))  # type: ignore[attr-defined]
        groups = {rank.pid: texts["groups of the rank"], other.pid: texts.get(tie, texts[""])}
        plain = awaited_processes.read_text  # type: ignore[attr-defined]
        monkeypatch.setattr(
            awaited_processes,
            "read_text",
            lambda path, *most: groups[int(path.split("/")[2])] if "cgroup" in path else plain(path, *most),
        )
        found = related(rank.pid, [other.pid])  # type: ignore[no-untyped-call]
        rank.kill()
        other.kill()
        assert found == [other.pid] * is_related


def test_frames_of_the_hook_are_shown_nowhere() -> None:
    own = "/dev/shm/doctor-watch-1000-ab12/data-hooks/group_use.py"
    users = '  File "/x/doctor-watch-demo/t.py", line 3, in f'
    assert without_own_frames(f'  File "{own}", line 52, in all_reduce\n    return original(tensor)\n{users}') == users
    assert not is_of_program(own) and not is_of_program("doctor-watch/groups.py")
    assert is_of_program("/x/doctor-watch-demo/t.py") and is_of_program("/x/doctor-watch/t.py")


LOCKED_BY_CHILD = """
import fcntl, os, time
first, second = open("kept", "w"), open("kept")
if not os.fork():
    fcntl.lockf(first, fcntl.LOCK_EX)
    print("locked", flush=True)
    time.sleep(200)
time.sleep(0.5)
with open("kept", "w") as taker:
    fcntl.lockf(taker, fcntl.LOCK_EX)
"""


def test_who_keeps_the_lock_of_a_file_is_awaited_a_child_as_well(tmp_path: Path) -> None:
    words = [sys.executable, "-c", LOCKED_BY_CHILD]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=tmp_path, start_new_session=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"locked\n"
            until(lambda: lock_holders(process.pid))  # type: ignore[no-untyped-call]
            helpers = Helpers({process.pid: {}})  # type: ignore[no-untyped-call]
            awaited = helpers.awaited(process.pid)  # type: ignore[no-untyped-call]
            assert 0 < sleeps_for(process.pid, process.pid, awaited) <= 200  # type: ignore[no-untyped-call]
            assert helpers.ran(process.pid, "lock") == 0.0  # type: ignore[no-untyped-call]
        finally:
            os.killpg(process.pid, signal.SIGKILL)
