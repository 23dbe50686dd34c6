"""The variables of RCCL and ROCm: their own names, and those of NCCL that RCCL reads."""

from __future__ import annotations

import pytest

from doctor.job.variable_names import documented_variables, intended_name, misspelt


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("RCCL_DEBUG", "NCCL_DEBUG"),
        ("RCCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
        ("RCCL_IB_HCA", "NCCL_IB_HCA"),
        ("RCCL_MSCCL_ENABEL", "RCCL_MSCCL_ENABLE"),
        ("HIP_VISBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
        ("ROCR_VISIBLE_DEVICE", "ROCR_VISIBLE_DEVICES"),
        ("HSA_FORCE_FINE_GRAINED_PCIE", ""),
    ],
)
def test_a_misspelt_name(name: str, meant: str) -> None:
    assert intended_name(name) == meant


@pytest.mark.parametrize("name", ["RCCL_MSCCL_ENABLE", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NCCL_DEBUG"])
def test_a_name_that_is_read(name: str) -> None:
    assert name in documented_variables()
    assert intended_name(name) == ""
    assert not list(misspelt([name]))
