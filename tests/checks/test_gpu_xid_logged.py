"""What gpu-xid-logged finds."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from doctor.engine.evaluate import evaluate_check
from doctor.engine.fact import Absent, Fact, Unreadable
from doctor.engine.result import Outcome, Status
from doctor.facts.accelerators import Accelerator, OtherAccelerators
from doctor.facts.gpu import GpuCards
from doctor.facts.kernel_log import KernelLog, LogLine
from doctor.facts.xid import CATALOG, DEMANDING, catalog
from tests.checks.gpu_hosts import gpu, gpus, log
from tests.checks.run_check import Facts, check, messages, run_check

FALLEN = "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
PAGE_FAULT = (
    "NVRM: Xid (PCI:0000:00:06): 31, pid=79749, name=exe, Ch 0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS"
)


def test_faults_of_programs_and_switches_that_went_on_are_no_finding() -> None:
    quiet = log(PAGE_FAULT, "nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20009, Non-fatal, Link 04 RX Short Error Rate")
    assert messages(run_check("gpu-xid-logged", {"w1": [quiet]})) == []


def test_the_age_the_count_and_the_action_are_named() -> None:
    outcome = run_check("gpu-xid-logged", {"w1": [log(FALLEN, FALLEN, age=7300)]})
    assert messages(outcome) == [
        (
            "w1",
            (
                "Xid 79 (the GPU has fallen off the bus) on 0000:9b:00, 2 times, last 2 h ago: "
                "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
            ),
        )
    ]
    assert outcome.findings[0].values["action"] == "restart the host"


def test_a_fatal_error_of_a_switch() -> None:
    fatal = "nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
    ((_, text),) = messages(run_check("gpu-xid-logged", {"w1": [log(fatal)]}))
    assert text.startswith("SXid 20034 (a fatal error of an NVSwitch) on 0000:00:00.0")


def test_what_is_older_than_a_week_is_history() -> None:
    assert messages(run_check("gpu-xid-logged", {"w1": [log(FALLEN, age=8 * 86400)]})) == []


GSP = "NVRM: Xid (PCI:0000:02:00): 119, pid=9, name=python, Timeout after 45s of waiting for RPC response from GPU4!"
DBE = "NVRM: Xid (PCI:0000:02:00): 48, pid=9, An uncorrectable double bit error (DBE) has been detected on GPU"
RESET_NEEDED = (
    "NVRM: Xid (PCI:0000:02:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
)
RECOVERED = "NVRM: Xid (PCI:0000:02:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
LOADED = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023"


def severities(lines: list[str], apart: float = 1, **state: Any) -> list[tuple[int, bool]]:
    """Code, and whether it is a warning, of a log with these messages, on a host whose GPU is in that state."""
    log = KernelLog(uptime=1e6, lines=tuple(LogLine(1000.0 - apart * n, line) for n, line in enumerate(lines)))
    facts = [log, gpus(gpu(0, bus="0000:02:00.0", **state))] if state else [log]
    return [(f.values["code"], f.is_warning) for f in run_check("gpu-xid-logged", {"w1": facts}).findings]


@pytest.mark.parametrize(
    ("lines", "state", "expected"),
    [
        ([GSP], {}, [(119, False)]),
        ([GSP], {"ecc_errors": 0}, [(119, False)]),
        ([GSP, LOADED], {}, [(119, True)]),
        ([LOADED, GSP], {}, [(119, False)]),
        ([GSP], {"is_recovered": True}, [(119, True)]),
        ([GSP, RESET_NEEDED], {}, [(119, False)]),
        ([GSP, RESET_NEEDED, RECOVERED], {}, [(119, True)]),
        ([RECOVERED, GSP], {}, [(119, False)]),
        ([RESET_NEEDED], {}, [(154, False)]),
        ([RESET_NEEDED], {"is_recovered": True}, [(154, True)]),
        ([DBE], {}, [(48, False)]),
        ([DBE], {"ecc_errors": 1}, [(48, False)]),
        ([DBE], {"ecc_errors": 0}, [(48, True)]),
        ([DBE], {"ecc_errors": None}, [(48, False)]),
        ([DBE.replace("48,", "95,")], {}, [(95, False)]),
        ([DBE.replace("48,", "94,")], {}, [(94, True)]),
        ([DBE.replace("48,", "92,")], {}, [(92, True)]),
        ([DBE.replace("48,", "74,")], {}, [(74, True)]),
        ([FALLEN.replace("9b", "02")], {"ecc_errors": 0}, [(79, True)]),
        ([FALLEN], {"ecc_errors": 0}, [(79, False)]),
    ],
)
def test_an_action_that_was_not_carried_out_is_an_error(
    lines: list[str], state: dict[str, Any], expected: list[tuple[int, bool]]
) -> None:
    assert severities(lines, **state) == expected


@pytest.mark.parametrize(
    "message",
    [
        "nvidia: probe of 0000:02:00.0 failed with error -1",
        "nvidia 0000:02:00.0: probe with driver nvidia failed with error -1",
        "NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:2330) installed in this system has fallen off the bus",
    ],
)
def test_what_the_driver_finds_while_it_is_loaded_is_no_older_than_that(message: str) -> None:
    """It says that it is loaded after it has looked at the GPUs (a log of 525.125.06: 64 ms after)."""
    assert severities([message, LOADED]) == [(0, False)]
    assert severities([message, LOADED], apart=300) == [(0, True)]


def test_a_fatal_error_of_a_switch_is_one_until_the_driver_is_loaded_anew() -> None:
    fatal = "nvidia-nvswitch0: SXid (PCI:0000:59:00.0): 23001, Fatal, Link 12 Always Fatal"
    assert severities([fatal]) == [(23001, False)]
    assert severities([fatal, LOADED]) == [(23001, True)]


@pytest.mark.parametrize(
    ("address", "device", "part"),
    [
        ("PCI:0000:01:00 GPU-I:05", "0000:01:00", " GPU-I:05"),
        ("PCI:0000:01:00 GPU-I:01 GPU-CI:02", "0000:01:00", " GPU-I:01 GPU-CI:02"),
        ("PCI:0009:01:00", "0009:01:00", ""),
        ("0000:01:00", "0000:01:00", ""),
    ],
)
@pytest.mark.parametrize("code", [48, 79, 94, 95])
def test_a_part_of_a_divided_gpu_is_named(address: str, device: str, part: str, code: int) -> None:
    """NVIDIA, A100 GPU Memory Error Management: ``Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: ...``."""
    message = f"NVRM: Xid ({address}): {code}, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No"
    (finding,) = run_check("gpu-xid-logged", {"w1": [log(message)]}).findings
    assert (finding.values["device"], finding.values["part"], finding.values["code"]) == (device, part, code)


@pytest.mark.parametrize(
    ("device", "where"), [("GPU 0000:2c:00.0 (PCI ID: 10de:1d16)\\x0aNVRM: ", " on 0000:2c:00.0"), ("", "")]
)
def test_a_gpu_that_the_driver_does_not_support_is_one_finding_that_says_so(device: str, where: str) -> None:
    """https://github.com/pop-os/cosmic-epoch/issues/3411; the message has eight lines."""
    refused = f"NVRM: The NVIDIA {device}installed in this system is not supported by the 370.28\\x0aNVRM: NVIDIA Linux"
    lines = [refused, "nvidia 0000:2c:00.0: probe with driver nvidia failed with error -1"][: 1 + bool(device)]
    kernel = KernelLog(uptime=1e6, lines=tuple(LogLine(5.0, line) for line in lines))
    ((_, text),) = messages(run_check("gpu-xid-logged", {"w1": [kernel]}))
    assert text.startswith(f"the driver's message (the driver does not support the GPU){where}, ")


