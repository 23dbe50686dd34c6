"""What known-bad-version finds."""

from __future__ import annotations

import pytest

from doctor.engine.version_matrix import KNOWN_BAD, _known_bad_rows, version_numbers
from doctor.facts.gpu import Gpu, GpuInventory
from tests.checks.devices import of, python, skipped

look = of("known_bad_version")


def with_gpus(name: str) -> GpuInventory:
    return GpuInventory(gpus=(Gpu(0, name, "GPU-0", "570.133.20", 81559, 0),))


@pytest.mark.parametrize(
    ("version", "gpu", "fixed"),
    [
        ("2.25.1", "", "2.26.2"),
        ("2.29.7", "NVIDIA H200", "2.30.7"),
        ("2.30.6", "", "2.30.7"),
        ("2.29.2", "NVIDIA GB200", "2.29.3"),
        ("2.18.1", "NVIDIA H100 80GB HBM3", "2.18.3"),
    ],
)
def test_a_version_with_a_published_fault(version: str, gpu: str, fixed: str) -> None:
    (finding,) = look(python(torch="2.7.0", nvidia_nccl_cu12=version), with_gpus(gpu) if gpu else None)
    assert finding.values["expected"] == fixed


@pytest.mark.parametrize(
    ("version", "gpu"),
    [
        ("2.25.0", ""),
        ("2.26.2", "NVIDIA H100 80GB HBM3"),
        ("2.30.7", ""),
        ("2.29.2", "NVIDIA H100 80GB HBM3"),
        ("2.29.2", ""),
        ("2.18.1", "NVIDIA A100-SXM4-80GB"),
        ("2.27.5", "NVIDIA GB200"),
        ("2.251", ""),
    ],
)
def test_other_versions_and_other_gpus(version: str, gpu: str) -> None:
    assert look(python(torch="2.7.0", nvidia_nccl_cu12=version), with_gpus(gpu) if gpu else None) == []


def test_no_nccl() -> None:
    assert skipped(look, python(torch="2.7.1+cpu"))


def test_each_row_names_a_source_and_a_version_without_the_fault() -> None:
    assert KNOWN_BAD.exists()
    for row in _known_bad_rows():
        assert row.source and row.fault
        assert version_numbers(row.first) <= version_numbers(row.last) < version_numbers(row.fixed)
