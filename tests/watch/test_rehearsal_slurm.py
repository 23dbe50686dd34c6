"""`doctor rehearse -- srun ...` in a real Slurm: two hosts, each with a slurmd."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.fleet import Fleet
from tests.hosts.slurm import needs_slurm
from tests.jobs.site import Site

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.full,
    needs_slurm,
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def site(make_fleet: Callable[..., Fleet]) -> Iterator[Site]:
    site = Site(make_fleet, 2, name="reh", subnet="10.77.0.0/16")
    try:
        site.start_slurm("MinJobAge=60\n")
        (site.folder / "train.py").write_text("open('STARTED', 'w').close()\n")
        yield site
    finally:
        site.end()


def rehearse(site: Site, *line: str, **environ: str) -> tuple[int, dict[str, Any], str]:
    argv = [sys.executable, "-m", "doctor", "rehearse", "--json", "--", *line]
    env = {**site.environ, "PYTHONPATH": str(ROOT), "DOCTOR_HISTORY": "off", **environ}
    done = site.fleet.run(argv, env=env, cwd=site.folder, timeout=120)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def ranks(document: dict[str, Any]) -> list[tuple[int, int, str]]:
    return [(row["rank"], row["local_rank"], row["host"]) for row in document["ranks"]]


def left(site: Site) -> list[str]:
    return [str(path) for path in site.folder.rglob("*") if "doctor-rehearsal" in path.name or path.name == "STARTED"]


def test_each_rank_of_srun_answers_with_what_it_got(site: Site) -> None:
    first, second = site.hosts
    line = ("srun", "-N2", "-n4", "--ntasks-per-node=2", sys.executable, "train.py", "--lr", "1")
    code, document, errors = rehearse(site, *line, NCCL_DEBUG="WARN")
    assert ranks(document) == [(0, 0, first), (1, 1, first), (2, 0, second), (3, 1, second)], (code, document, errors)
    assert code == 0, (document, errors)
    assert {row["variables"]["NCCL_DEBUG"] for row in document["ranks"]} == {"WARN"}
    assert left(site) == []


def test_a_variable_that_export_leaves_out_is_seen_from_the_rank(site: Site) -> None:
    """What the shell has set does not reach the ranks: that is what only they can tell."""
    line = ("srun", "-N2", "-n2", "--export=PATH", sys.executable, "train.py")
    code, document, errors = rehearse(site, *line, NCCL_SOCKET_IFNAME="eth0")
    assert len(ranks(document)) == 2, (code, document, errors)
    assert all("NCCL_SOCKET_IFNAME" not in row["variables"] for row in document["ranks"])
    assert left(site) == []


def test_a_login_shell_behind_srun_and_a_job_script_in_its_allocation(site: Site) -> None:
    first, second = site.hosts
    line = ("srun", "-N2", "-n2", "bash", "-lc", f"A=1 {sys.executable} train.py")
    code, document, errors = rehearse(site, *line)
    assert ranks(document) == [(0, 0, first), (1, 0, second)], (code, document, errors)
    directives = "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2 --output=job.out\n"
    body = f"cat > conf.yaml <<EOF\nsrun: no\nEOF\nsrun {sys.executable} train.py\n"
    (site.folder / "job.sh").write_text(f"#!/bin/bash\n{directives}{body}")
    code, document, errors = rehearse(site, "sbatch", "job.sh")
    assert (code, document) == (78, {}) and "doctor rehearse -- bash job.sh" in errors
    typed = shlex.split(errors.partition("allocation: ")[2])
    typed[typed.index("doctor") : typed.index("--")] = [sys.executable, "-m", "doctor", "rehearse", "--json"]
    env = {**site.environ, "PYTHONPATH": str(ROOT), "DOCTOR_HISTORY": "off"}
    done = site.fleet.run(typed, env=env, cwd=site.folder, timeout=120)
    document = json.loads(done.stdout)
    assert ranks(document) == [(0, 0, first), (1, 1, first), (2, 0, second), (3, 1, second)], (document, done.stderr)
    assert left(site) == []


def test_a_line_that_slurm_refuses_is_never_healthy(site: Site) -> None:
    code, document, _ = rehearse(site, "srun", "-N9", "--immediate=5", sys.executable, "train.py")
    assert code not in (0, 11) and not document.get("ranks")
    assert left(site) == []