@pytest.mark.parametrize("code", [9999, 16, 61, 58])
def test_a_code_that_the_catalog_does_not_have_is_unknown_for_a_day(code: int) -> None:
    message = f"NVRM: Xid (PCI:0000:02:00): {code}, something"
    outcome = run_check("gpu-xid-logged", {"w1": [log(message)]})
    assert outcome.unknown["w1"].text == f"NVIDIA's catalog does not have Xid {code} on 0000:02:00"
    assert not run_check("gpu-xid-logged", {"w1": [log(message, age=90000)]}).unknown


def test_every_code_with_a_demanded_action_has_a_meaning() -> None:
    demanding = {code for action, codes in catalog().xid.items() if action in DEMANDING for code in codes}
    assert demanding <= CATALOG.keys()
    quiet = {code for action in ("IGNORE", "RESTART_APP") for code in catalog().xid[action]} - {92, 94, 157, 161}
    assert not quiet & CATALOG.keys()


class TestAUserWhoMayNotReadTheLog:
    """A host without such a card has no such fault, whoever looks; one with a card may have one."""

    LOG = Unreadable("only root may read the kernel log (kernel.dmesg_restrict): use --sudo")
    CARDS: ClassVar[dict[str, tuple[Fact, type[Fact]]]] = {
        "gpu-xid-logged": (GpuCards(pci=8, driver="", tool=True), GpuCards),
        "amd-gpu-fault-logged": (
            OtherAccelerators((Accelerator("0000:05:00.0", "AMD", "1002:74a1", "amdgpu"),)),
            OtherAccelerators,
        ),
    }

    @pytest.mark.parametrize("name", CARDS)
    def test_without_a_card_it_does_not_apply(self, name: str) -> None:
        absent = Absent("the host has none")
        outcome = outcome_of(name, self.LOG, self.CARDS[name][1], absent)
        assert (outcome.status, outcome.skipped) == (Status.SKIPPED, {"w1": "the host has none"})

    @pytest.mark.parametrize("name", CARDS)
    def test_with_a_card_it_is_unknown(self, name: str) -> None:
        card, kind = self.CARDS[name]
        for cards in (card, Unreadable("/sys was not read")):
            outcome = outcome_of(name, self.LOG, kind, cards)
            assert (outcome.status, set(outcome.unknown)) == (Status.UNKNOWN, {"w1"})


