"""What users train with is the reference run too, layout by layout; what this torch lacks is said, and never passed."""

from __future__ import annotations

import functools
from importlib.metadata import version
from importlib.util import find_spec
from textwrap import dedent

import pytest

from doctor.smoke.model import Layout
from doctor.smoke.plan import default_layouts
from doctor.smoke.run import programs
from tests.smoke.ranks import Ranks

pytestmark = pytest.mark.torch
TORCH_VERSION = version("torch") if find_spec("torch") else ""

WRAPPERS = programs.program(("native",)).removeprefix(programs.worker())
WAYS = {
    Layout(dp=4): {"DistributedDataParallel", "fully_shard"},
    Layout(dp=4, zero=True): {"DistributedDataParallel, ZeroRedundancyOptimizer"},
    Layout(tp=4): {"parallelize_module"},
    Layout(pp=2, dp=2): {"ScheduleGPipe, fully_shard"},
    Layout(dp=2, tp=2): {"parallelize_module, fully_shard"},
    Layout(pp=2, tp=2): {"ScheduleGPipe, parallelize_module"},
    Layout(dp=4, accumulate=2): {"DistributedDataParallel, no_sync"},
    Layout(tp=4, recompute=True): {"parallelize_module, checkpoint"},
    Layout(dp=4, zero=True, accumulate=2): {"DistributedDataParallel, no_sync, ZeroRedundancyOptimizer"},
    Layout(pp=2, tp=2, recompute=True): {"ScheduleGPipe, parallelize_module, checkpoint"},
}


@functools.cache
def trained() -> Ranks:
    return Ranks(4, ("training", "native"), WRAPPERS, layouts=tuple(WAYS), seconds=90)


def test_every_layout_is_tried_with_every_wrapper() -> None:
    run = trained()
    assert set(default_layouts(4)) <= set(WAYS)
    tried: dict[Layout, set[str]] = {}
    for responses in run.of("native"):
        tried.setdefault(run.plan.layouts[responses["layout"]], set()).add(responses["api"])
    assert tried == WAYS
    assert len(run.of("native")) == 4 * sum(map(len, WAYS.values()))


def test_every_wrapper_has_the_losses_of_the_reference_run() -> None:
    run = trained()
    reference = run.of("reference")[0]["losses"]
    ran = [reports for reports in run.of("native") if not reports["text"]]
    for responses in ran:
        assert responses["losses"] == pytest.approx(reference, rel=1e-6), responses["api"]
        assert responses["reference"] == pytest.approx(reference, rel=1e-6)
    assert {reports["api"] for reports in ran} >= {"DistributedDataParallel", "DistributedDataParallel, no_sync"}


def test_what_did_not_run_has_a_reason_and_no_losses() -> None:
    for responses in trained().of("native"):
        assert bool(responses["losses"]) != bool(responses["text"]), responses


def test_a_missing_wrapper_is_reported_with_its_reason() -> None:
    lacks = "PRELOADED_MODULES.clear()\nsys.modules['torch.distributed.device_mesh'] = None\n"
    run = Ranks(2, ("native",), WRAPPERS + lacks, layouts=(Layout(dp=2),), seconds=90)
    ddp, sharded = run.of("native", rank=0)
    assert (ddp["text"], len(ddp["losses"])) == ("", 3)
    assert sharded["losses"] == []
    assert "torch.distributed.device_mesh" in sharded["text"]
    assert TORCH_VERSION in sharded["text"]


def test_no_rank_waits_for_a_wrapper_that_one_rank_lacks() -> None:
    lacks = """
    PRELOADED_MODULES.clear()
    def wrap(self, module):
        if self.ctx.rank == 1:
            raise NotImplementedError("not on this device")
        return module
    Composed.wrap = wrap
    """
    run = Ranks(2, ("native",), WRAPPERS + dedent(lacks), layouts=(Layout(dp=2),), seconds=90)
    texts = [responses["text"] for responses in run.of("native", api="fully_shard")]
    assert texts == ["another rank could not", f"torch {TORCH_VERSION}: NotImplementedError: not on this device"]


def test_a_wrapper_that_does_not_synchronise_is_not_the_reference_run() -> None:
    wrong = """
    PRELOADED_MODULES.clear()
    def gradient_sync(self, is_last):
        return self.module.no_sync()
    Replicated.gradient_sync = gradient_sync
    """
    run = Ranks(2, ("native",), WRAPPERS + dedent(wrong), layouts=(Layout(dp=2, accumulate=2),), seconds=90)
    (responses, _) = run.of("native")
    assert responses["losses"][0] == pytest.approx(responses["reference"][0], rel=1e-6)
    assert responses["losses"][2] != pytest.approx(responses["reference"][2], rel=1e-3)
