"""The way to pods: the real kubectl against a small server that speaks as the API server does (see its module).

What a real control plane, kubelets and containerd do is in `tests/hosts/kubernetes` (``--full``).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from doctor.hosts.selection import PodAccess
from doctor.transport import TransportError
from doctor.transport.kubernetes import kubectl
from doctor.transport.kubernetes.kubernetes_transport import Kubernetes
from tests import preloaded
from tests.hosts.kubernetes.small_server import NAMESPACE, SmallServer, kill_all, pod


def kubectl_speaks_websocket() -> bool:
    program = shutil.which("kubectl")
    if not program:
        return False
    said = subprocess.run([program, "version", "--client"], capture_output=True, text=True).stdout
    match = re.search(r"v1\.(\d+)", said)
    return bool(match) and int(match[1]) >= 31


pytestmark = pytest.mark.skipif(not kubectl_speaks_websocket(), reason="needs kubectl 1.31 or later")
MEMBERS = [pod(f"w-{number}", labels={"job-name": "train"}, owner="Job/train") for number in range(3)]
SHELL_ABSENT = (
    "error executing command in container: failed to exec in container: failed to start exec "
    '"c0ffee": OCI runtime exec failed: exec failed: unable to start container process: '
    'exec: "sh": executable file not found in $PATH: unknown'
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SmallServer]:
    small = SmallServer(tmp_path, MEMBERS)
    yield small
    small.close()


@pytest.fixture
def ways(server: SmallServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Kubernetes]]:
    """Makes transports to the server's pods."""
    made: list[Kubernetes] = []
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)

    def make(patience: float = 20.0, **more: object) -> Kubernetes:
        access = PodAccess(kubectl=kubectl.command_line(), namespace=NAMESPACE, **more)  # type: ignore[arg-type]
        made.append(Kubernetes(access, ("w-0", "w-1", "w-2"), patience))
        return made[-1]

    yield make
    for transport in made:
        transport.close()


def wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_kubectl_that_ends_well_before_the_command_does(tmp_path: Path) -> None:
    """So it does where the API server is killed: as `test_an_api_server_that_dies_in_the_middle` has it for real."""
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\necho doctor-in-container >&2\necho half\nexit 0\n")
    program.chmod(0o755)
    transport = Kubernetes(PodAccess(kubectl=(str(program),), namespace=NAMESPACE), ("w-0",), 5.0)
    with pytest.raises(TransportError) as stop:
        transport.run("w-0", "echo half; sleep 100", b"", 10)
    assert (stop.value.kind, stop.value.text) == ("lost", "the connection through the API server was cut")
    session = transport.open_session("w-0", "cat")
    with pytest.raises(TransportError) as stop:
        list(session)
    assert stop.value.kind == "lost"
    session.close()
    transport.close()


def test_outputs_and_exit_code_of_a_command(ways: Callable[..., Kubernetes]) -> None:
    result = ways().run("w-0", "head -c 6; echo trouble >&2; exit 3", b"hello\n", 60)
    assert (result.code, result.out, result.err) == (3, b"hello\n", b"trouble")


def test_a_command_beside_more_open_files_than_select_takes(
    ways: Callable[..., Kubernetes], server: SmallServer
) -> None:
    with ExitStack() as files:
        for _ in range(1100):
            files.enter_context(open(os.devnull))
        assert ways().run("w-0", "echo there", b"", 60).out == b"there\n"
    wait_for(lambda: not server.commands)


def test_death_by_a_signal_is_told_as_over_ssh(ways: Callable[..., Kubernetes]) -> None:
    assert ways().run("w-0", "kill -9 $$", b"", 60).code == -9


def test_lines_go_both_ways_and_the_program_ends_with_its_input(
    ways: Callable[..., Kubernetes], server: SmallServer
) -> None:
    session = ways().open_session("w-1", "while read line; do echo got $line; done; exit 4")
    session.send(b"one\n")
    lines = iter(session)
    assert next(lines) == b"got one"
    session.send(b"two\n")
    session.end()
    assert list(lines) == [b"got two"]
    assert session.code == 4
    wait_for(lambda: not server.commands)


def test_nothing_runs_on_in_a_pod_that_was_given_up(ways: Callable[..., Kubernetes], server: SmallServer) -> None:
    transport = ways()
    with pytest.raises(TransportError) as late:
        transport.run("w-0", "echo begun; cat", b"", -18.0)  # with the patience of 20 s: 2 s
    assert late.value.kind in ("timeout", "dropped")  # on a loaded machine it may not have begun
    session = transport.open_session("w-1", "echo begun; cat")
    assert next(iter(session)) == b"begun"
    transport.close()
    session.close()
    wait_for(lambda: not server.commands)


