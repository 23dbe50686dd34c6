"""`doctor preflight` in jobs of a real Grid Engine: which hosts it sees, and what it says of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.hosts.fleet import Fleet
from tests.hosts.grid_engine import ABSENT_PROGRAMS, GridEngine
from tests.jobs.scripts import script
from tests.jobs.site import FAULT, Site

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.full,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(ABSENT_PROGRAMS), reason=f"not installed: {', '.join(ABSENT_PROGRAMS)}"),
]
LINE = re.compile(r"^doctor preflight: .*$", re.MULTILINE)


@pytest.fixture(scope="module")
def site(make_fleet: Callable[..., Fleet]) -> Iterator[Site]:
    created_site = Site(make_fleet, 3, name="sge", subnet="10.79.0.0/16")
    yield created_site
    created_site.end()


@pytest.fixture(scope="module")
def engine(site: Site) -> GridEngine:
    return GridEngine(site.fleet)


def line_of(printed: str) -> str:
    (line,) = LINE.findall(printed)
    return str(line)


def test_the_documented_script_runs_on_healthy_hosts(site: Site, engine: GridEngine) -> None:
    text = script("batch").replace("-pe mpi 32", "-pe mpi 6").replace("python3 train.py", "echo trained")
    code, printed = engine.submit(text, "-S", "/bin/bash")
    assert code == 0, printed
    assert "OK nodes=3/3 where=grid_engine:" in line_of(printed)
    assert "trained" in printed


def test_the_hosts_of_the_allocation_alone_count(site: Site, engine: GridEngine) -> None:
    text = '#!/bin/sh\ndoctor preflight -t quick || exit\ncat "$PE_HOSTFILE"\n'
    code, printed = engine.submit(text, "-pe", "mpi", "4")
    assert code == 0, printed
    assert "OK nodes=2/2" in line_of(printed)
    hosts = re.findall(r"^(\S+) 2 all.q@", printed, re.MULTILINE)
    (other,) = set(site.hosts) - set(hosts)
    with site.closed_tmp(other):
        code, printed = engine.submit(text, "-pe", "mpi", "6")
    assert code == 10, printed
    assert f"bad={other}" in line_of(printed) and FAULT in line_of(printed)


def test_a_serial_job_and_each_task_of_an_array_check_their_own_host(site: Site, engine: GridEngine) -> None:
    text = "#!/bin/sh\ndoctor preflight -t quick\n"
    assert "OK nodes=1/1" in line_of(engine.submit(text)[1])
    code, printed = engine.submit(text, "-t", "1-2")
    assert code == 0, printed
    assert [line.split()[3] for line in LINE.findall(printed)] == ["nodes=1/1"] * 2


def test_without_its_hostfile_the_verdict_is_unknown(site: Site, engine: GridEngine) -> None:
    text = "#!/bin/sh\nPE_HOSTFILE=/no/such/file doctor preflight -t quick\n"
    code, printed = engine.submit(text, "-pe", "mpi", "4")
    assert code == 12, printed
    assert "UNKNOWN" in line_of(printed)
