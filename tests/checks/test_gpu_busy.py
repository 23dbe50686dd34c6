"""What gpu-busy finds."""

from __future__ import annotations

from doctor.facts.gpu import GpuProcess
from tests.checks.gpu_hosts import gpu, gpus
from tests.checks.run_check import messages, run_check


def test_idle_gpus_display_servers_and_services() -> None:
    others = (
        GpuProcess(725, "G", "/usr/lib/xorg/Xorg", 22),
        GpuProcess(34626, "C+G", "/usr/lib/chromium/chromium", 183),
        GpuProcess(99, "M+C", "nvidia-cuda-mps-server", 30),
    )
    assert messages(run_check("gpu-busy", {"w1": [gpus(gpu(0, processes=others))]})) == []


def test_a_process_that_computes() -> None:
    held = gpu(5, processes=(GpuProcess(5762, "C", "python", 1005), GpuProcess(5763, "C", "", None)))
    assert messages(run_check("gpu-busy", {"w1": [gpus(held)]})) == [
        ("w1", "process 5762 (python) uses 1005 MiB of GPU 5; expected none"),
        ("w1", "process 5763 (name not known) uses unknown MiB of GPU 5; expected none"),
    ]


def test_a_gpu_without_memory_left_lets_no_job_start() -> None:
    """An H200 of whose 143,771 MiB another process held 141,830: torch's first product failed."""
    held = gpu(0, memory=143771, processes=(GpuProcess(9430, "C", "python3", 141830),))
    shared = gpu(1, memory=143771, processes=(GpuProcess(9431, "C", "python3", 130000),))
    findings = run_check("gpu-busy", {"w1": [gpus(held, shared)]}).findings
    assert [finding.is_warning for finding in findings] == [False, True]


def test_memory_that_no_process_has_in_this_container() -> None:
    """Its process is one of another container; what a desktop, the driver or a service has is none of it."""
    held = gpu(0, memory=81559, memory_used=62000)
    full = gpu(1, memory=81559, memory_used=80100, processes=(GpuProcess(725, "G", "/usr/lib/xorg/Xorg", 22),))
    findings = run_check("gpu-busy", {"w1": [gpus(held, full)]}).findings
    assert [str(finding) for finding in findings] == [
        "GPU 0 has 62000 MiB of its memory in use and no process; expected at most 9787 MiB",
        "GPU 1 has 80078 MiB of its memory in use and no process; expected at most 9787 MiB",
    ]
    assert [finding.is_warning for finding in findings] == [True, False]


def test_memory_of_an_idle_gpu_and_memory_that_is_named() -> None:
    idle = gpu(0, memory=81920, memory_used=869)
    desktop = gpu(1, memory=20475, memory_used=3534, processes=(GpuProcess(1, "G", "Xorg", 2900),))
    named = gpu(2, memory=20475, memory_used=9000, processes=(GpuProcess(2, "C+G", "chromium", None),))
    unread = gpu(3, memory=None, memory_used=9000)
    assert messages(run_check("gpu-busy", {"w1": [gpus(idle, desktop, named, unread)]})) == []