@pytest.mark.parametrize(
    ("forbidden", "failure", "kind", "text"),
    [
        ("create pods/exec", "", "auth", 'the API server forbids this user to create resource "pods/exec"'),
        ("get pods", "", "auth", 'the API server forbids this user to get resource "pods"'),
        (
            "",
            "error dialing backend: dial tcp 10.77.0.12:10250: connect: connection refused",
            "no-route",
            "the API server does not reach the kubelet of its node: 10.77.0.12:10250: connect: connection refused",
        ),
        ("", SHELL_ABSENT, "shell", "its container has no shell (sh): doctor needs sh and python3 there"),
        ("", 'container not found ("main")', "error", "its container does not run"),
    ],
)
def test_each_refusal_is_one_plain_sentence(
    ways: Callable[..., Kubernetes], server: SmallServer, forbidden: str, failure: str, kind: str, text: str
) -> None:
    server.forbidden = {forbidden}
    server.fail = {"w-0": failure} if failure else {}
    with pytest.raises(TransportError) as refused:
        ways().run("w-0", "true", b"", 60)
    assert (refused.value.kind, refused.value.text) == (kind, text)
    assert ("can-i" in refused.value.hint) == (kind == "auth")


def test_a_pod_that_is_gone(ways: Callable[..., Kubernetes]) -> None:
    with pytest.raises(TransportError, match="no such pod any more"):
        ways().run("w-7", "true", b"", 60)


def test_a_pod_that_dies_meanwhile(ways: Callable[..., Kubernetes], server: SmallServer) -> None:
    transport = ways()
    session = transport.open_session("w-0", "echo begun; cat")
    lines = iter(session)
    assert next(lines) == b"begun"
    kill_all(server)
    assert list(lines) == []
    assert session.code == -9


def test_an_api_server_that_comes_back(ways: Callable[..., Kubernetes], server: SmallServer, tmp_path: Path) -> None:
    port = server.port
    server.close()
    revived: list[SmallServer] = []

    def revive() -> None:
        time.sleep(1.0)
        revived.append(SmallServer(tmp_path, MEMBERS, port))

    thread = threading.Thread(target=revive)
    thread.start()
    try:
        assert ways(60.0).run("w-0", "echo there", b"", 60).out == b"there\n"
    finally:
        thread.join()
        revived[0].close()


def test_an_api_server_that_stays_away(ways: Callable[..., Kubernetes], server: SmallServer) -> None:
    server.close()
    with pytest.raises(TransportError, match=r"the API server 127\.0\.0\.1:\d+ refuses connections") as gone:
        ways(0.1).run("w-0", "true", b"", 5)
    assert gone.value.kind == "refused"


def test_an_api_server_that_says_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = ("kubectl", f"--server=http://127.0.0.1:{silent.getsockname()[1]}", f"--cache-dir={tmp_path}")
        transport = Kubernetes(PodAccess(kubectl=words, namespace=NAMESPACE), ("w-0",), 0.5)
        with pytest.raises(TransportError, match="started no command in it within") as late:
            transport.run("w-0", "true", b"", 0.5)
        assert late.value.kind == "dropped"
        with pytest.raises(TransportError, match="does not answer within 1 s"):
            kubectl.ask(words, "get", "--raw", "/api", seconds=1.0)


def test_check_of_a_job_and_of_pods_by_name(server: SmallServer, tmp_path: Path) -> None:
    server.pods["w-1"]["status"] = {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "The node was low on resource: memory.",
    }
    common = ["doctor", "check", "--transport", "kubernetes", "-s", "connectivity", "--no-history", "-f", "oneline"]
    try:
        of_job = preloaded.run([*common, "--job", "train"], env=server.environment(), capture_output=True, text=True)
        named = preloaded.run([*common, "w-0,nope"], env=server.environment(), capture_output=True, text=True)
    finally:
        server.pods["w-1"]["status"] = MEMBERS[0]["status"]
    assert of_job.returncode == 10, of_job.stdout + of_job.stderr
    assert "host-unreachable" in of_job.stdout and "w-1" in of_job.stdout
    assert named.returncode == 10 and "host-unreachable" in named.stdout and "nope" in named.stdout


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        (["check", "--job", "train"], 2, "--job names pods; expected --transport kubernetes with it"),
        (["check", "n1", "--selector", "a=b"], 2, "--selector is for pods; expected --transport kubernetes with it"),
        (["check", "--transport", "kubernetes"], 2, "expected one of HOSTS, --selector and --job; none is given"),
        (["check", "w-0", "--transport", "kubernetes", "-l", "ann"], 2, "--user is for SSH"),
        (["check", "--transport", "kubernetes", "--selector", "a=b"], 78, "no pod of team-a has these labels"),
        (["check", "--transport", "kubernetes", "--job", "x/y"], 78, "an unknown kind"),
        (["fix", "-w", "w-0", "--transport", "kubernetes"], 2, "--transport kubernetes cannot change hosts"),
        (["preflight", "--transport", "kubernetes"], 2, "reaches pods from outside"),
    ],
)
def test_options_that_cannot_be_followed(server: SmallServer, argv: list[str], code: int, text: str) -> None:
    done = preloaded.run(["doctor", *argv], env=server.environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, ""), done.stdout
    assert text in done.stderr and done.stderr.count("\n") == 1


