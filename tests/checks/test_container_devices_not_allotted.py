"""What container-devices-not-allotted finds."""

from __future__ import annotations

import pytest

from tests.checks.containers import container, npus
from tests.checks.run_check import advice, messages, run_check, skipped

NAME = "container-devices-not-allotted"
GPUS = ("nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl", "nvidia-uvm")
UUIDS = ("GPU-8f2c1a3e-0000-4f1f-9c7e-0123456789ab", "GPU-9f2c1a3e-0000-4f1f-9c7e-0123456789ab")


def test_npus_of_others() -> None:
    outcome = run_check(NAME, {"w1": [container(*npus(*range(8)), visible_npus="0-3")]})
    text = "the container has NPU 4-7 beside those that ASCEND_VISIBLE_DEVICES names: 0-3"
    assert messages(outcome) == [("w1", text)]
    assert "`export ASCEND_RT_VISIBLE_DEVICES=0,1,2,3`" in advice(NAME, outcome)


@pytest.mark.parametrize("value", ["0,1", ",".join(UUIDS), " 2 , 3 "])
def test_gpus_of_others(value: str) -> None:
    outcome = run_check(NAME, {"w1": [container(*GPUS, visible_gpus=value)]})
    assert messages(outcome) == [("w1", "the container has 4 GPUs, and NVIDIA_VISIBLE_DEVICES names 2")]
    assert "CUDA_VISIBLE_DEVICES=" in advice(NAME, outcome) and "IPC_LOCK" in advice(NAME, outcome)


def test_its_own_alone() -> None:
    hosts = {
        "w1": [container(*npus(0, 1, 2, 3), visible_npus="Ascend910-0,Ascend910-1,Ascend910-2,Ascend910-3")],
        "w2": [container("nvidia4", "nvidia5", "nvidiactl", visible_gpus=",".join(UUIDS))],
    }
    assert messages(run_check(NAME, hosts)) == []


@pytest.mark.parametrize(
    "more",
    [
        {"visible_gpus": "all"},
        {"visible_gpus": "void"},
        {"visible_gpus": ""},
        {"visible_gpus": "MIG-8f2c1a3e-0000-4f1f-9c7e-0123456789ab"},
        {"visible_gpus": "0:1"},
        {"visible_gpus": "/var/run/nvidia-container-devices"},
        {"visible_gpus": "\x1b[31m0"},
        {"visible_npus": "100"},
    ],
)
def test_what_names_no_whole_devices_is_not_judged(more: dict[str, str]) -> None:
    outcome = run_check(NAME, {"w1": [container(*GPUS, *npus(0, 1), **more)]})
    assert skipped(outcome) == {"no variable names whole accelerators of the container"}


def test_no_container() -> None:
    """On a host the variable may be of any shell."""
    outcome = run_check(NAME, {"w1": [container(*GPUS, engine="", visible_gpus="0")]})
    assert skipped(outcome) == {"the job does not run in a container"}


def test_what_the_pod_itself_says_comes_before_a_variable() -> None:
    """The template sets the variable: the runtime gives what it names, and the plugin has allotted others."""
    own = container(*npus(*range(8)), visible_npus="0-7", allotted_npus=(4, 5))
    outcome = run_check(NAME, {"w1": [own]})
    text = "the container has NPU 0-3, 6-7 beside those that huawei.com/AscendReal names: 4 and 5"
    assert messages(outcome) == [("w1", text)]
    assert "`export ASCEND_RT_VISIBLE_DEVICES=4,5`" in advice(NAME, outcome)


@pytest.mark.parametrize("value", ["all", "void", ""])
def test_more_gpus_than_the_container_requests(value: str) -> None:
    """An image that has NVIDIA_VISIBLE_DEVICES=all, or privileges."""
    outcome = run_check(NAME, {"w1": [container(*GPUS, visible_gpus=value, requested_gpus=2)]})
    assert messages(outcome) == [("w1", "the container has 4 GPUs, and requests 2 of Kubernetes")]
    assert "Until then" not in advice(NAME, outcome)


def test_shares_of_gpus_and_virtual_npus_are_as_requested() -> None:
    hosts = {
        "w1": [container("nvidia0", "nvidiactl", visible_gpus="all", requested_gpus=4)],  # four shares of one
        "w2": [container(*npus(100), visible_npus="100", allotted_npus=(100,))],
    }
    assert messages(run_check(NAME, hosts)) == []


def test_a_virtual_npu_of_another_pod() -> None:
    """Known from the pod alone: a list of virtual NPUs in a variable is not judged."""
    outcome = run_check(NAME, {"w1": [container(*npus(100, 101), allotted_npus=(100,))]})
    assert messages(outcome) == [
        ("w1", "the container has NPU 101 beside those that huawei.com/AscendReal names: 100"),
    ]
