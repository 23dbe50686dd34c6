"""Runs on NPUs and GPUs, without one: what HCCL, NCCL, torch_npu and CUDA refuse on hosts that are in order.

The devices are emulated (`tests/smoke/rehearsal/devices.py`: what is rehearsed there, and what is not); the agent, the
worker, torch and the judges are the product's own. Each case failed once, by reading of public sources, on a healthy
host.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from doctor.smoke.programs.worker.main import leave_together
from tests.hosts.fleet import Fleet
from tests.hosts.npu import PCI_IDS
from tests.smoke.interpreter import visible_folders
from tests.smoke.test_hosts import CLEAN, failed, messages

pytestmark = [pytest.mark.torch, pytest.mark.hosts, pytest.mark.timeout(330)]
ROOT = Path(__file__).resolve().parents[2]
REHEARSAL = ROOT / "tests/smoke/rehearsal"
FILES = {"hccl": "davinci", "nccl": "nvidia", "rccl": "dri/renderD"}
FOUR = tuple(range(4))


def host_with(backend: str, numbers: tuple[int, ...], family: str = "A2") -> dict[str, Any]:
    """Overrides of a host that shows these devices."""
    pci = "/sys/bus/pci/devices/0000:c1:00.0"
    npu = {f"{pci}/vendor": "0x19e5\n", f"{pci}/class": "0x120000\n", f"{pci}/device": f"{PCI_IDS[family]}\n"}
    files = npu if backend == "hccl" else {}
    if backend == "rccl":
        files = {"/sys/class/kfd/kfd/topology/nodes/0/properties": "cpu_cores_count 64\nsimd_count 0\n"}
        for node, number in enumerate(numbers, 1):
            text = f"cpu_cores_count 0\nsimd_count 416\nvendor_id 4098\ndevice_id 29711\ndrm_render_minor {number}\n"
            files[f"/sys/class/kfd/kfd/topology/nodes/{node}/properties"] = text
    devices = {f"{FILES[backend]}{number}": "666 root:root" for number in numbers}
    return {"shows": visible_folders(), "devices": devices, "files": files}


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    kinds = {
        "reh0001": host_with("hccl", FOUR),
        "reh0002": host_with("hccl", FOUR),
        "reh0003": host_with("hccl", (5, 6)),
        "reh0004": host_with("hccl", tuple(range(8)), "A1"),
        "reh0005": host_with("nccl", (2, 3)),
        "reh0006": host_with("rccl", (128, 129, 130)),
        "reh0007": host_with("rccl", (128, 129, 130)),
    }
    return make_fleet(len(kinds), kinds, name="reh")


Rehearse = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def rehearse(fleet: Fleet) -> Iterator[Rehearse]:
    """Runs `doctor smoke` on hosts of the fleet. Variables in lower case are settings of the rehearsal."""

    def run(hosts: str, *arguments: str, backend: str = "hccl", **settings: str) -> tuple[int, dict[str, Any]]:
        rehearsed = {f"REHEARSED_{name.upper()}": value for name, value in settings.items() if name.islower()}
        job = {name: value for name, value in settings.items() if not name.islower()}
        variables = {"PYTHONPATH": str(REHEARSAL), **rehearsed}
        variables |= {"REHEARSED": {"nccl": "cuda", "rccl": "rocm"}[backend]} if backend != "hccl" else {}
        visible = {name: value for name, value in job.items() if "VISIBLE" in name}
        python = " ".join(["env", *(f"{name}='{value}'" for name, value in variables.items()), sys.executable])
        for host in hosts.split(",") * bool(visible):
            lines = "".join(f"export {name}={value}\\n" for name, value in visible.items())
            fleet.enter(host, f"printf '{lines}' > /root/.bashrc")
        argv = [sys.executable, "-m", "doctor", "smoke", hosts, "-F", str(fleet.ssh_config), "--python", python]
        argv += ["--json", "--no-history", "--budget", "280", *arguments]
        done = fleet.run(
            argv, env={**CLEAN, **{k: v for k, v in job.items() if k not in visible}}, cwd=ROOT, timeout=300
        )
        assert "Traceback" not in done.stderr
        if os.environ.get("SHOW"):
            print(done.stdout[:200], done.stderr[-2000:])
        return done.returncode, json.loads(done.stdout) if done.stdout.startswith("{") else {"error": done.stderr}

    yield run
    for host in fleet.hosts:
        fleet.enter(host, "rm -f /root/.bashrc")


def assert_healthy(result: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    code, report = result
    assert code == 0, (report.get("error"), failed(report) if "outcomes" in report else "", messages(report)[:3])
    assert report["smoke"]["ended"] == "complete"
    return report


def test_npus_of_two_hosts_train(rehearse: Rehearse, fleet: Fleet) -> None:
    """Rows 4 and 10: a plain name of an interface is a prefix; batch_isend_irecv takes NPU rank % count."""
    with other_interface(fleet, "reh0002"):
        report = assert_healthy(rehearse("reh0001,reh0002", "--devices", "2-3", "--interface", "eth0"))
    assert any("HCCL_BUFFSIZE is 200 MB, the default" in note for note in report["smoke"]["notes"])


@contextmanager
def other_interface(fleet: Fleet, host: str) -> Iterator[None]:
    """One whose name begins like the right one."""
    fleet.enter(host, "ip link add eth01 type veth peer name other && ip link set eth01 up")
    try:
        yield
    finally:
        fleet.enter(host, "ip link del eth01")


def test_an_interface_whose_name_begins_like_the_right_one(rehearse: Rehearse, fleet: Fleet) -> None:
    """Row 4, where the run itself chooses the interface."""
    with other_interface(fleet, "reh0002"):
        assert_healthy(rehearse("reh0001,reh0002", "--devices", "0", "--env", "clean"))


JOB = {"HCCL_CONNECT_TIMEOUT": "1800", "HCCL_EXEC_TIMEOUT": "3600"}
EXPECTED = "HCCL_CONNECT_TIMEOUT=1800 HCCL_EXEC_TIMEOUT=3600"
CLEAN_EXPECTED = "HCCL_CONNECT_TIMEOUT=120 HCCL_EXEC_TIMEOUT=75 HCCL_BUFFSIZE=16"


@pytest.mark.parametrize("backend", ["hccl", "nccl"])
def test_what_each_of_these_platforms_does_is_no_fault_of_a_host(rehearse: Rehearse, backend: str) -> None:
    """Rows 1, 3, 5, 7 and 8 at once. Each alone runs with --full: the tests that follow."""
    host, more = {"hccl": ("reh0003", {**JOB, "expect": EXPECTED, "avg": "refused"}), "nccl": ("reh0005", {})}[backend]
    report = assert_healthy(rehearse(host, backend=backend, torch="2.1", poke="1", **more))
    numbers = [int(place.rpartition(" ")[2]) for place in report["smoke"]["placements"]]
    assert numbers == {"hccl": [5, 6], "nccl": [2, 3]}[backend]


def test_a_clean_environment_has_the_runs_own_values_and_needs_little_memory(rehearse: Rehearse) -> None:
    """Rows 5 and 9."""
    assert_healthy(rehearse("reh0003", "--env", "clean", expect=CLEAN_EXPECTED, memory="100", **JOB))


@pytest.mark.full
@pytest.mark.parametrize("backend", ["hccl", "nccl"])
def test_a_torch_whose_process_group_takes_no_device(rehearse: Rehearse, backend: str) -> None:
    """Row 1: torch 2.1 and 2.2 know no ``device_id``. Of NCCL the barrier must name its device then."""
    host = {"hccl": "reh0003", "nccl": "reh0005"}[backend]
    assert_healthy(rehearse(host, backend=backend, torch="2.1"))


@pytest.mark.full  # of its groups `test_plan`; eight interpreters take a minute
def test_groups_that_the_910a_allows(rehearse: Rehearse) -> None:
    """Row 2: of 8 NPUs no group of 2 or 4 may span both halves."""
    report = assert_healthy(rehearse("reh0004", "--budget", "240", soc="910A"))
    assert [layout["layout"] for layout in report["smoke"]["layouts"]] == [
        "dp8",
        "dp8 zero1 acc2",
        "tp8 recompute",
    ]


def test_groups_that_the_910a_forbids_are_refused_beforehand(rehearse: Rehearse) -> None:
    code, report = rehearse("reh0004", "--devices", "2-5", soc="910A")
    assert code == 2
    assert "NPUs 2, 3, 4, 5 of reh0004 are not in one half (0-3 or 4-7)" in report["error"]


@pytest.mark.full
def test_a_container_with_some_of_the_devices(rehearse: Rehearse) -> None:
    """Row 3: what /dev shows as 5 and 6 has the ordinals 0 and 1."""
    report = assert_healthy(rehearse("reh0003"))
    assert [int(place.rpartition(" ")[2]) for place in report["smoke"]["placements"]] == [5, 6]


@pytest.mark.parametrize(
    ("host", "backend", "variable"),
    [("reh0001", "hccl", "ASCEND_RT_VISIBLE_DEVICES"), ("reh0005", "nccl", "CUDA_VISIBLE_DEVICES")],
)
def test_devices_that_the_environment_hides(rehearse: Rehearse, host: str, backend: str, variable: str) -> None:
    """Row 3: of devices 2 and 3 (GPUs) or 0 to 3 (NPUs) the login's environment shows number 1 alone."""
    report = assert_healthy(rehearse(host, backend=backend, **{variable: "1"}))
    assert [int(place.rpartition(" ")[2]) for place in report["smoke"]["placements"]] == [
        {"hccl": 1, "nccl": 3}[backend]
    ]


