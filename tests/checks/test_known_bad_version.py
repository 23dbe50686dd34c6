"""What known-bad-version finds."""

from __future__ import annotations

import msgspec
import pytest

from doctor.engine.version_matrix import KNOWN_BAD, _known_bad_rows, release_numbers
from doctor.facts.amd_smi import AmdGpu, AmdGpus
from doctor.facts.gpu import Gpu, GpuInventory
from doctor.facts.rdma import RdmaDevice, RdmaPorts
from doctor.facts.versions import RocmVersion
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
    (finding,) = look(
        python(torch="2.7.0", nvidia_nccl_cu12=version), with_gpus(gpu) if gpu else None, None, None, None
    )
    assert finding.values["expected"] == fixed
    assert finding.values["command"] == f"`/opt/job/python -m pip install nvidia-nccl-cu12=={fixed}`."


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
    assert (
        look(python(torch="2.7.0", nvidia_nccl_cu12=version), with_gpus(gpu) if gpu else None, None, None, None) == []
    )


def test_nothing_that_the_table_is_about() -> None:
    assert skipped(look, python(torch="2.7.1+cpu"), None, None, None, None)


@pytest.mark.parametrize(
    ("packages", "rocm", "name", "driver", "named"),
    [
        ({"torch": "2.10.0", "torch_npu": "2.10.0.post4"}, "", "", "", ["2.10.0.post6"]),
        ({"torch": "2.10.0", "torch_npu": "2.10.0"}, "", "", "", []),
        ({"torch": "2.10.0", "torch_npu": "2.10.0.post6"}, "", "", "", []),
        ({"torch": "2.9.1+rocm7.1.0"}, "", "AMD Instinct MI355X", "", ["7.1.1"]),
        ({"torch": "2.9.1+rocm7.1.0"}, "", "AMD Instinct MI300X", "", []),
        ({}, "6.2.1-112", "AMD Instinct MI300X", "", ["6.2.2"]),
        ({"torch": "2.9.1+rocm7.1.1"}, "6.2.1-112", "AMD Instinct MI300X", "", []),
        ({}, "6.2.1-112", "", "", []),
        ({"torch": "1.0.0"}, "", "", "390.157", ["396.26"]),
        ({"torch": "1.0.0"}, "", "", "396.26", []),
        ({"torch": "2.7.0"}, "", "", "580.95.05", []),
    ],
)
def test_other_components(packages: dict[str, str], rocm: str, name: str, driver: str, named: list[str]) -> None:
    amd = AmdGpus(gpus=(AmdGpu(0, "0000:05:00.0", name),)) if name else None
    gpus = GpuInventory(gpus=(Gpu(0, "Tesla V100-SXM2-16GB", "GPU-0", driver, 16130, 0),)) if driver else None
    installed = RocmVersion(version=rocm) if rocm else None
    findings = look(python(nvidia_nccl_cu12="2.27.5", **packages), gpus, amd, installed, None)
    assert [finding.values["expected"] for finding in findings] == named


@pytest.mark.parametrize(
    ("kind", "firmware", "virtual", "named"),
    [
        ("MT4123", "20.34.1002", False, ["20.35.1012"]),
        ("MT4123", "20.34.4000", False, ["20.35.1012"]),
        ("MT4123", "20.35.1012", False, []),
        ("MT4123", "20.33.1048", False, []),
        ("MT4123", "20.34.1002", True, []),
        ("MT4125", "22.30.1004", False, ["22.31.1014"]),
        ("MT4125", "22.31.1014", False, []),
        ("MT4129", "28.39.1002", False, []),
        ("MT4123", "", False, []),
        ("", "20.34.1002", False, []),
    ],
)
def test_firmware_of_adapters(kind: str, firmware: str, virtual: bool, named: list[str]) -> None:
    device = RdmaDevice("mlx5_0", kind, "MT_0000000224", firmware, (), virtual)
    adapters = RdmaPorts(devices=(device, msgspec.structs.replace(device, name="mlx5_1")))
    findings = look(python(nvidia_nccl_cu12="2.27.5", torch="2.7.0"), None, None, None, adapters)
    assert [finding.values["expected"] for finding in findings] == named


def test_each_row_names_a_source_and_a_version_without_the_fault() -> None:
    assert KNOWN_BAD.exists()
    for row in _known_bad_rows():
        assert row.source and row.fault
        first, last, fixed = map(release_numbers, (row.first, row.last, row.fixed))
        assert first <= last and not first <= fixed <= last
