"""visible-devices-wrong."""

from __future__ import annotations

import pytest

from doctor.engine.result import Status
from doctor.facts.amd_smi import AmdGpu, AmdGpus
from doctor.facts.gpu import Gpu, GpuCards, GpuInventory
from doctor.job import LaunchConfig
from doctor.job.variables import VISIBLE_DEVICES
from doctor.smoke.programs.agent.procfs import VISIBLE
from tests.checks.launch_lines import config, run_check
from tests.checks.run_check import job, messages
from tests.checks.run_check import run_check as run_on_hosts
from tests.checks.tables import list_messages

DEVICES: list[tuple[str, str, str]] = [
    ("0,1,2,3", "torchrun --nproc-per-node 4 t.py", ""),
    ("0,1", "", ""),
    ("0,8", "", "names device 8"),
    ("0,1,1", "", "names a device twice"),
    ("0,1", "torchrun --nproc-per-node 4 t.py", "names 2 devices for 4 ranks"),
]


@pytest.mark.parametrize(("value", "line", "message"), DEVICES)
def test_visible_devices(value: str, line: str, message: str) -> None:
    environ = {"ASCEND_RT_VISIBLE_DEVICES": value}
    launch = config(line, environ) if line else LaunchConfig.from_environment(environ)
    outcome = run_check("visible-devices-wrong", launch, 1, 8)
    assert outcome.status is (Status.FAILED if message else Status.PASSED)
    assert all(message in text for text in list_messages(outcome))


@pytest.mark.parametrize(
    ("value", "left"), [("-1", False), ("-1,0", False), ("NoDevFiles", False), ("0,-1", True), ("GPU-8f2c", True)]
)
def test_a_list_that_begins_with_no_device_hides_all_of_them(value: str, left: bool) -> None:
    """On an H200 with -1: "ProcessGroupNCCL is only supported with GPUs, no GPUs found!"."""
    cards = {"w1": [GpuCards(pci=8, driver="550.90", tool=True)]}
    outcome = run_on_hosts("visible-devices-wrong", cards, job(CUDA_VISIBLE_DEVICES=value))
    text = f"CUDA_VISIBLE_DEVICES is {value}, which leaves the job no device; the host has 8"
    assert messages(outcome) == ([] if left else [("w1", text)])


def test_gpus_that_are_not_there() -> None:
    launch = job(CUDA_VISIBLE_DEVICES="0,9")
    outcome = run_on_hosts("visible-devices-wrong", {"w1": [GpuCards(pci=8, driver="550.90", tool=True)]}, launch)
    assert messages(outcome) == [("w1", "CUDA_VISIBLE_DEVICES names device 9, and the host has 8")]


@pytest.mark.parametrize(
    ("value", "line", "severity"),
    [
        ("0,1", "torchrun --standalone --nproc-per-node 1 t.py", "warning"),
        ("1,0", "torchrun --standalone --nproc-per-node 1 t.py", "error"),
        ("0,1", "torchrun --standalone --nproc-per-node 2 t.py", "error"),
        ("0,1", "", "error"),
        ("GPU-0b0cd39b,GPU-deadbeef", "torchrun --standalone --nproc-per-node 1 t.py", "warning"),
        ("GPU-deadbeef,GPU-0b0cd39b", "torchrun --standalone --nproc-per-node 1 t.py", "error"),
        ("GPU-0B0CD39B-860c", "torchrun --standalone --nproc-per-node 1 t.py", ""),
        ("MIG-3f2c", "torchrun --standalone --nproc-per-node 1 t.py", ""),
        ("", "torchrun --standalone --nproc-per-node 1 t.py", "warning"),
        ("0 1", "torchrun --standalone --nproc-per-node 1 t.py", ""),
        ("0-7", "torchrun --standalone --nproc-per-node 8 t.py", "error"),
        ("0;1", "torchrun --standalone --nproc-per-node 2 t.py", "error"),
    ],
)
def test_a_job_that_needs_no_more_than_what_stands_before_the_wrong_entry_starts(
    value: str, line: str, severity: str
) -> None:
    """Each beside a real job on a host with one H200: with one rank, 0,1 ran, and 1,0 and an absent UUID ended it."""
    gpu = Gpu(0, "NVIDIA H200", "GPU-0b0cd39b-860c-a7a3-9eef-beb407b2bbdb", "580.159.03", 143771, 0)
    host = [GpuCards(pci=1, driver="580.159.03", tool=True), GpuInventory(gpus=(gpu,))]
    launch = config(line, {"CUDA_VISIBLE_DEVICES": value}) if line else job(CUDA_VISIBLE_DEVICES=value)
    findings = run_on_hosts("visible-devices-wrong", {"w1": host}, launch).findings
    assert ["warning" if finding.is_warning else "error" for finding in findings] == [severity] * bool(severity)


def test_devices_by_name_are_not_judged() -> None:
    launch = LaunchConfig.from_environment({"CUDA_VISIBLE_DEVICES": "GPU-8f2c"})
    assert run_check("visible-devices-wrong", launch, 1, 8).status is Status.SKIPPED


