"""What gpu-vbios-differs finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import gpu, gpus
from tests.checks.run_check import messages, run_check


def fleet(*versions: str, name: str = "") -> dict[str, list[object]]:
    more = {"name": name} if name else {}
    return {f"w{n}": [gpus(gpu(0, vbios=version, **more))] for n, version in enumerate(versions)}


def test_one_version() -> None:
    assert messages(run_check("gpu-vbios-differs", fleet("96.00.89.00.01", "96.00.89.00.01"))) == []  # type: ignore[arg-type]
    assert messages(run_check("gpu-vbios-differs", fleet("96.00.89.00.01"))) == []  # type: ignore[arg-type]


def test_another_on_one_gpu_of_a_host() -> None:
    """A GPU that was replaced. Boards of GeForce come from many makers, and on one host say nothing."""
    for name, number in (("NVIDIA H100 80GB HBM3", 1), ("NVIDIA GeForce RTX 4090", 0)):
        odd = [gpu(n, name=name, vbios="96.00.74.00.01" if n == 5 else "96.00.89.00.01") for n in range(8)]
        found = run_check("gpu-vbios-differs", {"w1": [gpus(*odd)]}).findings
        assert [str(finding) for finding in found] == [
            f"the VBIOS of GPU 5 is 96.00.74.00.01; 7 of 8 GPUs {name} have 96.00.89.00.01"
        ] * number


def test_half_of_a_host_is_no_majority() -> None:
    halves = [gpu(n, vbios="96.00.74.00.01" if n < 4 else "96.00.89.00.01") for n in range(8)]
    assert messages(run_check("gpu-vbios-differs", {"w1": [gpus(*halves)]})) == []


def test_another_on_one_host() -> None:
    hosts = fleet("96.00.89.00.01", "96.00.89.00.01", "96.00.74.00.01")
    ((host, text),) = messages(run_check("gpu-vbios-differs", hosts))  # type: ignore[arg-type]
    assert host == "w2"
    assert text.startswith("the VBIOS of its NVIDIA H100 80GB HBM3 is 96.00.74.00.01; 2 of 3 hosts have 96.00.89.00.01")


def test_products_are_not_compared_with_each_other() -> None:
    hosts = fleet("96.00.89.00.01", "96.00.89.00.01") | {
        "w9": [gpus(gpu(0, vbios="92.00.45.00.03", name="NVIDIA A100"))]
    }
    assert messages(run_check("gpu-vbios-differs", hosts)) == []  # type: ignore[arg-type]