@pytest.mark.parametrize(
    ("backend", "variable", "value"),
    [
        ("hccl", "ASCEND_RT_VISIBLE_DEVICES", "7"),
        ("nccl", "CUDA_VISIBLE_DEVICES", "-1"),
        pytest.param("nccl", "CUDA_VISIBLE_DEVICES", "", marks=pytest.mark.full),
        pytest.param("nccl", "CUDA_VISIBLE_DEVICES", "7", marks=pytest.mark.full),
    ],
)
def test_devices_that_are_all_hidden_are_not_found_healthy(
    rehearse: Rehearse, backend: str, variable: str, value: str
) -> None:
    """A job that needs them ends at its start. It may be one on CPUs: no error, and healthy where that is said."""
    host, hidden = {"hccl": "reh0003", "nccl": "reh0005"}[backend], {variable: value}
    code, report = rehearse(host, backend=backend, **hidden)
    assert (code, failed(report)) == (12, {}), messages(report)
    (outcome,) = [outcome for outcome in report["outcomes"] if outcome["check"] == "smoke-device-wrong"]
    assert "the environment hides every" in json.dumps(outcome["unknown"])
    if value == "-1":
        assert_healthy(rehearse(host, "--backend", "gloo", backend=backend, **hidden))


def test_the_host_without_devices_that_were_asked_for_is_named_and_not_the_one_that_has_some(
    rehearse: Rehearse, fleet: Fleet
) -> None:
    """A job of both ends at its start, by the host whose login hides its NPUs."""
    fleet.write("reh0003", "/root/.bashrc", "export ASCEND_RT_VISIBLE_DEVICES=-1\n")
    code, report = rehearse("reh0001,reh0003", "--backend", "hccl", backend="hccl")
    assert (code, failed(report)) == (10, {"smoke-rank-not-started": ["reh0003"]}), messages(report)
    assert "reh0003: its environment hides every NPU; expected at least one for hccl" in json.dumps(report)