COUNTS: list[tuple[list[str], list[str]]] = [
    (["0,1", "0,1", "0,1"], []),
    (["0,1", "4,5", "2,3"], []),
    (["0,1,2,3,4,5,6,7", "", ""], []),
    (["", "", "0,1"], ["ASCEND_RT_VISIBLE_DEVICES leaves 2 devices; 2 of 3 hosts have 8"]),
    (["0,1", "0,1", "0"], ["ASCEND_RT_VISIBLE_DEVICES leaves 1 device; 2 of 3 hosts have 2"]),
]


@pytest.mark.parametrize(("values", "expected"), COUNTS)
def test_as_many_devices_on_every_host(values: list[str], expected: list[str]) -> None:
    """Ranks may differ in number between hosts, where the launcher counts them: a warning."""
    own_values = {f"n{number}": {"ASCEND_RT_VISIBLE_DEVICES": value} for number, value in enumerate(values)}
    outcome = run_check("visible-devices-wrong", LaunchConfig.from_environment({}, by_host=own_values), 3, 8)
    assert [str(finding) for finding in outcome.findings] == expected
    assert all(finding.is_warning for finding in outcome.findings)


def test_fewer_devices_than_ranks_need_no_host() -> None:
    launch = config("torchrun --nproc-per-node 4 t.py", {"CUDA_VISIBLE_DEVICES": "0,1"})
    texts = [str(finding) for finding in run_on_hosts("visible-devices-wrong", {}, launch).findings]
    assert texts == ["CUDA_VISIBLE_DEVICES names 2 devices for 4 ranks"]
    launch = config("torchrun --nproc-per-node 4 t.py", {"CUDA_VISIBLE_DEVICES": "0,1,2,3"})
    assert run_on_hosts("visible-devices-wrong", {}, launch).complete


AMD: list[tuple[dict[str, str], list[str]]] = [
    ({"HIP_VISIBLE_DEVICES": "0,9"}, ["HIP_VISIBLE_DEVICES names device 9, and the host has 8"]),
    ({"ROCR_VISIBLE_DEVICES": "0,8"}, ["ROCR_VISIBLE_DEVICES names device 8, and the host has 8"]),
    ({"CUDA_VISIBLE_DEVICES": "0,9"}, ["CUDA_VISIBLE_DEVICES names device 9, and the host has 8"]),
    ({"HIP_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICES": "0,9"}, []),  # HIP reads the first alone
    ({"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "0,1"}, []),
    (
        {"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "4,5"},
        ["HIP_VISIBLE_DEVICES names device 4 and 5, and ROCR_VISIBLE_DEVICES leaves 2"],
    ),
    ({"ROCR_VISIBLE_DEVICES": "GPU-8f2c", "HIP_VISIBLE_DEVICES": "9"}, []),  # what a name leaves is not known
]


@pytest.mark.parametrize(("environ", "expected"), AMD)
def test_devices_of_amd(environ: dict[str, str], expected: list[str]) -> None:
    gpus = AmdGpus(gpus=tuple(AmdGpu(number, f"0000:{number:02x}:00.0") for number in range(8)))
    outcome = run_on_hosts("visible-devices-wrong", {"w1": [gpus]}, job(**environ))
    assert [message for _, message in messages(outcome)] == expected


def test_how_many_devices_of_amd_there_are_is_not_known_where_one_cannot_be_read() -> None:
    gpus = AmdGpus(
        gpus=tuple(AmdGpu(number, f"0000:{number:02x}:00.0") for number in range(7)), unread={"GPU 7": "ecc"}
    )
    assert not run_on_hosts("visible-devices-wrong", {"w1": [gpus]}, job(HIP_VISIBLE_DEVICES="7")).findings


def test_variables_of_amd_do_not_count_on_other_hosts() -> None:
    launch = job(HIP_VISIBLE_DEVICES="0,9", CUDA_VISIBLE_DEVICES="0,1")
    outcome = run_on_hosts("visible-devices-wrong", {"w1": [GpuCards(pci=8, driver="550.90", tool=True)]}, launch)
    assert messages(outcome) == []
    line = config("torchrun --nproc-per-node 4 t.py", {"HIP_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICES": "0,1,2,3"})
    assert run_on_hosts("visible-devices-wrong", {}, line).findings == ()


def test_fewer_devices_of_amd_than_ranks_need_no_host() -> None:
    line = config("torchrun --nproc-per-node 4 t.py", {"HIP_VISIBLE_DEVICES": "0,1"})
    texts = [str(finding) for finding in run_on_hosts("visible-devices-wrong", {}, line).findings]
    assert texts == ["HIP_VISIBLE_DEVICES names 2 devices for 4 ranks"]


def test_the_job_s_variables_are_those_with_a_rule() -> None:
    assert {name for choices in VISIBLE.values() for names in choices for name in names} == set(VISIBLE_DEVICES)
