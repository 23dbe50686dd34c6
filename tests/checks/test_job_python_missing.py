"""What job-python-missing finds."""

from __future__ import annotations

from doctor.facts.python_env import JobPython
from tests.checks.devices import of, skipped

look = of("job_python_missing")


def test_an_interpreter_that_is_there() -> None:
    assert look(JobPython(asked="/opt/job/bin/python", path="/opt/job/bin/python")) == []


def test_one_that_is_not() -> None:
    (finding,) = look(JobPython(asked="/opt/job/bin/python", path=""))
    assert str(finding) == "the interpreter /opt/job/bin/python was not found"


def test_none_was_named() -> None:
    assert skipped(look, JobPython(asked="", path="/usr/bin/python3"))
