"""What npu-switch-fault makes of the log of MindCluster's device plugin.

The lines with `SwitchFaultEvent{` are those of its own test data (component/ascend-faultdiag/test of
github.com/Ascend/mind-cluster, commit 22bb3d98); the newer form and the queries are as ascend_switch.go of that commit
prints them.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from doctor.engine.fact import Absent, Output, Unreadable
from doctor.facts import npu_fabric
from doctor.facts.npu_fabric import NpuSwitchFaults
from tests.checks.devices import of, unknown
from tests.facts.answers import answered, read_outputs

look = of("npu_switch_fault")
HEAD = "[WARN]     2024/01/10 03:28:38.643290 17      deviceswitch/ascend_switch.go:190    "


def old(code: str, assertion: int, port: str = "0x0") -> str:
    return (
        f"{HEAD}switch subscribe got fault:deviceswitch.SwitchFaultEvent{{EventType:0x4, FaultID:0xf1ff09, "
        f'AssembledFaultCode:"{code}", PeerPortDevice:0x0, PeerPortId:0x2, SwitchChipId:0x0, SwitchPortId:{port}, '
        f"Severity:0x0, Assertion:0x{assertion}, EventSerialNum:0, NotifySerialNum:0, AlarmRaisedTime:0, "
        f'AdditionalParam:"", AdditionalInfo:""}}, faultCode:{code}'
    )


def new(code: str, assertion: int, chip: int = 2, port: int = 5) -> str:
    return (
        f"{HEAD}switch subscribe got fault:AlarmId: {code[1:11]}, FaultID: na, AssembledFaultCode: {code}, "
        f"PeerPortDevice: 1, PeerPortId: 3, SwitchChipId: {chip}, SwitchPortId: {port}, Assertion: {assertion}, "
        f"AlarmRaisedTime: 1704857318643, faultCode:{code}"
    )


def query(*codes: str) -> str:
    listed = ", ".join(f'"{code}"' for code in codes)
    return f"{HEAD}switch of 910A3 get fault codes: []string{{{listed}}}"


NONE = "[INFO]     2024/01/10 03:28:38.643290 17 successfully updated switch fault codes (count: 0)"
LOST, SLOW, FINE = "[0x08520003,na,npu,na]", "[0x00f103b6,155908,na,na]", "[0x00f1fef5,155913,cpu,na]"
STRANGE = "[0x00f1ff09,155912,cpu,na]"


def faults(*lines: str, since_boot: bool = True) -> Any:
    return answered(NpuSwitchFaults, {"lines": list(lines), "since_boot": since_boot})


@pytest.mark.parametrize(
    "lines",
    [
        (),
        (NONE,),
        (new(FINE, 1),),
        (new(LOST, 1), new(LOST, 0)),
        (old("[0x00f103b0,155907,na,na]", 1), old("[0x00f103b0,155907,na,na]", 0)),
        (query(LOST), NONE),
        (query(LOST, SLOW), query(FINE)),
        (f"{HEAD}failed to query switch fault codes: \x1b[31m", "switch fault " * 500),
    ],
)
def test_no_fault_now(lines: tuple[str, ...]) -> None:
    assert look(faults(*lines)) == []


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ((new(LOST, 1),), f"the L1 switch has fault {LOST} (chip 2, port 5); the vendor's level is replace"),
        ((old("[0x00f103b0,155907,na,na]", 1, "0xffffffff"),), "[0x00f103b0,155907,na,na] (chip 0)"),
        ((new(LOST, 1, port=1), new(LOST, 0, port=2)), "port 1"),
        ((query(LOST),), f"fault {LOST}; the vendor's level"),
        ((NONE, new(LOST, 1)), "port 5"),
    ],
)
def test_a_fault_that_takes_the_host_out(lines: tuple[str, ...], text: str) -> None:
    (finding,) = look(faults(*lines))
    assert text in str(finding)
    assert not finding.is_warning


def test_a_degraded_switch_is_a_warning() -> None:
    (finding,) = look(faults(new(SLOW, 1)))
    assert finding.is_warning


def test_a_code_that_the_vendors_list_does_not_have() -> None:
    assert STRANGE in str(unknown(look, faults(old(STRANGE, 1))))


def test_a_log_of_an_earlier_boot_and_no_log() -> None:
    assert isinstance(faults(new(LOST, 1), since_boot=False), Absent)
    why = read_outputs(NpuSwitchFaults, one=Output(ended="absent", err="x"))
    assert isinstance(why, Absent) and not isinstance(why, Unreadable)


def test_a_plugin_that_runs_writes_in_this_boot_though_the_clock_was_put_forward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last line then seems older than the boot; without the plugin such a log is of an earlier one."""
    log, other, program = tmp_path / "log", tmp_path / "other", tmp_path / "device-plugin"
    program.symlink_to("/bin/sh")
    log.write_text(new(LOST, 1) + "\n")
    os.utime(log, (1.0, 1.0))
    monkeypatch.setattr(npu_fabric, "open", lambda path, mode: log.open(mode), raising=False)

    def is_of_this_boot(opened: Path) -> Any:
        with opened.open("ab") as stream:
            plugin = subprocess.Popen([program, "-c", "read line"], stdin=subprocess.PIPE, stdout=stream)
        try:
            while Path(f"/proc/{plugin.pid}/comm").read_text() != "device-plugin\n":
                time.sleep(0.01)  # the kernel lets the caller go on before it has the new name
            return npu_fabric.read_plugin_log({})["since_boot"]
        finally:
            plugin.communicate()

    assert is_of_this_boot(log) and not is_of_this_boot(other)
    assert not npu_fabric.read_plugin_log({})["since_boot"]
    os.utime(log)
    assert npu_fabric.read_plugin_log({})["since_boot"]
