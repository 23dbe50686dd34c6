"""What job-python-missing finds."""

from __future__ import annotations

import pytest

from doctor.facts.python_env import JobPython
from tests.checks.devices import fleet, of, skipped

look = of("job_python_missing")


def test_an_interpreter_that_is_there() -> None:
    assert look(fleet(JobPython(asked="/opt/job/bin/python", path="/opt/job/bin/python"))) == []


@pytest.mark.parametrize(
    ("asked", "folder"),
    [("/opt/job/bin/python", "/opt/job"), ("/usr/bin/python3.11", ""), ("/bin/python3", ""), ("python3.11", "")],
)
def test_one_that_is_not(asked: str, folder: str) -> None:
    """Its environment is copied from a host that has it; a folder of the whole system is not."""
    (finding,) = look(fleet(JobPython(asked, ""), JobPython(asked, asked)))
    assert (str(finding), finding.hosts) == (f"the interpreter {asked} was not found", ("a",))
    assert (finding.values["source"], finding.values["folder"]) == ("b", folder)


def test_none_was_named() -> None:
    assert skipped(look, fleet(JobPython(asked="", path="/usr/bin/python3")))
