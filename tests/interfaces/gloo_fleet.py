"""A real gloo job on test hosts: one rank a host, `init_process_group` and one all-reduce.

torch is imported once on each host, by a process that stays and forks a rank for each job: a job takes about a second.
That holds for variables that are read when the process group is made (`READ_LATE`). A job with any other is one of new
interpreters, which import torch with the variables in their environment, as a user's job does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tests.hosts import testbed
from tests.hosts.fleet import INSIDE, Fleet, merge
from tests.readable import readable
from tests.smoke.interpreter import visible_folders

READ_LATE = frozenset(("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "GLOO_SOCKET_IFNAME"))
"""Variables that are read when the process group is made: rows with each die and live by its value."""

SERVER = """
import ctypes, json, os, signal, subprocess, sys
def end_with_parent():
    # Not SIGTERM, at which torchrun waits for its ranks: its store would answer the next job meanwhile.
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
end_with_parent()
try:
    import torch
    import torch.distributed as dist
except BaseException as error:
    print(json.dumps("import: " + type(error).__name__ + ": " + str(error)[:300]), flush=True)
    sys.exit(1)
from datetime import timedelta
torch.set_num_threads(1)

def torchrun(job):
    from torch.distributed.run import main
    os.environ.update(job["environ"])
    main(job["argv"])
    return ""

def in_new_interpreter(job):
    again = {**job, "early": []}
    argv = [sys.executable, "-u", "-c", job["source"]]
    environ = {**os.environ, **{name: job["environ"][name] for name in job["early"]}}
    limit = 8 * job["seconds"] + 15
    try:
        done = subprocess.run(argv, input=json.dumps(again), env=environ, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return "hangs"
    lines = [line for line in done.stdout.splitlines() if line != "ready"]
    return json.loads(lines[0]) if lines else "exit status " + str(done.returncode)

def rank(job):
    os.environ.update(RANK=str(job["rank"]), WORLD_SIZE=str(job["world"]))
    os.environ.update(job["environ"])
    dist.init_process_group(job["backend"], timeout=timedelta(seconds=job["seconds"]))
    value = torch.ones(70000)
    dist.all_reduce(value)
    dist.barrier()
    return "" if value[-1].item() == job["world"] else "wrong sum"

print("ready", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    if job["early"]:
        print(json.dumps(in_new_interpreter(job)), flush=True)
        continue
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        end_with_parent()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 2)
        try:
            text = torchrun(job) if job["argv"] else rank(job)
        except BaseException as error:
            text = type(error).__name__ + ": " + str(error)[:2000]
        os.write(send, text.encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as file:
        text = file.read()
    os.waitpid(pid, 0)
    print(json.dumps(text), flush=True)
"""


class JobEnd(NamedTuple):
    """How a job ended: whether all ranks came to the end, and what each host's rank said."""

    lives: bool
    messages: dict[str, str]
    """By host: empty for a rank that ended well."""


class GlooFleet:
    """Test hosts, each with a process that has imported torch and runs ranks."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.servers: dict[str, subprocess.Popen[str]] = {}

    def start(self) -> None:
        """Starts the processes that are not running; hosts that were made anew have lost theirs."""
        for host in self.fleet.hosts:
            if host not in self.servers or self.servers[host].poll() is not None:
                argv = testbed.enter_argv(self.fleet._pid(host), [sys.executable, "-u", "-c", SERVER])
                self.servers[host] = subprocess.Popen(
                    argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=INSIDE
                )
        for host, server in self.servers.items():
            if not hasattr(server, "is_ready"):
                assert server.stdout
                assert server.stdout.readline() == "ready\n", host
                server.is_ready = True  # type: ignore[attr-defined]

    def run(
        self, environ: Mapping[str, str], by_host: Mapping[str, Mapping[str, str]] | None = None, seconds: int = 4
    ) -> JobEnd:
        """One job on all hosts. ``seconds``: the process group's timeout; a rank still silent long after has hung."""
        hosts = self.fleet.hosts
        jobs = {}
        for number, host in enumerate(hosts):
            variables = {"MASTER_ADDR": self.fleet.addresses[hosts[0]], "MASTER_PORT": "29500", **environ}
            variables.update((by_host or {}).get(host, {}))
            early = sorted(variables.keys() - READ_LATE)
            jobs[host] = {"environ": variables, "rank": number, "world": len(hosts), "backend": "gloo", "argv": []}
            jobs[host] |= {"early": early, "source": SERVER if early else ""}
        return self._jobs(jobs, seconds)

    def run_torchrun(self, environ: Mapping[str, str], argv: Mapping[str, Sequence[str]], seconds: int) -> JobEnd:
        """One job that torchrun starts on each host, with its arguments by host; its ranks are new interpreters.

        ``seconds``: what the arguments and the program wait at most, each.
        """
        job: dict[str, Any] = {"environ": dict(environ), "early": []}
        return self._jobs({host: {**job, "argv": list(argv[host])} for host in self.fleet.hosts}, seconds)

    def _jobs(self, jobs: Mapping[str, Mapping[str, Any]], seconds: int) -> JobEnd:
        self.start()
        for host, job in jobs.items():
            stdin = self.servers[host].stdin
            assert stdin
            stdin.write(json.dumps({**job, "seconds": seconds}) + "\n")
            stdin.flush()
        end = time.monotonic() + 8 * seconds + 20
        fields: dict[str, str] = {}
        for host in jobs:
            stdout = self.servers[host].stdout
            assert stdout
            if readable([stdout], end - time.monotonic()):
                fields[host] = json.loads(stdout.readline())
            else:
                fields[host] = "hangs"
                self.stop(host)
        return JobEnd(not any(fields.values()), fields)

    def stop(self, host: str) -> None:
        """Ends the host's process; the next job starts it again."""
        server = self.servers.pop(host)
        server.kill()
        with server:  # closes its pipes
            pass

    def down(self) -> None:
        """Ends all processes."""
        for host in list(self.servers):
            self.stop(host)


def gloo_fleet(make_fleet: Any, count: int, overrides: Mapping[str, Any] | None = None, **options: Any) -> GlooFleet:
    """``count`` test hosts that see torch."""
    return GlooFleet(make_fleet(count, {"*": merge({"shows": visible_folders()}, dict(overrides or {}))}, **options))
