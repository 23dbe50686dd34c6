"""What gpu-driver-differs finds."""

from __future__ import annotations

from tests.checks.devices import fleet, gpus, of

look = of("gpu_driver_differs")


def test_the_odd_host_is_named() -> None:
    (finding,) = look(fleet(gpus(), gpus(driver="535.129.03"), gpus()))
    assert (finding.hosts, finding.values["observed"], finding.values["expected"]) == (
        ("b",),
        "535.129.03",
        "550.54.15",
    )
