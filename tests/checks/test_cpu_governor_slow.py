"""What cpu-governor-slow finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import ADAPTERS, cards, gpu, gpus, settings
from tests.checks.run_check import messages, run_check, skipped


def test_full_frequency() -> None:
    assert messages(run_check("cpu-governor-slow", {"w1": [settings(), cards()]})) == []


def test_another_governor() -> None:
    slow = settings(governors=("performance", "powersave"))
    assert messages(run_check("cpu-governor-slow", {"w1": [slow, ADAPTERS]})) == [
        ("w1", "the CPU frequency governor is powersave (intel_pstate); expected performance")
    ]


def test_laptops_virtual_machines_and_plain_hosts_are_left_out() -> None:
    slow = settings(governors=("powersave",))
    assert skipped(run_check("cpu-governor-slow", {"w1": [slow]}))
    assert skipped(
        run_check("cpu-governor-slow", {"w1": [settings(governors=("schedutil",), is_portable=True), cards()]})
    )
    assert skipped(run_check("cpu-governor-slow", {"w1": [settings(governors=()), cards()]}))


def test_a_desktop_with_a_gpu_is_no_server() -> None:
    slow = settings(governors=("powersave",))
    geforce = gpu(name="NVIDIA GeForce RTX 4090")
    assert skipped(run_check("cpu-governor-slow", {"w1": [slow, cards(pci=1), gpus(geforce)]}))
    assert messages(run_check("cpu-governor-slow", {"w1": [slow, cards(pci=8), gpus(*[geforce] * 8)]}))
    assert messages(run_check("cpu-governor-slow", {"w1": [slow, cards(pci=1), gpus(gpu())]}))
    assert messages(run_check("cpu-governor-slow", {"w1": [slow, cards(pci=1)]})), "nvidia-smi does not say what it is"
