"""Launches in the forms of public projects: none has an error as it is, and a planted mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.engine.result import Severity
from tests.lint.launch_report import lint_report
from tests.lint.public_launches import ANY, LAUNCHES

NOT_TOLD = {
    ("swift deepspeed", "--hostfile=./hosts.txt --master_addr localhost"),  # hosts of a hostfile are not counted
    ("picotron", "--rdzv_backend=c10"), ("picotron", "=localhost:29500"),
    ("cpu container", "--nnodes=3"),  # srun has options that a branch sets
    ("pbs mpiexec", "export MASTER_ADDR=localhost"),
    ("pbs openmpi", "mpirun -x MASTER_ADDR=127.0.0.1 -np 4 "),
    ("lsf", "localhost:29400"), ("lightning", "--num_nodes 3"),
}  # fmt: skip
"""What is known not to be told."""
PLANTED = [(name, *mistake) for name, (_, mistakes) in LAUNCHES.items() for mistake in mistakes]


def findings(text: str, folder: Path) -> dict[str, bool]:
    """The checks with findings, and whether one of them is an error."""
    (folder / "hosts.txt").write_text("n1 slots=4\nn2 slots=4\n")
    (folder / "run.sh").write_text(text)
    outcomes = [outcome for outcome in lint_report(["run.sh"]).outcomes if outcome.findings]
    return {one.check: any(one.severity_of(f) is Severity.ERROR for f in one.findings) for one in outcomes}


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_public_launch_has_no_finding(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert findings(LAUNCHES[name][0], tmp_path) == {}


@pytest.mark.parametrize(("name", "old", "new", "check"), PLANTED)
def test_a_mistake_in_a_public_launch_is_told(
    name: str, old: str, new: str, check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = LAUNCHES[name][0]
    assert old in text
    told = findings(text.replace(old, new), tmp_path)
    assert (bool(told) if check == ANY else check in told) == ((name, new) not in NOT_TOLD), told
