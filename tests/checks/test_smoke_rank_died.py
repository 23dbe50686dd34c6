from __future__ import annotations

import pytest

from tests.checks.broken_off import only, only_finding, trouble
from tests.checks.smoke import ran

NAME = "smoke_rank_died"


def test_only_its_failure_kind_is_a_finding() -> None:
    only(NAME, "dead")


def test_the_first_to_die_and_how() -> None:
    run = ran(4, 2, trouble("dead", 1, text="signal 9", evidence=("Rank 1 was killed for memory.",)), devices=True)
    finding, todo = only_finding(NAME, run)
    assert str(finding) == "rank 1 (GPU 1) died in step 2 of dp4: signal 9"
    assert finding.values["waiting"] == "ranks 0, 2 and 3"
    assert finding.values["evidence"] == ["Rank 1 was killed for memory."]
    assert "dmesg" in todo


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("signal 9", "Find out what killed it"),
        ("signal 11", "A crash in native code"),
        ("killed by the kernel for lack of memory", "Give the job"),
        ("exit status 1: ValueError", "This run executes doctor's own program"),
        ("RuntimeError: CUDA error", ""),
    ],
)
def test_the_remedy_is_that_of_what_ended_it(text: str, first: str) -> None:
    run = ran(4, 2, trouble("dead", 1, text=text), devices=True)
    finding, _ = only_finding(NAME, run)
    assert finding.values["remedy"].startswith(first)
    assert finding.values["accelerator"] == "GPU"


@pytest.mark.parametrize(
    "text",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "RuntimeError: NPU out of memory",
        "aclrtMalloc failed: memory allocation error",
    ],
)
def test_a_device_that_has_no_memory_left_is_no_matter_of_the_host(text: str) -> None:
    finding, _ = only_finding(NAME, ran(4, 2, trouble("dead", 1, text=text), devices=True))
    assert finding.values["remedy"].startswith("The device's memory is used up")


def test_a_signal_that_another_process_sent_is_no_matter_of_memory() -> None:
    told = "Memory did not run out on the host of rank 1, by the kernel's count: another process sent it signal 9."
    finding, _ = only_finding(NAME, ran(4, 2, trouble("dead", 1, text="signal 9", evidence=(told,)), devices=True))
    assert finding.values["remedy"].startswith("Nothing of the program failed: start it again")
    told = "Rank 1 was killed for memory."
    finding, _ = only_finding(NAME, ran(4, 2, trouble("dead", 1, text="signal 9", evidence=(told,)), devices=True))
    assert finding.values["remedy"].startswith("Give the job")
