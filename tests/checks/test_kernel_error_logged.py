# ruff: noqa: E501 - messages are kept as they were printed
"""What kernel-error-logged finds, and what it leaves to other checks or to nobody."""

from __future__ import annotations

import pytest

from doctor.facts.kernel_log import KernelLog, LogLine
from tests.checks.gpu_hosts import log
from tests.checks.run_check import messages, run_check

RECOVERY = "ice 0000:b1:00.0: Firmware recovery mode detected. Limiting functionality."


def finding_texts(kernel: KernelLog) -> list[str]:
    return [text for _, text in messages(run_check("kernel-error-logged", {"w1": [kernel]}))]


def test_a_driver_that_says_that_its_device_fails_is_shown_with_the_device() -> None:
    (text,) = finding_texts(log(RECOVERY))
    assert "0000:b1:00.0, 1 time, last" in text and "Firmware recovery mode" in text


@pytest.mark.parametrize(
    "text",
    [
        "mlx5_core 0000:3b:00.0: poll_health:815:(pid 0): Fatal error 1 detected",  # a row names it
        "mlx5_core 0000:05:00.0: mlx5_cmd_out_err:839:(pid 4711): ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2), syndrome (0x9a6171), err(-22)",
        "snd_hda_intel 0000:00:1f.3: azx_get_response timeout, switching to polling mode: last cmd=0x20170500",  # no driver of ours
        "systemd[1]: ice 0000:b1:00.0: reset failed",  # a program's own words
        "megaraid_sas 0000:03:00.0: FW provided TM TaskAbort/Reset timeout\t: 0 secs/0 secs",
        "bnxt_en 0000:12:00.0 (unnamed net_device) (uninitialized): Device requests max timeout of 100 seconds, may trigger hung task watchdog",
    ],
)
def test_what_another_check_finds_or_is_harmless_is_not_shown(text: str) -> None:
    assert finding_texts(log(text)) == []


def test_what_is_printed_below_warning_level_does_not_count() -> None:
    lines = (LogLine(5.0, RECOVERY, 6),)
    assert finding_texts(KernelLog(uptime=1e6, lines=lines)) == []
    assert finding_texts(KernelLog(uptime=1e6, lines=(LogLine(5.0, RECOVERY, 3),)))


def test_a_source_of_random_numbers_that_the_kernel_does_without_is_no_fault() -> None:
    """Printed as an emergency by healthy servers (EPYC of the fifth generation, Linux 6.18)."""
    for text, count in (("RDSEED32 is broken. Disabling the corresponding CPUID bit.", 0), ("Disabling IRQ #22", 1)):
        assert len(finding_texts(KernelLog(uptime=1e6, lines=(LogLine(5.0, text, 0),)))) == count


def test_a_device_that_recovered_is_history_and_another_one_is_not() -> None:
    failed = "mlx5_core 0000:41:00.0: mlx5_sync_reset: device reset failed"
    recovered = "mlx5_core 0000:41:00.0: mlx5_health_try_recover:350:(pid 20): health recovery succeeded"
    for text, count in ((recovered, 0), (recovered.replace("41:00", "42:00"), 1)):
        assert len(finding_texts(KernelLog(uptime=1e6, lines=(LogLine(9.0, failed), LogLine(5.0, text))))) == count


def test_an_error_of_the_kernel_itself_counts_until_the_host_is_restarted() -> None:
    text = "BUG: kernel NULL pointer dereference, address: 0000000000000008"
    (text_shown,) = finding_texts(log(text, age=200000))
    assert text_shown.startswith("the kernel reported an error of the kernel itself, 1 time")


def test_only_an_error_after_which_the_vendor_has_the_host_replaced_stops_a_job() -> None:
    """Neuron's, and beside it an error of a row whose vendor states no action."""
    neuron = "[nd-id=3] NEURON_HW_ERR=HBM_UE_EXEC instance-id=i-0 hostname=h nd-id=3 nc-id=0 serial-num=0 action=TERMINATE_INSTANCE"
    for text, is_warning in ((neuron, False), (RECOVERY, True)):
        (finding,) = run_check("kernel-error-logged", {"w1": [log(text)]}).findings
        assert finding.is_warning == is_warning
    assert finding_texts(log(neuron.replace("NEURON_HW_ERR=HBM_UE_EXEC", "loaded"))) == []


@pytest.mark.parametrize(
    ("text", "pci_class", "count"),
    [
        ("metax 0000:0f:00.0: firmware state machine stays in 3", "1200", 1),
        ("enic 0000:62:00.0 enp98s0: Failed to open notify, aborting", "0200", 1),
        ("mydisk 0000:05:00.0: queue 3 was not created", "0108", 1),
        # Of chipsets, and of cards that no training job needs; kernels of healthy servers and laptops print these.
        ("ccp 0000:22:00.1: SEV: failed to INIT error 0x1, rc -5", "1080", 0),
        ("i801_smbus 0000:00:1f.4: SMBus is busy, can't use it!", "0c05", 0),
        ("lpc_ich 0000:00:1f.0: No MFD cells added", "0601", 0),
        ("qat_4xxx 0000:6b:00.0: Failed to load MMP firmware qat_4xxx_mmp.bin", "0b40", 0),
        ("iwlwifi 0000:03:00.0: BIOS contains WGDS but no WRDS", "0280", 0),
        ("bochs-drm 0000:00:02.0: no framebuffer", "0300", 0),
        # Nobody could say of what class it is, as in a log that was saved before, or of a function that is gone.
        ("metax 0000:0f:00.0: firmware state machine stays in 3", "", 0),
        ("metax 0000:0f:00.0: firmware reset failed", "", 1),
    ],
)
def test_an_unknown_driver_counts_by_the_class_of_its_function(text: str, pci_class: str, count: int) -> None:
    assert len(finding_texts(KernelLog(uptime=1e6, lines=(LogLine(5.0, text, 3, pci_class),)))) == count


def test_a_line_that_several_rows_find_counts_once() -> None:
    text = "tg3 0000:01:00.0: DMA engine test failed, aborting"
    lines = tuple(LogLine(age, text, 3, "0200") for age in (9.0, 7.0, 5.0))
    (text_shown,) = finding_texts(KernelLog(uptime=1e6, lines=lines))
    assert "at 0000:01:00.0, 3 times, last 5 s ago" in text_shown