@pytest.mark.parametrize("more", [{}, {"SLURM_GPUS_ON_NODE": "2"}], ids=["a job on CPUs", "a job that has GPUs"])
def test_a_job_that_slurm_has_allocated_no_gpu(rehearse: Rehearse, fleet: Fleet, more: dict[str, str]) -> None:
    """Of the host with GPUs 2 and 3. Where Slurm has allocated some, that none is visible is not known to be right."""
    variables = {"SLURM_JOB_ID": "42", "CUDA_VISIBLE_DEVICES": "NoDevFiles", "SLURM_JOB_GPUS": "NoDevFiles", **more}
    fleet.write("reh0005", "/root/.bashrc", "".join(f"export {name}={value}\n" for name, value in variables.items()))
    code, report = rehearse("reh0005", backend="nccl")
    assert (code, failed(report)) == (12 if more else 0, {}), messages(report)
    notes = [note for note in report["smoke"]["notes"] if "Slurm has allocated this job no GPU of reh0005" in note]
    assert len(notes) == (0 if more else 1)


@pytest.mark.full
def test_the_jobs_own_timeouts_are_in_force(rehearse: Rehearse) -> None:
    """Row 5: with --env clean there are the run's own."""
    assert_healthy(rehearse("reh0003", expect=EXPECTED, **JOB))
    assert_healthy(rehearse("reh0003", "--env", "clean", expect=CLEAN_EXPECTED, **JOB))


