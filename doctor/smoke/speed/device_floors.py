"""What a vendor says that a device does at least. Pure."""

MEMORY_FLOORS: dict[str, int] = {
    "NVIDIA A2": 123_225,
    "NVIDIA A30": 585_000,
    "NVIDIA A40": 423_675,
    "NVIDIA A10G": 362_700,
    "NVIDIA A100-PCIE-40GB": 969_750,
    "NVIDIA A100-SXM4-80GB": 1_173_000,
    "NVIDIA A800-SXM4-80GB": 971_000,
    "NVIDIA B200": 2_558_124,
    "NVIDIA H20": 1_507_000,
    "NVIDIA H100 80GB HBM3": 1_905_000,
    "NVIDIA H100 PCIe": 1_230_000,
    "NVIDIA H100 NVL": 2_043_000,
    "NVIDIA H200 NVL": 2_212_500,
    "NVIDIA H800": 1_920_000,
    "NVIDIA H800 PCIe": 1_245_000,
    "NVIDIA L2": 190_500,
    "NVIDIA L4": 198_500,
    "NVIDIA L20": 491_250,
    "NVIDIA L40S": 525_000,
    "NVIDIA RTX A6000": 506_000,
    "Tesla T4": 183_000,
    "Tesla V100-PCIE-16GB": 607_500,
    "Tesla V100-PCIE-32GB": 607_500,
    "Tesla V100-SXM2-16GB": 607_500,
    "Tesla V100-SXM2-32GB": 607_500,
}
"""MB/s of the device's memory, read and written, by the name that its driver gives it.

Source: ``minimum_bandwidth`` of the test ``memory_bandwidth`` in nvvs/diag-skus.yaml.in of github.com/NVIDIA/DCGM:
three quarters of what NVIDIA measures. Of several boards with one name, the least. Left out: boards whose entry there
cannot be meant (H200 SXM 2,333 MB/s, A100-SXM4-40GB 137,500), and parts of a GPU (MIG). Huawei publishes no figures:
``ascend-dmi --dg -i bandwidth,aiflops`` compares with its own.
"""


def memory_floor(model: str) -> float | None:
    """Bytes a second; None where the vendor says nothing of this model.

    >>> memory_floor("NVIDIA H100 80GB HBM3")
    1905000000000.0
    """
    floor = MEMORY_FLOORS.get(model)
    return floor * 1e6 if floor else None