def outcome_of(name: str, log: Absent, kind: type[Fact], cards: Fact | Absent) -> Outcome:
    values = {KernelLog: log, kind: cards}

    class SomeUnread(Facts):
        def get(self, host: str, fact: type[Fact]) -> Fact | Absent:
            return values[fact] if fact in values else super().get(host, fact)

    return evaluate_check(check(name), ("w1",), SomeUnread({"w1": ()}), {})


@pytest.mark.parametrize(
    ("line", "device", "action"),
    [
        # Public files 16990269836 and 70937370203
        (
            (
                "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\\x0a"
                "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:56:00.0)"
            ),
            "0000:56:00.0",
            "pci=realloc",
        ),
        ("NVRM: GPU 0000:01:00.0 is already bound to nouveau", "0000:01:00.0", "blacklist"),
    ],
)
def test_a_gpu_that_the_driver_cannot_use(line: str, device: str, action: str) -> None:
    (finding,) = run_check("gpu-xid-logged", {"w1": [log(line)]}).findings
    assert finding.values["device"] == device and action in str(finding.values["action"]) and not finding.is_warning


def test_a_gpu_meant_for_a_virtual_machine_is_no_fault() -> None:
    # Public file 65716006523
    assert (
        messages(run_check("gpu-xid-logged", {"w1": [log("NVRM: GPU 0000:43:00.0 is already bound to vfio-pci")]}))
        == []
    )


UVM = "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover."


def test_the_action_that_the_driver_names_itself_and_that_was_not_taken() -> None:
    """The driver's part for memory refuses all programs, until it is loaded again."""
    (finding,) = run_check("gpu-xid-logged", {"w1": [log(UVM)]}).findings
    assert not finding.is_warning and finding.values["action"] == "restart the host"
    loaded = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023"
    after = KernelLog(uptime=1e6, lines=(LogLine(9000.0, UVM), LogLine(60.0, loaded)))
    assert all(finding.is_warning for finding in run_check("gpu-xid-logged", {"w1": [after]}).findings)
