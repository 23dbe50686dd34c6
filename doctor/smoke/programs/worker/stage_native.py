"""Stage ``native``: the layouts once more, with what users train with. Sent only where the plan has this stage.

Parameters, rows, masks and dropout are those of the training stage, so that the losses must be the reference run's
here, too. What this torch lacks is reported.
"""

from __future__ import annotations

from typing import Any

from doctor.smoke.programs.process_groups import PlannedLayout
from doctor.smoke.programs.secondary_errors import is_secondary
from doctor.smoke.programs.worker.context import STAGE_FUNCTIONS, RankContext
from doctor.smoke.programs.worker.libraries import PRELOADED_MODULES, torch
from doctor.smoke.programs.worker.native_trainers import (
    Composed,
    NativeReference,
    Replicated,
    ShardedOptimizer,
)

PRELOADED_MODULES.extend(
    [  # half a second to two, once for all ranks of the host instead of in each
        "torch._dynamo",
        "torch.distributed.device_mesh",
        "torch.distributed.fsdp",
        "torch.distributed.optim",
        "torch.distributed.pipelining",
        "torch.distributed.tensor.parallel",
        "torch.fx.experimental.symbolic_shapes",
        "torch.nn.parallel",
        "torch.utils.checkpoint",
    ]
)


def stage_native(ctx: RankContext) -> None:
    """Each layout of the plan, with every trainer for it."""
    expected = NativeReference(ctx).losses()
    for index, layout in enumerate(ctx.plan["layouts"]):
        for trainer_class in trainers_for(layout):
            trainer: Any = None
            text, losses = "", []
            try:
                trainer = trainer_class(ctx, layout)
            except (ImportError, NotImplementedError, AttributeError, TypeError, ValueError, RuntimeError) as error:
                if is_secondary(str(error)):
                    raise
                line = (str(error).splitlines() or [""])[0][:300]
                text = f"torch {torch.__version__}: {type(error).__name__}: {line}"
            # What one pipeline stage lacks, another may not need.
            if ctx.comm.sum_over_ranks(trainer is None) == 0 and trainer:
                losses = trainer.losses()
            text = text or ("" if losses else "another rank could not")
            api = trainer_class.api(layout)
            ctx.emit("native", layout=index, api=api, losses=losses, reference=expected, text=text)


def trainers_for(layout: PlannedLayout) -> list[Any]:
    """The trainers, all of them classes, that a layout is trained with."""
    if layout.get("tp", 1) > 1 or layout.get("pp", 1) > 1:
        return [Composed]
    if layout.get("zero"):
        return [ShardedOptimizer]
    if layout.get("accumulate", 1) > 1 or layout.get("recompute"):
        return [Replicated]
    return [Replicated, Composed]


STAGE_FUNCTIONS["native"] = stage_native
