"""What each rank trains alone, before the ranks train a model together, is its own: real gloo programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor.watch.data.data_report import DataReport, analyze_records
from doctor.watch.data.records import read_records
from tests.watch.data_campaign import Ranks, source_of

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]
PRIVATE = """torch.manual_seed(40 + rank)
private = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
own = torch.optim.SGD(private.parameters(), lr=0.1)
for turn in range(2 + 3 * rank):
    own.zero_grad()
    torch.nn.functional.cross_entropy(private(data[rank:8]), labels[rank:8]).backward()
    own.step()
"""
SAME = PRIVATE.replace("private = torch", "private = model #")
"""The very model, which its wrapper makes equal."""
WRAPPED = "model = DistributedDataParallel(model)\n"
BY_HAND = """        for tensor in model.parameters():
            dist.all_reduce(tensor.grad)
            tensor.grad /= world
"""
OTHER_BIAS = "if rank == 1:\n    {0}[3].bias.data += 1\n"


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    started = Ranks()
    yield started
    started.close()


def report_of(ranks: Ranks, folder: Path, before: str, fault: str, *, by_hand: bool) -> DataReport:
    text = source_of("replicas").replace("# before wrapping\n", before)
    if by_hand:
        text = text.replace(WRAPPED, "").replace("        # reduced\n", BY_HAND)
    text = text.replace("# wrapped\n", fault.format("model" if by_hand else "model.module"))
    assert ranks.run(text, 2, str(folder))["codes"] == [0, 0]
    return analyze_records([path.read_bytes() for path in folder.glob("*.probe")])


@pytest.mark.parametrize("by_hand", [False, True], ids=["wrapped", "reduced by hand"])
@pytest.mark.parametrize(
    ("before", "fault", "checks"),
    [
        pytest.param(PRIVATE, "", [], id="another model"),
        pytest.param(PRIVATE + "del private, own\n", "", [], id="another model, that is gone"),
        pytest.param(PRIVATE, OTHER_BIAS, ["smoke-parameters-not-broadcast"], id="the common one begins differently"),
    ],
)
def test_a_model_of_each_ranks_own_is_not_compared(
    before: str, fault: str, checks: list[str], ranks: Ranks, tmp_path: Path, *, by_hand: bool
) -> None:
    """The ranks make unlike numbers of steps alone."""
    report = report_of(ranks, tmp_path, before, fault, by_hand=by_hand)
    assert [cause.check for cause in report.causes] == checks, report.causes
    assert report.unseen == () and len(report.inferred) == 1
    assert report.steps == 6 - by_hand  # of the first one the forward pass came before it was known


def test_a_model_that_ranks_have_trained_alone_before_it_is_wrapped_is_healthy(ranks: Ranks, tmp_path: Path) -> None:
    report = report_of(ranks, tmp_path, SAME, "", by_hand=False)
    assert (report.causes, report.unseen, report.steps) == ((), (), 6)


def test_a_wrapper_that_is_never_called_is_found_behind_private_steps_too(ranks: Ranks, tmp_path: Path) -> None:
    report = report_of(ranks, tmp_path, PRIVATE, "model = model.module\n", by_hand=False)
    assert "smoke-gradient-not-synchronised" in [cause.check for cause in report.causes]


def test_what_came_before_is_left_out_also_where_the_clock_has_not_gone_on() -> None:
    lines = [
        b'{"k":"process","r":0,"ms":5,"host":"a"}',
        b'{"k":"inputs","r":0,"ms":7,"s":2,"i":1}',
        b'{"k":"anew","r":0,"ms":7}',
        b'{"k":"inputs","r":0,"ms":7,"s":0,"i":1}',
    ]
    of_worker = b'{"k":"inputs","r":0,"ms":6,"s":1,"i":1}\n{"k":"inputs","r":0,"ms":8,"s":1,"i":1}'
    for files in ([b"\n".join(lines), of_worker], [of_worker, b"\n".join(lines)]):
        records = read_records(files).ranks[0].of("inputs")
        assert sorted((record.values["ms"], record.step) for record in records) == [(7, 0), (8, 1)]
