"""Threads that decode at once: msgspec builds a type's description when it is first used, and takes no lock for it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COLLECTED = """
from doctor.collect import collector_request as protocol
from doctor.remote.runtime.framing import frame
from doctor.transport import CommandResult

body = '{"outputs": {"Fact": {"": {"out": "x"}}}, "python": "3.11", "uid": 0, "name": "a", "began": 1.0, "ended": 2.0}'
result = CommandResult(0, frame("M", body).encode(), b"", 0.0, 1.0)

def decode():
    return protocol.parse_response(result, "M").visit.name
"""
LOGS = """
from doctor.diagnose.fetch.ask_hosts import LogAnswer

body = (
    b'{"path": "/a", "size": 1, "modified": 0, "inode": 1, "crc": 0, "lines": 1, "read": 1, "complete": true,'
    b' "notes": [], "kept": [[1, "x"]]}'
)

def decode():
    return LogAnswer().read_part(body) or "a"
"""
RANKS = """
from doctor.watch.attach.rank_report import read_report

body = (
    b'{"host": "a", "seconds": 1, "py_spy": false, "local": true, "ranks": [], "root": true, "not_found": []}'
)

def decode():
    return read_report(body).host
"""
BUNDLE = """
import msgspec
from doctor.diagnose.bundle import spool

def decode():
    return msgspec.json.decode(b'{"left_out": []}', type=spool._End) and "a"
"""
STRESS = """
import os, sys, threading

names = []

def meet(barrier):
    barrier.wait()
    names.append(decode())

crashed = 0
for _ in range(ROUNDS):
    child = os.fork()
    if not child:  # a fresh copy of the modules, in which nothing was decoded yet
        sys.setswitchinterval(1e-6)
        barrier = threading.Barrier(8)
        threads = [threading.Thread(target=meet, args=(barrier,)) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        os._exit(names != ["a"] * 8)
    crashed += os.waitpid(child, 0)[1] != 0
print(crashed)
"""
IN_THREADS = (
    "collect",
    "diagnose/fetch",
    "diagnose/bundle",
    "fix/remote_client.py",
    "smoke/rendezvous",
    "transport",
    "watch/attach",
    "watch/fleet",
)
"""What visits hosts, each in a thread of its own, or serves links of peers."""
ON_THE_WAY_BACK = {"LogRecord", "Contents"}
"""Of saved runs and bundles, which the main thread reads."""


def crashes(program: str, rounds: int = 60) -> int:
    """In how many of so many fresh processes eight threads that decode their first answer at once end by a signal."""
    done = subprocess.run(
        [sys.executable, "-c", program + STRESS.replace("ROUNDS", str(rounds))],
        capture_output=True, text=True, cwd=ROOT, timeout=100, check=True,
    )  # fmt: skip
    return int(done.stdout)


@pytest.mark.parametrize("program", [COLLECTED, LOGS, RANKS, BUNDLE], ids=["collected", "logs", "ranks", "bundle"])
def test_hosts_that_answer_at_the_same_moment_do_not_crash_the_interpreter(program: str) -> None:
    assert crashes(program) == 0


def test_what_threads_decode_is_prepared() -> None:
    prepared, decoded = set(), {}
    for path in (ROOT / "doctor").rglob("*.py"):
        name = path.relative_to(ROOT / "doctor").as_posix()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("prepare_decoding"):
                prepared |= {ast.unparse(kind) for kind in node.args}
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func).endswith("json.decode")
                and name.startswith(IN_THREADS)
            ):
                kinds = [ast.unparse(word.value) for word in node.keywords if word.arg == "type"]
                decoded.update({kind: name for kind in kinds if kind.lstrip("_")[:1].isupper()})
    assert decoded
    assert {kind: name for kind, name in decoded.items() if kind not in prepared | ON_THE_WAY_BACK} == {}
