"""What gpu-mig-differs finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import gpu, gpus
from tests.checks.run_check import fleet, messages, run_check


def test_one_mode_everywhere() -> None:
    assert messages(run_check("gpu-mig-differs", fleet(3, gpus()))) == []
    assert messages(run_check("gpu-mig-differs", fleet(3, gpus(gpu(0, mig="", mig_pending=""))))) == []


def test_a_host_that_differs() -> None:
    hosts = {**fleet(3, gpus()), "w4": [gpus(gpu(0, mig="Enabled", mig_pending="Enabled"))]}
    assert messages(run_check("gpu-mig-differs", hosts)) == [("w4", "MIG is Enabled; on 3 of 4 hosts it is Disabled")]


def test_a_change_that_waits_and_one_host_alone() -> None:
    ill = gpus(gpu(0, mig_pending="Enabled"), gpu(1, mig="Enabled", mig_pending="Enabled"))
    assert messages(run_check("gpu-mig-differs", {"w1": [ill]})) == [
        ("w1", "MIG is Disabled on GPU 0, and will be Enabled after its reset"),
        ("w1", "MIG is not the same on all GPUs"),
    ]
    reset, full = (finding.values["remedy"] for finding in run_check("gpu-mig-differs", {"w1": [ill]}).findings)
    assert "`nvidia-smi -r -i 0`" in reset
    assert "`nvidia-smi -mig 0`" in full
