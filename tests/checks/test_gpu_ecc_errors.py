"""What gpu-ecc-errors finds."""

from __future__ import annotations

from tests.checks.devices import gpus, of

look = of("gpu_ecc_errors")


def test_gpus_without_errors_and_without_ecc() -> None:
    assert look(gpus()) == look(gpus(errors=None)) == []


def test_errors_are_named_with_their_gpu() -> None:
    (finding,) = look(gpus(1, errors=3))
    assert str(finding) == "GPU 0 has 3 uncorrected memory errors since its driver was loaded; expected 0"
