"""launch-epoch-not-set."""

from __future__ import annotations

import textwrap

import pytest

from doctor.engine.result import Status
from tests.checks.launches import judged_program
from tests.checks.tables import list_messages
from tests.lint.programs import torch_ddp

NAME = "launch-epoch-not-set"


def test_set_epoch() -> None:
    assert judged_program(NAME, torch_ddp()).status is Status.PASSED
    assert list_messages(judged_program(NAME, torch_ddp(epoch=""))) == [
        (
            "every epoch has the same order: no set_epoch for the DistributedSampler at train.py:14 "
            "| observed no call of "
            "set_epoch | expected sampler.set_epoch(epoch) in the loop over epochs"
        )
    ]


def test_where_it_is_not_needed() -> None:
    assert (
        judged_program(NAME, torch_ddp(sampler="sampler = DistributedSampler(dataset, shuffle=False)", epoch="")).status
        is Status.SKIPPED
    )
    assert judged_program(NAME, torch_ddp(epoch="", imports="from .loop import run")).status is Status.UNKNOWN


@pytest.mark.parametrize(
    "loop",
    [
        "for batch in loader:",
        "for step, (x, y) in enumerate(loader):\n    for parameter in model.parameters():\n        pass",
        "for batch in loader:\n    shown = [value.item() for value in batch]",
        "for step in range(9):",
        "trainer.fit(loader)",
    ],
)
def test_data_that_are_read_once_have_no_second_epoch(loop: str) -> None:
    program = torch_ddp().partition("    for epoch in")[0] + textwrap.indent(f"{loop}\n    pass\n", "    ")
    program = program.replace("trainer.fit(loader)\n        pass", "trainer.fit(loader)")
    assert judged_program(NAME, program).status is Status.SKIPPED


@pytest.mark.parametrize(
    "loop",
    ["while True:\n    for batch in loader:\n        pass", "for _ in range(3):\n    run(loader)",
     "for epoch in range(3):\n    data = iter(loader)", "for e in range(3):\n    losses = [step(b) for b in loader]",
     "for e in range(3):\n    for batch in tqdm(enumerate(loader)):\n        pass"],
)  # fmt: skip
def test_data_that_are_read_anew(loop: str) -> None:
    program = torch_ddp().partition("    for epoch in")[0] + textwrap.indent(loop + "\n", "    ")
    program += "def run(data):\n    for batch in data:\n        pass\n"
    assert len(list_messages(judged_program(NAME, program))) == 1
