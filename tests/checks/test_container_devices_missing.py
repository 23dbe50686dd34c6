"""What container-devices-missing finds."""

from __future__ import annotations

from tests.checks.containers import container, npus, place
from tests.checks.run_check import advice, messages, run_check, skipped

NAME = "container-devices-missing"


def test_no_container() -> None:
    outcome = run_check(NAME, {"w1": [container(*npus(0), engine=""), place(*npus(0))]})
    assert skipped(outcome) == {"the job does not run in a container"}


def test_a_part_of_the_npus_is_no_fault() -> None:
    for options in (npus(0), npus(4, 5), npus(100), ()):
        assert messages(run_check(NAME, {"w1": [container(*options), place(*options, engine="docker")]})) == []
    inside = container(*npus(4, 5))
    assert messages(run_check(NAME, {"w1": [inside, place(*npus(*range(8)))]})) == []


def test_none_of_the_hosts() -> None:
    outcome = run_check(NAME, {"w1": [container(), place(*npus(0, 1), "nvidia0")]})
    assert [text for _, text in messages(outcome)] == [
        "the container has none of the host's 2 NPUs",
        "the container has none of the host's 1 GPUs",
    ]
    assert "`docker run --device /dev/davinci0 --device /dev/davinci1 --device /dev/davinci_manager" in advice(
        NAME, outcome
    )


def test_the_drivers_own_files() -> None:
    outcome = run_check(NAME, {"w1": [container("davinci0", "davinci_manager", "nvidia0", "nvidiactl")]})
    assert [text for _, text in messages(outcome)] == [
        "the container has NPU 0, but not /dev/devmm_svm and /dev/hisi_hdc",
        "the container has GPU 0, but not /dev/nvidia-uvm",
    ]


def test_named_by_the_variable() -> None:
    inside = container(*npus(0, 1), visible_npus="0-3")
    outcome = run_check(NAME, {"w1": [inside]})
    assert messages(outcome) == [
        ("w1", "ASCEND_VISIBLE_DEVICES names NPU 2 and 3, and the container has no device file of it")
    ]
    assert messages(run_check(NAME, {"w1": [container(*npus(0, 1), visible_npus="Ascend910-0,Ascend910-1")]})) == []


def test_no_library_of_the_driver() -> None:
    outcome = run_check(NAME, {"w1": [container(*npus(0), libraries=(), engine="kubernetes")]})
    assert messages(outcome) == [("w1", "the container has NPUs, but not libascend_hal.so of their driver")]
    assert "`hostPath` volume" in advice(NAME, outcome)
    assert "reinstall" not in advice(NAME, outcome)


def test_what_the_pod_was_allotted_and_has_not() -> None:
    """Over the API server: the variable alone names what is there."""
    hosts = {
        "w1": [container(*npus(2), visible_npus="2", allotted_npus=(2, 3))],
        "w2": [container(*npus(0), engine="kubernetes", allotted_npus=(100,))],
        "w3": [container(engine="kubernetes", requested_gpus=8)],
        "w4": [container("nvidia0", "nvidiactl", "nvidia-uvm", engine="kubernetes", requested_gpus=2)],  # two shares
    }
    assert messages(run_check(NAME, hosts)) == [
        ("w1", "huawei.com/AscendReal names NPU 3, and the container has no device file of it"),
        ("w2", "huawei.com/AscendReal names NPU 100, and the container has no device file of it"),
        ("w3", "the container requests 8 GPUs of Kubernetes, and has no device file of one"),
    ]