def test_averages_that_are_sums_are_told_as_what_they_are(rehearse: Rehearse) -> None:
    """Row 7: and no device is named for them."""
    code, report = rehearse("reh0003", avg="sum")
    assert code == 10
    assert list(failed(report)) == ["smoke-collective-wrong"]
    (message,) = messages(report)
    assert message.startswith("all_reduce with ReduceOp.AVG returns the sum on every rank")


@pytest.mark.full
@pytest.mark.parametrize("backend", ["hccl", "nccl"])
def test_an_import_that_asks_for_the_devices(rehearse: Rehearse, backend: str) -> None:
    """Row 8: what follows in a forked process would fail."""
    assert_healthy(rehearse({"hccl": "reh0003", "nccl": "reh0005"}[backend], backend=backend, poke="1"))


def test_little_memory_beside_another_job(rehearse: Rehearse) -> None:
    """Row 9: 100 MB are too few for a buffer of 2 x 200 MB; they are enough with --env clean."""
    code, report = rehearse("reh0003", memory="100")
    assert code == 10
    assert "out of memory" in json.dumps(messages(report))


def test_gpus_of_amd_train_by_rccl(rehearse: Rehearse) -> None:
    """ROCm's torch has its GPUs as cuda, and RCCL as nccl; nothing is asked for but the hosts."""
    report = assert_healthy(rehearse("reh0006,reh0007", "--devices", "1", backend="rccl"))
    assert [int(place.rpartition(" ")[2]) for place in report["smoke"]["placements"]] == [1, 1]


@pytest.mark.parametrize(
    ("variables", "devices"),
    [
        ({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, [2]),
        pytest.param({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1,2"}, [0], marks=pytest.mark.full),
    ],
)
def test_gpus_of_amd_that_the_environment_hides(
    rehearse: Rehearse, variables: dict[str, str], devices: list[int]
) -> None:
    report = assert_healthy(rehearse("reh0006", backend="rccl", **variables))
    assert [int(place.rpartition(" ")[2]) for place in report["smoke"]["placements"]] == devices


def test_a_torch_that_sees_none_of_the_gpus_is_named_with_its_version(rehearse: Rehearse) -> None:
    """As one that was built for CUDA sees none of AMD."""
    python = f"env HIP_VISIBLE_DEVICES= REHEARSED=rocm PYTHONPATH={REHEARSAL} {sys.executable}"
    code, report = rehearse("reh0006", "--python", python, backend="rccl")
    assert code == 10
    assert list(failed(report)) == ["smoke-rank-not-started"]
    # Of ranks that all fail alike, the first to end is named.
    sentence = rf"cuda (\d) is ordinal \1 here, and torch \({re.escape(version('torch'))}\) sees 0; \w+"
    assert re.search(sentence, messages(report)[0])


def test_no_rank_leaves_before_all_have_passed_the_last_barrier() -> None:
    """Seen on an H200: the thread of NCCL that sends ended with its process, and the other rank waited for ever."""
    from torch.distributed import HashStore

    store, second = HashStore(), timedelta(seconds=20)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(leave_together, store, 0, 2, second)
        store.wait(["passed/0"], second)
        assert not first.done()
        pool.submit(leave_together, store, 1, 2, second).result()
        first.result()


def test_a_rank_leaves_alone_where_another_one_does_not_come() -> None:
    from torch.distributed import HashStore

    leave_together(HashStore(), 0, 2, timedelta(milliseconds=50))
