"""Options of what stands around a launcher: refused by doctor exactly where the program itself refuses them."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from doctor.job.launch_line.commands import wrapper_rows
from doctor.job.launch_line.read import read_launch_line

RUN = "torchrun --nproc_per_node 2 t.py"
REFUSED = {
    "docker run --gpu all --ipc host img": ("--gpu", "--gpus"),
    "docker run --gpus all --shm=8g img": ("--shm", "--shm-size"),
    "docker run --networks host img": ("--networks", "--network"),
    "podman run --shm-sze 8g img": ("--shm-sze", "--shm-size"),
    "numactl --cpunodbind=0": ("--cpunodbind", "--cpunodebind"),
    "taskset --cpulist 0": ("--cpulist", "--cpu-list"),
    "timeout --kill-afer 10 60": ("--kill-afer", "--kill-after"),
    "stdbuf --outptu=L": ("--outptu", "--output"),
    "sudo --preserve-evn": ("--preserve-evn", "--preserve-env"),
}
TAKEN = (
    "docker run --gpus all --ipc host --health-start-period 3s img",
    "podman run --cgroups=disabled --secret a --umask 0022 img",
    "podman-hpc run --gpu --nccl --shm-size 8g img",
    "apptainer exec --nv --no-mount home,tmp --blkio-weight-device /dev/sda:10 img.sif",
    "numactl --cpubind 0",
    "taskset --cpu-list 0",
    "timeout --kill-after 10 60",
    "prlimit --nofile=1024 --verbose",
    "sudo --chroot / --close-from 9",
)
OF_TEST_BED = {"podman", "taskset", "timeout", "stdbuf", "sudo", "prlimit", "chrt"}
"""Programs that every machine of the tests has; others are asked where they are."""


def is_here(words: str) -> bool:
    name = words.partition(" ")[0]
    return name in OF_TEST_BED or shutil.which(name) is not None


def complaint(words: str) -> str:
    """What the program says of its options; it starts no torchrun, whose name is that of no file."""
    command = [*words.split(), "/nonexistent/torchrun"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
    text = answer.stdout + answer.stderr
    match = re.search(r".*(?:unknown flag|unrecognized option|invalid option|Unknown option).*", text)
    return match[0] if match else ""


@pytest.mark.parametrize("words", REFUSED)
def test_an_option_that_the_program_refuses_is_told(words: str) -> None:
    problems = [(one.option, one.expected) for one in read_launch_line(f"{words} {RUN}".split()).problems]
    assert REFUSED[words] in problems
    assert not is_here(words) or REFUSED[words][0].lstrip("-") in complaint(words)


@pytest.mark.parametrize("words", TAKEN)
def test_an_option_that_the_program_takes_is_none(words: str) -> None:
    line = read_launch_line(f"{words} {RUN}".split())
    assert [problem for problem in line.problems if problem.kind == "refused"] == []
    assert (line.program, line.launchers[-1].ranks_per_node) == ("t.py", 2)
    assert not is_here(words) or complaint(words) == ""


@pytest.mark.parametrize("command", ["podman run", "taskset", "timeout", "prlimit", "chrt"])
def test_no_option_of_a_program_is_taken_for_another_one(command: str) -> None:
    """All long options that its help lists."""
    name, _, subcommand = command.partition(" ")
    row = wrapper_rows()[name, subcommand]
    answer = subprocess.run([*command.split(), "--help"], capture_output=True, text=True, timeout=60, check=False)
    listed = set(re.findall(r"(?<![\w-])--([a-z][a-z0-9-]+)", answer.stdout + answer.stderr))
    assert len(listed) > 3
    assert {name: row.nearest(name) for name in listed if not row.canonical(name) and row.nearest(name)} == {}
