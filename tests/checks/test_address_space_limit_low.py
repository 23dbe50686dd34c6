import re
import subprocess
from pathlib import Path

import pytest

from doctor.facts.gpu import GpuCards
from doctor.facts.limits import ADDRESS_SPACE, DATA, STACK, Limit, ResourceLimits
from tests.checks.limits import FREE, limits
from tests.checks.run_check import advice, messages, run_check

NAME = "address-space-limit-low"
MIB, GIB = 1 << 20, 1 << 30
GPU = GpuCards(pci=8, driver="", tool=False)


def _limits(name: str, soft: int | None, hard: int | None = None) -> ResourceLimits:
    return ResourceLimits(nofile=FREE, memlock=FREE, nproc=FREE, others={name: Limit(soft, hard)})


@pytest.mark.parametrize(
    "free",
    [
        limits(),
        *(_limits(name, None) for name in (ADDRESS_SPACE, DATA, STACK)),
        *(_limits(ADDRESS_SPACE, 16 * GIB), _limits(STACK, 8 * MIB), _limits(STACK, MIB), _limits(DATA, 4 * GIB)),
    ],
)
def test_no_limit_and_a_large_one_are_well(free: ResourceLimits) -> None:
    assert messages(run_check(NAME, {"a": [free]})) == []


@pytest.mark.parametrize(
    ("name", "soft", "word"),
    [
        (ADDRESS_SPACE, 799 * MIB, "error"),
        (ADDRESS_SPACE, 830 * MIB, "warning"),
        (DATA, 200 * MIB, "error"),
        (DATA, GIB, "warning"),
        (STACK, 60 << 10, "error"),
        (STACK, 256 << 10, "warning"),
    ],
)
def test_less_than_any_rank_needs_is_an_error(name: str, soft: int, word: str) -> None:
    (finding,) = run_check(NAME, {"a": [_limits(name, soft)], "b": [limits()]}).findings
    assert ("warning" if finding.is_warning else "error", finding.hosts) == (word, ("a",))


def test_with_a_gpu_any_limit_of_address_space_is_told() -> None:
    few, many = _limits(ADDRESS_SPACE, 64 * GIB), _limits(DATA, 64 * GIB)
    outcome = run_check(NAME, {"a": [few, GPU], "b": [few], "c": [many, GPU]})
    assert messages(outcome) == [("a", "the address space of a process is limited to 64 GiB; expected no limit")]


def test_who_can_raise_it() -> None:
    assert "`ulimit -v unlimited`" in advice(NAME, run_check(NAME, {"a": [_limits(ADDRESS_SPACE, GIB)]}))
    assert "`ulimit -d unlimited`" not in advice(NAME, run_check(NAME, {"a": [_limits(DATA, GIB, GIB)]}))


def test_the_printed_command_finds_the_line_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "limits.conf").write_text("# as many as there are\n*  hard  as  700000\n*  soft  nofile  9\n")
    (tmp_path / "login.sh").write_text("alias ll='ls -l'\nulimit -S -v 700000\n")
    text = advice(NAME, run_check(NAME, {"a": [_limits(ADDRESS_SPACE, GIB, GIB)]}))
    command = re.search(r"`(grep -rnE '[^']*') /etc/profile ", text)
    assert command, text
    done = subprocess.run(["sh", "-c", f"{command[1]} {tmp_path}"], capture_output=True, text=True)
    assert sorted(line.rpartition("/")[2] for line in done.stdout.splitlines()) == [
        "limits.conf:2:*  hard  as  700000",
        "login.sh:2:ulimit -S -v 700000",
    ]