def test_a_user_who_may_not_list(server: SmallServer) -> None:
    server.forbidden = {"list pods"}
    argv = ["doctor", "check", "--transport", "kubernetes", "--job", "train"]
    done = preloaded.run(argv, env=server.environment(), capture_output=True, text=True)
    assert done.returncode == 78
    expected = 'doctor: the API server forbids this user to list resource "pods"; try kubectl auth can-i list pods\n'
    assert done.stderr == expected


def test_diagnosis_of_logs_that_kubernetes_keeps(server: SmallServer, tmp_path: Path) -> None:
    ended = {"reason": "OOMKilled", "exitCode": 137}
    states = [{"name": "main", "restartCount": 1, "state": {"running": {}}, "lastState": {"terminated": ended}}]
    server.pods["w-2"] = {**MEMBERS[2], "status": {**MEMBERS[2]["status"], "containerStatuses": states}}
    for name in ("w-0", "w-1"):
        (tmp_path / name / "log").write_text("step 1 loss 2.0\n")
    (tmp_path / "w-2" / "log").write_text("starting again\n")
    (tmp_path / "w-2" / "previous.log").write_text(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
    )
    argv = ["doctor", "diagnose", "--transport", "kubernetes", "--job", "train", "--json", "--no-history"]
    done = preloaded.run(argv, env=server.environment(), capture_output=True, text=True)
    assert done.returncode == 10, done.stdout + done.stderr
    assert "w-2" in done.stdout and "previous" in done.stdout and "OOMKilled" in done.stdout


NO_LONGER = (
    'failed to try resolving symlinks in path "/var/log/pods/default_w-1_766a2c9e/main/0.log": '
    "lstat /var/log/pods/default_w-1_766a2c9e/main/0.log: no such file or directory"
)
"""A kubelet 1.20.2, with HTTP status 200: kubectl prints it, and ends with 0."""


def test_what_a_diagnosis_could_not_read_is_said(server: SmallServer, tmp_path: Path) -> None:
    """A log that a node no longer has beside one that was read, and events; a log that has the same words is a log."""
    states = [{"name": "main", "restartCount": 1, "state": {"running": {}}}]
    server.pods["w-1"] = {**MEMBERS[1], "status": {**MEMBERS[1]["status"], "containerStatuses": states}}
    server.forbidden = {"list events"}
    (tmp_path / "w-0" / "log").write_text("step 1 loss 2.0\n")
    (tmp_path / "w-1" / "log").write_text("step 1 loss 2.0\n")
    (tmp_path / "w-1" / "previous.log").write_text(NO_LONGER)
    (tmp_path / "w-2" / "log").write_text(f"step 1 loss 2.0\n{NO_LONGER}\n")
    argv = ["doctor", "diagnose", "--transport", "kubernetes", "--job", "train", "--json", "--no-history"]
    done = preloaded.run(argv, env=server.environment(), capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert (done.returncode, report["unread"]) == (
        12,
        ["the logs of w-1: main.previous.log: its node has it no longer"],
    ), report
    forbidden = 'the API server forbids this user to list resource "events"'
    assert report["notes"] == [f"the events of the pods cannot be read: {forbidden}"], report
    read = {file["name"] for file in report["files"] if file["host"]}
    assert read == {"w-0:main.log", "w-1:main.log", "w-2:main.log"}


def test_the_log_of_an_init_container_that_failed_is_read(server: SmallServer, tmp_path: Path) -> None:
    """It is what keeps the pod from starting; that of one that ended well is not asked for."""
    failed = {"terminated": {"reason": "Error", "exitCode": 1}}
    well = {"terminated": {"reason": "Completed", "exitCode": 0}}
    status = {
        "phase": "Pending",
        "initContainerStatuses": [
            {"name": "stage", "restartCount": 0, "state": well},
            {
                "name": "first",
                "restartCount": 2,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": failed,
            },
        ],
        "containerStatuses": [{"name": "main", "restartCount": 0, "state": {"waiting": {"reason": "PodInitializing"}}}],
    }
    spec = {**MEMBERS[2]["spec"], "initContainers": [{"name": "stage", "image": "x"}, {"name": "first", "image": "x"}]}
    server.pods["w-2"] = {**MEMBERS[2], "spec": spec, "status": status}
    for name in ("w-0", "w-1", "w-2"):
        (tmp_path / name / "log").write_text("step 1 loss 2.0\n")
    (tmp_path / "w-2" / "previous.log").write_text(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
    )
    argv = ["doctor", "diagnose", "--transport", "kubernetes", "--job", "train", "--json", "--no-history"]
    done = preloaded.run(argv, env=server.environment(), capture_output=True, text=True)
    assert done.returncode == 10, done.stdout + done.stderr
    read = {file["name"] for file in json.loads(done.stdout)["files"] if file["host"]}
    assert read == {f"w-{number}:main.log" for number in range(3)} | {"w-2:first.log", "w-2:first.previous.log"}
