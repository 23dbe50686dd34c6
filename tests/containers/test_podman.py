"""Real containers: what they were given is the norm, and what they lack is found exactly where the job dies of it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.containers.podman import Podman, unavailable

pytestmark = [pytest.mark.hosts, pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "it is there")]
JOB = Path(__file__).with_name("loader_job.py")
NPU = [f"--device=/dev/null:/dev/{name}" for name in ("davinci4", "davinci_manager", "devmm_svm", "hisi_hdc")]
USER = "import getpass; getpass.getuser()"


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    # podman refuses a folder whose path has more than 50 characters.
    with tempfile.TemporaryDirectory(prefix="p", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Podman(Path(folder))


def check(podman: Podman, *options: str, launch: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
    """Exit code and report of `doctor check` in a container."""
    done = podman.run(options, [sys.executable, "-m", "doctor", "check", "--scope", "local", "--json", *launch])
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def errors(report: dict[str, Any]) -> dict[str, list[str]]:
    """The messages of the errors, by check."""
    return {
        outcome["check"]: messages
        for outcome in report["outcomes"]
        if (messages := [finding["message"] for finding in outcome["findings"] if finding["severity"] == "error"])
    }


def unknown(report: dict[str, Any]) -> list[str]:
    return [outcome["check"] for outcome in report["outcomes"] if outcome["unknown"]]


def test_a_container_with_room_is_healthy(podman: Podman) -> None:
    """Without an administrator's rights, /proc/sys read-only, a network of its own: nothing is unknown of it."""
    code, report = check(podman, "--shm-size=1g")
    assert (errors(report), unknown(report), code) == ({}, [], 0)


def test_the_default_of_dev_shm_and_a_part_of_the_npus(podman: Podman) -> None:
    """NPU 4 alone is no fault; that its driver's library was not mounted is."""
    code, report = check(podman, *NPU)
    results = errors(report)
    assert code == 10
    (finding,) = next(row["findings"] for row in report["outcomes"] if row["check"] == "shm-docker-default")
    assert finding["message"] == "/dev/shm holds 62.5 MiB, the default of a container; expected more than 64 MiB"
    assert finding["severity"] == "warning"
    assert results["container-devices-missing"] == ["the container has NPUs, but not libascend_hal.so of their driver"]
    assert set(results) == {"container-devices-missing"}


@pytest.mark.full
def test_the_job_dies_where_dev_shm_is_small_and_lives_where_not(podman: Podman) -> None:
    for options, lives in (((), False), (("--shm-size=48m",), False), (("--shm-size=1g",), True)):
        done = podman.run(options, [sys.executable, str(JOB)])
        assert ("the job lives" in done.stdout) is lives, done.stderr[-500:]
        code, report = check(podman, *options, launch=("--", sys.executable, str(JOB)))
        assert (code == 0, bool(errors(report))) == (lives, not lives)


@pytest.mark.full
def test_a_container_whose_limits_are_low(podman: Podman) -> None:
    """With a group of its own: what a program takes beyond the limit ends it, and what stays below it does not."""
    greedy = f"data = bytearray({300 << 20}); data[::4096] = bytes([1]) * len(data[::4096]); print('it lives')"
    for memory, processes, dies in (("128m", 1000, True), ("2g", 8192, False)):
        options = ("--cgroups=enabled", f"--memory={memory}", f"--pids-limit={processes}")
        report = check(podman, "--shm-size=1g", *options)[1]
        failed = {outcome["check"] for outcome in report["outcomes"] if outcome["status"] == "failed"}
        assert failed >= {"memory-short", "process-limit-low"} if dies else not failed & {"memory-short"}, failed
        done = podman.run(options, [sys.executable, "-c", greedy])
        assert (done.returncode == 137, "it lives" in done.stdout) == (dies, not dies), done.stderr


@pytest.mark.full
def test_the_gate_of_a_job_in_a_container(podman: Podman) -> None:
    """HOME is read-only, as an image may be: the job lives, and preflight lets it start."""
    gate = [sys.executable, "-m", "doctor", "preflight", "--tier", "quick", "--budget", "60s"]
    for options, code in ((["--shm-size=1g"], 0), ([], 10)):
        done = podman.run([*options, "--read-only", "--read-only-tmpfs=false"], [*gate, "--", sys.executable, str(JOB)])
        assert done.returncode == code, done.stdout + done.stderr


@pytest.mark.full
def test_a_user_without_a_name(podman: Podman) -> None:
    for options, lives in ((("--user=0",), True), (("--user=54321", "--passwd=false"), False)):
        done = podman.run(options, ["/usr/bin/python3", "-I", "-c", USER])
        assert (done.returncode == 0) is lives, done.stderr
        if lives:
            assert check(podman, "--shm-size=1g", *options)[0] == 0
    named = podman.run(["--user=54321", "--passwd=false", "--env=USER=worker"], ["/usr/bin/python3", "-I", "-c", USER])
    assert named.returncode == 0


@pytest.mark.full
@pytest.mark.parametrize("absent", ["davinci_manager", "devmm_svm", "hisi_hdc"])
def test_each_file_of_the_driver(podman: Podman, absent: str) -> None:
    code, report = check(podman, "--shm-size=1g", *(option for option in NPU if not option.endswith(absent)))
    assert f"the container has NPU 4, but not /dev/{absent}" in errors(report)["container-devices-missing"]
    assert code == 10


@pytest.mark.full
def test_the_runtime_that_did_not_read_its_variable(podman: Podman) -> None:
    _, report = check(podman, "--shm-size=1g", "--env=ASCEND_VISIBLE_DEVICES=4-5", *NPU)
    text = "ASCEND_VISIBLE_DEVICES names NPU 5, and the container has no device file of it"
    assert text in errors(report)["container-devices-missing"]


@pytest.mark.full
def test_from_the_host_with_within(podman: Podman) -> None:
    """The words of `--within` enter a container that runs: its /dev/shm and devices are judged, not the machine's."""
    name = f"doctor-{os.getpid()}"
    started = podman.run([*NPU[:3], "--detach", "--name", name], ["sleep", "170"])
    assert started.returncode == 0, started.stderr
    try:
        within = shlex.join(podman.argv("exec", "-i", name))
        done = subprocess.run(
            [sys.executable, "-m", "doctor", "check", "--scope", "local", "--within", within, "--json"],
            capture_output=True,
            text=True,
            timeout=100,
        )
        results = errors(json.loads(done.stdout))
    finally:
        subprocess.run(podman.argv("kill", name), capture_output=True, timeout=60)
    assert "/dev/shm holds 62.5 MiB" in done.stdout
    assert "the container has NPU 4, but not /dev/hisi_hdc" in results["container-devices-missing"]
