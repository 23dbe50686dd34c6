"""What gpu-xid-logged finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import log
from tests.checks.run_check import messages, run_check

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
