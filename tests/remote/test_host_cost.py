"""What the collector loads on a host: a module counts there as much as a question, on every host and in every run."""

from __future__ import annotations

import ast
import re
import subprocess
from typing import Any

import pytest

from doctor.collect.collector.questions import HELPERS
from doctor.collect.collector_request import COLLECTOR, function_source, probe_fields
from doctor.engine.catalog import load_checks, select_checks
from doctor.engine.evaluate import read_fact
from doctor.engine.fact import Absent, Fact, Output, Visit
from doctor.engine.record import HostRecord
from doctor.facts.job_paths import JobProgram
from doctor.facts.peer_connections import PeerConnections
from tests.test_collector import PYTHONS

SLOW = {
    *(
        "argparse",
        "base64",
        "collections",
        "contextlib",
        "ctypes",
        "dataclasses",
        "enum",
        "functools",
        "glob",
        "hashlib",
    ),
    *("inspect", "json", "logging", "pathlib", "queue", "random", "re", "selectors", "shutil", "signal", "socket"),
    *("ssl", "subprocess", "tempfile", "threading", "traceback", "typing", "urllib", "warnings"),
}
"""Each takes from a fifth to twice the time of Python's own start."""
ASK_ALL = """
import sys
before = set(sys.modules)
exec(source)
for text, name in questions:
    namespace = dict((helper, globals()[helper]) for helper in helpers)
    exec(text, namespace)
    namespace[name](dict(job_input, asked=name))
print(" ".join(set(sys.modules) - before))
"""
JOB_INPUT = {"hosts": ["localhost"], "ports": [29500], "open_connections": {"targets": [], "seconds": 1}}


def questions() -> list[type[Fact]]:
    """Those that every host without accelerators is asked, and whose answers have no need of a tool."""
    facts = {fact for check in select_checks(load_checks()) for fact in check.facts if fact.probe.kind == "ask"}
    return [fact for fact in facts if (not fact.needs or fact is PeerConnections) and not fact.probe.requires]


def test_what_a_question_names_of_the_runtime_is_there_on_the_host() -> None:
    helpers, absent = {helper.__name__ for helper in HELPERS}, set[str]()
    for fact in {fact for check in load_checks() for fact in check.facts if fact.probe.function is not None}:
        function: Any = fact.probe.function
        source = function_source(function)
        absent |= {
            name
            for name, value in function.__globals__.items()
            if callable(value) and (getattr(value, "__module__", "") or "").startswith("doctor.remote.runtime")
            if re.search(rf"\b{name}\(", source) and name not in helpers and f"def {name}(" not in source
        }
    assert absent == set()


@pytest.mark.parametrize("python", PYTHONS)
def test_no_slow_module_is_loaded(python: str) -> None:
    requested: list[Any] = [fact.probe.function for fact in questions()]
    assert len(requested) > 15
    texts = [(function_source(function), function.__name__) for function in requested]
    content = f"source={COLLECTOR.source!r}\nquestions={texts!r}\nhelpers={[helper.__name__ for helper in HELPERS]!r}\n"
    program = f"{content}job_input={JOB_INPUT!r}{ASK_ALL}"
    bare = ["unshare", "--net", "--", python, "-I", "-S", "-"]  # a host without firewall rules
    done = subprocess.run(bare, input=program, capture_output=True, text=True, timeout=60, check=False)
    if "unshare:" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) & SLOW == set()


def test_a_question_loses_its_comments_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a text of it holds what looks like a comment, or begins a line."""
    functions = {fact.probe.function for check in load_checks() for fact in check.facts} - {None}
    sent = {function: function_source(function) for function in functions if function}
    assert all("  # " not in line or line[:1].isupper() for text in sent.values() for line in text.splitlines())
    monkeypatch.setattr("doctor.collect.collector_request.dense", lambda text: text)
    for function, text in sent.items():
        whole = function_source.__wrapped__(function)
        assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(whole)), function
        assert len(text) <= len(whole)


def test_what_is_asked_of_a_launch_line_is_sent_where_there_is_one() -> None:
    def sent(**arguments: object) -> str:
        return str(probe_fields(JobProgram.probe, arguments)["text"])

    assert len(sent(ports=[29500])) < 100 < len(sent(program="/work/train.py"))
    assert sent(files=["ds.json"]) == sent(counts_gpus=True) == str(probe_fields(JobProgram.probe)["text"])
    namespace: dict[str, Any] = {}
    exec(sent(), namespace)
    assert namespace["find_program"]({}) == {}
    assert isinstance(read_fact(HostRecord(Visit(), {"JobProgram": {"": Output(out="{}")}}), JobProgram), Absent)
