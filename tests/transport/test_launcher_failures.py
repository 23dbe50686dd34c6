"""Hosts that a launcher cannot start a task on: each costs its own launch, and the rest get theirs.

srun is a program of the test here, that says what the real one says of nodes that died before slurmctld noticed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from doctor.transport import TransportError
from doctor.transport.launcher.launcher_transport import LauncherTransport
from doctor.transport.launcher.slurm_steps import Slurm

SRUN = """\
import os, subprocess, sys, threading, time
words = sys.argv[1:]
if words == ["--version"]:
    sys.exit("slurm 22.05.8")
hosts = words[words.index("--nodelist") + 1].split(",")
with open(os.environ["LAUNCHES"], "a") as log:
    log.write(",".join(hosts) + "\\n")
carrier = words[words.index("/bin/sh"):]
dead, silent = os.environ["DEAD"].split(","), os.environ["SILENT"].split(",")
for number, host in enumerate(hosts):
    print("srun: launching StepId=1.0 on host %s, 1 tasks: %d" % (host, number), file=sys.stderr, flush=True)
def carry(number):
    pipe = subprocess.PIPE
    with subprocess.Popen(carrier, stdin=pipe, stdout=pipe, env=dict(os.environ, SLURM_PROCID=str(number))) as child:
        children.append(child)
        for line in child.stdout:
            sys.stdout.buffer.write(b"%d: %s" % (number, line))
            sys.stdout.buffer.flush()
children = []
for host in hosts:
    if host in dead:
        text = "Task launch for StepId=1.0 failed on node %s: Communication connection failure" % host
        print("srun: error: " + text, file=sys.stderr, flush=True)
if set(dead).intersection(hosts) and os.environ["MODE"] == "end":
    sys.exit(233)
time.sleep(float(os.environ.get("LATE", "0")))
for number, host in enumerate(hosts):
    if host not in dead and host not in silent:
        threading.Thread(target=carry, args=[number], daemon=True).start()
for line in sys.stdin.buffer:
    for child in children:
        child.stdin.write(line)
        child.stdin.flush()
"""


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., LauncherTransport]]:
    opened: list[LauncherTransport] = []
    (tmp_path / "srun.py").write_text(SRUN)

    def open_(hosts: Sequence[str], dead: str = "-", silent: str = "-", mode: str = "end") -> LauncherTransport:
        environ = {
            "PATH": os.environ["PATH"],
            "DOCTOR_SRUN": f"{sys.executable} {tmp_path}/srun.py",
            "LAUNCHES": str(tmp_path / "launches"),
            "DEAD": dead,
            "SILENT": silent,
            "MODE": mode,
        }
        opened.append(LauncherTransport(Slurm(environ), hosts, 2.0, 1 << 20))
        return opened[-1]

    yield open_
    for launcher_transport in opened:
        launcher_transport.close()


def outcomes(transport: LauncherTransport, hosts: Sequence[str]) -> dict[str, str]:
    """What a command printed on each host, or the kind of its failure."""

    def run(host: str) -> str:
        try:
            return transport.run(host, "echo fine", b"", 20).out.decode().strip()
        except TransportError as stop:
            return stop.kind

    with ThreadPoolExecutor(len(hosts)) as pool:
        return dict(zip(hosts, pool.map(run, hosts), strict=True))


@pytest.mark.parametrize("hosts", [("a",), ("a", "b"), ("a", "b", "c")])
def test_when_all_hosts_of_a_launch_are_dead_each_has_its_reason(
    launch: Callable[..., LauncherTransport], hosts: tuple[str, ...]
) -> None:
    """That srun ends with a status that says nothing of a node does not make the hosts wait for ever."""
    transport, began = launch(hosts, dead=",".join(hosts)), time.monotonic()
    assert outcomes(transport, hosts) == dict.fromkeys(hosts, "dropped")
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("mode", ["end", "go on"])
def test_a_dead_host_leaves_the_others_their_answers(
    launch: Callable[..., LauncherTransport], tmp_path: Path, mode: str
) -> None:
    """srun ends with the first node that fails, or goes on without it. No host is launched more often than needed."""
    transport = launch(("a", "b", "c"), dead="b", mode=mode)
    assert outcomes(transport, ("a", "b", "c")) == {"a": "fine", "b": "dropped", "c": "fine"}
    assert (tmp_path / "launches").read_text() == "a,b,c\na,c\n"
    assert transport.warnings[0].startswith("srun was started again")


def test_a_host_that_says_nothing_and_one_that_is_dead(launch: Callable[..., LauncherTransport]) -> None:
    transport = launch(("a", "b", "c"), dead="b", silent="c", mode="go on")
    assert outcomes(transport, ("a", "b", "c")) == {"a": "fine", "b": "dropped", "c": "dropped"}


def test_in_a_large_launch_a_named_host_gets_a_launch_of_few(launch: Callable[..., LauncherTransport]) -> None:
    """There srun reaches nodes through others, and names those behind a dead one: they may be healthy."""
    hosts = [f"h{number}" for number in range(18)]
    transport = launch(hosts, dead="h3,h4")
    responses = outcomes(transport, hosts)
    assert {host for host, description in responses.items() if description == "dropped"} == {"h3", "h4"}
    assert {host for host, description in responses.items() if description == "fine"} == set(hosts) - {"h3", "h4"}
