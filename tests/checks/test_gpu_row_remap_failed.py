"""What gpu-row-remap-failed finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import gpu, gpus
from tests.checks.run_check import messages, run_check


def test_gpus_that_replaced_their_rows() -> None:
    assert messages(run_check("gpu-row-remap-failed", {"w1": [gpus(gpu(0, row_remap_pending=True))]})) == []


def test_a_failure() -> None:
    ((host, text),) = messages(run_check("gpu-row-remap-failed", {"w1": [gpus(gpu(0), gpu(1, row_remap_failed=True))]}))
    assert (host, text) == ("w1", "GPU 1 (NVIDIA H100 80GB HBM3) has damaged memory that it cannot replace")


def test_memory_that_cannot_be_repaired_and_caches_that_fail() -> None:
    """`unrepairable_memory` and `sram_threshold_exceeded`, criteria for a replacement."""
    fact = messages(
        run_check("gpu-row-remap-failed", {"w1": [gpus(gpu(0, is_unrepairable=True), gpu(1, caches_failing=True))]})
    )
    assert [text for _, text in fact] == [
        "GPU 0 (NVIDIA H100 80GB HBM3) has damaged memory that it cannot replace",
        "the caches of GPU 1 (NVIDIA H100 80GB HBM3) had more uncorrected errors than NVIDIA's limit",
    ]
