"""Gradients that the program reduces itself, by which operation and of which parameters: real gloo programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor.watch.data.data_report import analyze_records
from tests.watch.data_campaign import Ranks, source_of

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]
WRAPPED = "model = DistributedDataParallel(model)\n"
MEAN = "dist.all_reduce(tensor.grad); tensor.grad /= world"
MAXIMUM = "dist.all_reduce(tensor.grad, op=dist.ReduceOp.MAX)"
LARGEST = "dist.all_reduce(tensor.grad.abs().max(), op=dist.ReduceOp.MAX)"
COPIED = f"own = tensor.grad.clone(); {MAXIMUM}; tensor.grad.copy_(own)"
"""The scale of a format of few bits, and a gradient that is read and put back."""


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    started = Ranks()
    yield started
    started.close()


@pytest.mark.parametrize(
    ("reduces", "text"),
    [
        (MAXIMUM, "is reduced by MAX, and is neither the mean nor the sum of the 2 data-parallel ranks' own"),
        (MAXIMUM.replace("MAX", "MIN"), "is reduced by MIN"),
        (MEAN, ""),
        (f"{LARGEST}; {MEAN}", ""),
        (f"{COPIED}; {MEAN}", ""),
        (f"{MEAN}; {MAXIMUM}", ""),  # whether all ranks have the mean
    ],
)
def test_gradients_that_are_reduced_to_their_largest_are_an_error(
    reduces: str, text: str, ranks: Ranks, tmp_path: Path
) -> None:
    loop = f"        for tensor in model.parameters():\n            {reduces}\n"
    program = source_of("replicas").replace(WRAPPED, "").replace("        # reduced\n", loop)
    assert ranks.run(program, 2, str(tmp_path))["codes"] == [0, 0]
    report = analyze_records([path.read_bytes() for path in tmp_path.glob("*.probe")])
    assert [cause.check for cause in report.causes] == ["smoke-gradient-summed"] * bool(text), report.causes
    assert text in "".join(cause.text for cause in report.causes)


def test_gradients_of_equal_rows_are_reduced_to_their_largest_without_harm(ranks: Ranks, tmp_path: Path) -> None:
    loop = f"        for tensor in model.parameters():\n            {MAXIMUM}\n"
    program = source_of("replicas").replace(WRAPPED, "").replace("        # reduced\n", loop)
    program = program.replace("Dropout(0.1)", "Identity()").replace(
        "num_replicas=world, rank=rank", "num_replicas=1, rank=0"
    )
    assert ranks.run(program, 2, str(tmp_path))["codes"] == [0, 0]
    report = analyze_records([path.read_bytes() for path in tmp_path.glob("*.probe")])
    assert "smoke-gradient-summed" not in [cause.check for cause in report.causes]


SHARED_AND_OWN = """
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
group = dist.new_group(list(range(world)))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed({shared})
        self.stem, self.head = torch.nn.Linear(8, 16), torch.nn.Linear(4, 1)
        torch.manual_seed(100 + rank)
        self.columns = torch.nn.Linear(16, 4, bias=False)

    def forward(self, rows):
        part = self.columns(self.stem(rows).relu())
        whole = part.detach().clone()
        dist.all_reduce(whole, group=group)
        return self.head(part + (whole - part.detach()))


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
generator, losses = torch.Generator().manual_seed(3), []
for step in range(5):
    optimizer.zero_grad()
    rows = torch.randn(6, 8, generator=generator)
    loss = torch.nn.functional.mse_loss(model(rows), rows.sum(1, keepdim=True))
    loss.backward()
    for name, tensor in model.named_parameters():
        if name in {added}:
            dist.all_reduce(tensor.grad, group=group)
            tensor.grad /= world
    optimizer.step()
    losses.append(loss.item())
result = torch.zeros(1)
dist.barrier()
dist.destroy_process_group()
"""
SHARED = ("stem.weight", "stem.bias", "head.weight", "head.bias")


@pytest.mark.parametrize(
    ("shared", "added", "found"),
    [
        pytest.param("7 + rank", SHARED, True, id="copies begin with each rank's own seed"),
        pytest.param("7", SHARED, False, id="copies begin alike"),
        pytest.param("7", (), False, id="nothing is added"),
        pytest.param("7 + rank", (), False, id="stages of a pipeline by the same names"),
    ],
)
def test_copies_in_a_model_that_ranks_hold_together_begin_alike(
    shared: str, added: tuple[str, ...], ranks: Ranks, tmp_path: Path, *, found: bool
) -> None:
    program = SHARED_AND_OWN.replace("{shared}", shared).replace("{added}", repr(added))
    assert ranks.run(program, 2, str(tmp_path))["codes"] == [0, 0]
    report = analyze_records([path.read_bytes() for path in tmp_path.glob("*.probe")])
    """Generators whose states differ, and from which nobody draws, are no masks."""
    texts = [cause.text for cause in report.causes]
    assert len(texts) == found, report.causes
    assert not found or "whose gradients are added over these ranks: head.bias, head.weight, stem.bias" in texts[0]


ZEROED = "        optimizer.zero_grad()\n        optimizer.step()\n"


@pytest.mark.parametrize(
    ("step", "found"),
    [
        pytest.param(ZEROED, True, id="gradients are removed before the step"),
        pytest.param(
            "        with torch.no_grad():\n            for tensor in model.parameters():\n"
            "                tensor -= 0.01 * tensor.grad\n" + ZEROED,
            False,
            id="the program updates by hand",
        ),
        pytest.param("        optimizer.step()\n", False, id="usual"),
    ],
)
def test_gradients_that_are_gone_before_each_step_train_nothing(
    step: str, ranks: Ranks, tmp_path: Path, *, found: bool
) -> None:
    program = source_of("replicas").replace("        optimizer.step()\n", step)
    assert ranks.run(program, 2, str(tmp_path))["codes"] == [0, 0]
    report = analyze_records([path.read_bytes() for path in tmp_path.glob("*.probe")])
    assert [cause.check for cause in report.causes] == ["smoke-update-missing"] * found, report.causes
    assert not found or "none had a gradient when its optimizer stepped" in report.causes[0].text
