"""The mistakes that the rules of `doctor.analysis.values` must name, each as every source of values can show it.

A smoke run trains doctor's own program, wrong in one way (`tests.smoke.mutants`); `doctor watch` reads a user's program
with a patch (`tests.watch.data_faults`). A mistake that one source learns to name is one row here, and has to be tried
with the other as well, or the row says why it cannot be.
"""

from __future__ import annotations

from typing import NamedTuple


class ValueFault(NamedTuple):
    """One mistake."""

    check: str
    """The check that must report it, whatever the source."""
    smoke: tuple[str, ...] = ()
    """Names in `tests.smoke.mutants.MUTANTS`."""
    watch: tuple[str, ...] = ()
    """Names in `tests.watch.data_faults.FAULTS`."""
    only: str = ""
    """Why one source alone can show it."""


REFERENCE = "only the smoke run has a reference run to compare with"
RECORDS = "by its records alone: tests/watch/test_data.py"
OWN_PROGRAM = "the user's program takes its step itself; doctor's own leaves none out"

VALUE_FAULTS: dict[str, ValueFault] = {
    "a rank reads another rank's rows": ValueFault(
        "smoke-shards-wrong", ("duplicate shard", "overlapping shard"), ("shard duplicated", "not sharded", "same rows")
    ),
    "rows that no rank reads": ValueFault("smoke-shards-wrong", ("missing shard",), ("shard missing",)),
    "rows in another order": ValueFault(
        "smoke-shards-wrong", ("another order of the data on one rank", "shards swapped"), ("epoch not set",)
    ),
    "ranks of one model read different rows": ValueFault(
        "smoke-shards-wrong", (), ("batch inside the model",), "doctor's own program divides no batch within a model"
    ),
    "a generator of Python of its own": ValueFault("smoke-mask-differs", ("mask: python alone",), ("python seed",)),
    "a generator of NumPy of its own": ValueFault(
        "smoke-mask-differs", ("mask: numpy alone", "no NumPy on one rank"), ("numpy seed",)
    ),
    "a generator of torch of its own": ValueFault(
        "smoke-mask-differs",
        ("mask: torch alone", "mask: device alone", "mask: late", "dropout under tensor parallelism"),
        ("torch seed", "mask"),
    ),
    "one seed for all replicas": ValueFault(
        "smoke-mask-repeated", ("equal seeds on all dp ranks", "equal NumPy seeds on all dp ranks"), (), RECORDS
    ),
    "workers of a loader with other seeds": ValueFault(
        "smoke-loader-seed-differs", ("loader worker", "loader workers alike on all dp ranks"), (), RECORDS
    ),
    "parameters that were not broadcast": ValueFault(
        "smoke-parameters-not-broadcast",
        ("no broadcast", "broadcast of another root"),
        ("not broadcast", "replica begins apart"),
    ),
    "a step that a rank leaves out": ValueFault("smoke-update-missing", (), ("no step", "step left out"), OWN_PROGRAM),
    "a learning rate of 0": ValueFault("smoke-update-missing", ("learning rate 0",), ("lr 0", "lr 0 everywhere")),
    "parameters that no step moves": ValueFault(
        "smoke-update-missing", ("frozen tensor",), ("frozen layer", "frozen on one rank")
    ),
    "values that are not finite": ValueFault(
        "smoke-not-finite",
        ("NaN in one rank's activations", "Inf in one rank's gradient"),
        ("NaN", "NaN in the loss"),
    ),
    "gradients that are not reduced": ValueFault(
        "smoke-gradient-not-synchronised",
        ("no sync", "one rank keeps its own gradient", "bit flip in a reduced gradient", "wrong sum on one rank"),
        ("not reduced",),
    ),
    "a sum in place of the mean": ValueFault(
        "smoke-gradient-summed",
        ("sum for mean", "sum over ranks and micro-batches", "sum over micro-batches"),
        ("sum by hook", "sum for mean"),
    ),
    "parameters that drift apart": ValueFault(
        "smoke-parameters-diverge", ("other init of one tp rank", "bit flip in a parameter"), ("frozen on one rank",)
    ),
    "a loss that is not that of the reference": ValueFault(
        "smoke-loss-differs",
        (
            "no sync of a ZeRO shard",
            "other init of the first rank",
            "shifted ZeRO shard",
            "no all-reduce in the forward pass",
            "no all-reduce in the backward pass",
            "permuted tensor-parallel shard",
            "learning rate too high",
            "a loss that is off by a hundredth on one rank",
        ),
        (),
        REFERENCE,
    ),
}
