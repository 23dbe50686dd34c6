"""What accelerator-without-driver finds. Ids are those of pci.ids; of drivers only counts whether there is one."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.facts.accelerators import OtherAccelerators
from tests.checks.containers import place
from tests.checks.run_check import messages, run_check, skipped
from tests.facts.answers import answered

MI300X = ["0000:05:00.0", "1002", "74a1", "1200", "amdgpu"]
PCI_FUNCTIONS = {
    "AMD": MI300X,
    "Intel": ["0000:29:00.0", "8086", "0bd5", "0380", "i915"],
    "Habana (Intel Gaudi)": ["0000:b3:00.0", "1da3", "1020", "1200", "habanalabs"],
    "Cambricon": ["0000:1a:00.0", "cabc", "0370", "1200", "driver"],
    "Hygon": ["0000:33:00.0", "1d94", "54b7", "0b40", "driver"],
    "Moore Threads": ["0000:b5:00.0", "1ed5", "0323", "0302", "mtgpu"],
    "Iluvatar": ["0000:3b:00.0", "1e3e", "0001", "0302", "driver"],
    "Enflame": ["0000:3b:00.0", "1e36", "c035", "1200", "driver"],
    "MetaX": ["0000:0f:00.0", "9999", "4001", "0380", "driver"],
    "Kunlunxin (Baidu)": ["0000:53:00.0", "1d22", "3684", "1200", "driver"],
    "AWS Neuron": ["0000:00:1e.0", "1d0f", "7364", "0880", "neuron"],
    "Tenstorrent": ["0000:01:00.0", "1e52", "401e", "1200", "tenstorrent"],
    "Biren": ["0000:41:00.0", "1ee0", "0110", "1200", "biren"],
    "PCI vendor 1e27": ["0000:21:00.0", "1e27", "0001", "1200", ""],
}
NONE = {
    "ASPEED, of a BMC": ["0000:03:00.0", "1a03", "2000", "0300", "ast"],
    "Matrox, of a BMC": ["0000:03:00.0", "102b", "0536", "0300", "mgag200"],
    "HiSilicon's, of a BMC": ["0000:08:00.0", "19e5", "1711", "0300", "hibmc-drm"],
    "graphics of a processor (Intel)": ["0000:00:02.0", "8086", "a780", "0300", "i915"],
    "graphics of a processor (AMD), second of two": ["0000:c1:00.0", "1002", "15bf", "0380", "amdgpu"],
    "graphics of a processor (AMD)": ["0000:06:00.0", "1002", "1638", "0300", "amdgpu"],
    "a desktop's card (AMD)": ["0000:03:00.0", "1002", "744c", "0300", "amdgpu"],
    "an NPU of a laptop's processor": ["0000:00:0b.0", "8086", "7d1d", "1200", "intel_vpu"],
    "an NPU of AMD's Ryzen": ["0000:c2:00.1", "1022", "1502", "1180", "amdxdna"],
    "a Kunpeng's compression engine": ["0000:75:00.0", "19e5", "a250", "1200", "hisi_zip"],
    "an FPGA": ["0000:81:00.0", "10ee", "5004", "1200", "xocl"],
    "Intel's QAT": ["0000:6b:00.0", "8086", "4940", "0b40", "4xxx"],
    "Hygon's own bridge": ["0000:00:00.2", "1d94", "1451", "0806", ""],
    "AWS storage": ["0000:00:04.0", "1d0f", "8061", "0108", "nvme"],
    "Google's NVMe": ["0000:00:05.0", "1ae0", "001f", "0108", "nvme"],
    "QEMU's display": ["0000:00:01.0", "1234", "1111", "0300", "bochs-drm"],
    "virtio display": ["0000:00:01.0", "1af4", "1050", "0300", "virtio-pci"],
    "an NVIDIA GPU, which its own checks read": ["0000:3b:00.0", "10de", "2330", "0302", "nvidia"],
    "kept for a virtual machine": [*MI300X[:4], "vfio-pci"],
    "a switch's engine": ["0000:21:00.0", "15b3", "c2d5", "1200", "mlx5_core"],
    "an audio function": ["0000:03:00.1", "1ed5", "03ff", "0403", "snd_hda_intel"],
}


def detected(*rows: list[str], files: tuple[str, ...] = ("kfd",)) -> Any:
    return answered(OtherAccelerators, {"devices": list(rows), "files": list(files)})


@pytest.mark.parametrize("vendor", PCI_FUNCTIONS)
def test_what_is_not_read_is_unknown_with_its_vendor(vendor: str) -> None:
    outcome = run_check("accelerator-without-driver", {"w1": [detected(PCI_FUNCTIONS[vendor], PCI_FUNCTIONS[vendor])]})
    assert not outcome.findings
    assert outcome.unknown["w1"].text.endswith(f": 2 of {vendor}")


@pytest.mark.parametrize("kind", NONE)
def test_what_is_no_accelerator(kind: str) -> None:
    assert not isinstance(detected(NONE[kind]), OtherAccelerators)


def test_one_without_a_driver_beside_others() -> None:
    row = ["0000:65:00.0", *MI300X[1:4], ""]
    outcome = run_check("accelerator-without-driver", {"w1": [detected(MI300X, row)]})
    assert messages(outcome) == [
        (
            "w1",
            "the accelerator at 0000:65:00.0 (AMD 1002:74a1) has no driver; expected a driver of the kernel",
        )
    ]
    assert outcome.unknown["w1"].text.endswith(": 1 of AMD")


def test_a_container_counts_what_it_was_given() -> None:
    inside = place(engine="docker")
    given = run_check("accelerator-without-driver", {"w1": [detected(MI300X), inside]})
    assert "w1" in given.unknown
    not_given = run_check("accelerator-without-driver", {"w1": [detected(MI300X, files=("null",)), inside]})
    assert skipped(not_given) == {"the container was given none of the accelerators of its host"}
