"""What tools printed of real machines, as somebody published it: the sick device is named, the sound one is green.

Each ``recorded/public_*.yaml`` is a list of records::

    - id: a short name, unique in all files
      source: https://... where it was published, or "public file N", its id in the index of GitHub texts
      tool: hccn_tool -i 3 -link -g      # the command; its first match in TOOLS says which fact reads it
      text: |                            # what it printed; of several devices, or files: {3: ..., 4: ...}
        link status: DOWN
      code: 0                            # exit status, if not 0
      level: 6                           # of messages of the kernel, if not that of errors
      beside: [{tool: ..., text: ...}]   # what else the same host printed
      alone: true                        # no other host answers the same
      expect: {verdict: sick, device: NPU 3, check: device-link-down}

``verdict`` is one of sick (only the checks of ``check`` find something, and their findings name ``device``; either may
be a list), healthy (no finding and nothing unknown but ``unknown``), unread (no finding, and something is unknown:
these checks, where ``check`` names them) and nothing (no finding). Texts are cut to the devices that tell something;
names of hosts, serial numbers and addresses are replaced.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
import yaml

from doctor.engine.catalog import load_checks
from doctor.engine.evaluate import evaluate_check
from doctor.engine.fact import Fact, Output, Unreadable
from doctor.engine.result import Outcome
from doctor.facts.amd_smi import AmdGpus
from doctor.facts.bmc_events import BmcEvents
from doctor.facts.ethernet_links import EthernetCounters, EthernetModules
from doctor.facts.gpu import GpuCards, GpuInventory, NvidiaSmi
from doctor.facts.hccn.device_addresses import DetectAddresses, DeviceAddresses, DeviceGateways, HccnConf, VnicAddresses
from doctor.facts.hccn.link_state import (
    DeviceFec,
    DeviceHealth,
    DeviceLinks,
    DeviceMtu,
    DeviceSpeed,
    LinkHistory,
    UbPorts,
)
from doctor.facts.hccn.neighbour import Neighbours
from doctor.facts.hccn.optics import Optics
from doctor.facts.hccn.super_pod import SuperPodId
from doctor.facts.hccn.traffic import DevicePfc, DeviceTrafficClasses, TlsSwitches
from doctor.facts.kernel_log import ERROR_LEVEL, KernelLog
from doctor.facts.npu import FAMILY_OF_PCI, NpuChips, NpuInventory, NpuMemoryErrors, NpuProduct, NpuStart
from doctor.facts.npu_counters import NpuCompatibility, NpuFrequencies, NpuPcieErrors
from doctor.facts.npu_fabric import NpuHccs, NpuTopology
from doctor.facts.npu_health import NpuHealth
from doctor.facts.npu_table import NpuTable
from doctor.facts.nvlink import GpuTopology, ImexDomain, NvLinkErrors, NvLinks
from doctor.facts.pcie_links import PcieLinks
from doctor.facts.rdma import RdmaPorts
from doctor.facts.rdma_modules import RdmaModules
from doctor.facts.vendor_tests import DcgmDiagnosis, DcgmHealth
from doctor.facts.versions import DRIVER, FIRMWARE, INSTALL, CannVersion, NpuVersions
from doctor.job import LaunchConfig
from tests.checks.run_check import Facts
from tests.facts.answers import answered, learned
from tests.facts.device_reports import hbm_table
from tests.facts.kernel_answers import collected_logs
from tests.facts.lspci_transcripts import pcie_links
from tests.facts.rdma_transcripts import adapters

Form = Literal["whole", "block", "device", "bus", "links", "ports", "log", "files"]
"""How a host's answer holds the text: alone; in a block of each card; of each device; what doctor reads from sysfs, and
people print with lspci and ibstat, as NVIDIA's GPUs of the bus, as PCIe links, and as RDMA ports; as messages of the
kernel; by the path of each file, where those that are not given are not there."""
TOOLS: tuple[tuple[str, type[Fact], Form], ...] = (
    (r"npu-smi info -m\b", NpuChips, "whole"),
    (r"npu-smi info -l\b", NpuStart, "whole"),
    (r"npu-smi info -t health\b", NpuHealth, "block"),
    (r"npu-smi info -t ecc\b", NpuMemoryErrors, "block"),
    (r"npu-smi info -t pcie-err\b", NpuPcieErrors, "block"),
    (r"npu-smi info -t common\b", NpuFrequencies, "block"),
    (r"npu-smi info -t board\b", NpuCompatibility, "block"),
    (r"npu-smi info -t hccs\b", NpuHccs, "block"),
    (r"npu-smi info -t topo\b", NpuTopology, "whole"),
    (r"npu-smi info -t spod-info\b", SuperPodId, "whole"),
    (r"npu-smi info$", NpuTable, "whole"),
    (r"hccn_tool .*-net_health -g", DeviceHealth, "device"),
    (r"hccn_tool .*-link_stat -g", LinkHistory, "device"),
    (r"hccn_tool .*-link -g", DeviceLinks, "device"),
    (r"hccn_tool .*-optical -g", Optics, "device"),
    (r"hccn_tool .*-lldp -g", Neighbours, "device"),
    (r"hccn_tool .*-gateway -g", DeviceGateways, "device"),
    (r"hccn_tool .*-netdetect -g", DetectAddresses, "device"),
    (r"hccn_tool .*-vnic -g", VnicAddresses, "device"),
    (r"hccn_tool .*-ip -g", DeviceAddresses, "device"),
    (r"hccn_tool .*-speed -g", DeviceSpeed, "device"),
    (r"hccn_tool .*-mtu -g", DeviceMtu, "device"),
    (r"hccn_tool .*-fec -g", DeviceFec, "device"),
    (r"hccn_tool .*-tls -g", TlsSwitches, "device"),
    (r"hccn_tool .*-pfc -g", DevicePfc, "device"),
    (r"hccn_tool .*-dscp_to_tc -g", DeviceTrafficClasses, "device"),
    (r"hccn_tool -g -dev_info", UbPorts, "device"),
    (r"nvidia-smi -q -x", GpuInventory, "whole"),
    (r"lspci -vv", PcieLinks, "links"),
    (r"lspci|/proc/driver/nvidia/version", GpuCards, "bus"),
    (r"nvidia-smi nvlink -s", NvLinks, "whole"),
    (r"nvidia-smi nvlink -e", NvLinkErrors, "whole"),
    (r"nvidia-smi topo -m", GpuTopology, "whole"),
    (r"dcgmi health\b", DcgmHealth, "whole"),
    (r"dcgmi diag\b", DcgmDiagnosis, "whole"),
    (r"nvidia-imex-ctl -N", ImexDomain, "whole"),
    (r"(?:amd|rocm)-smi\b", AmdGpus, "block"),
    (r"ethtool -m\b", EthernetModules, "block"),
    (r"ethtool -S\b", EthernetCounters, "block"),
    (r"mlxlink\b", RdmaModules, "block"),
    (r"ipmitool sel\b", BmcEvents, "block"),
    (r"ibstat|ibv_devinfo|rdma link", RdmaPorts, "ports"),
    (r"dmesg|kernel", KernelLog, "log"),
    (r"cat version\.info", NpuVersions, "files"),
    (r"cat ascend_toolkit_install\.info", CannVersion, "files"),
)
FOLDER = Path(__file__).with_name("recorded")
RECORDS: list[dict[str, Any]] = [
    record for file in sorted(FOLDER.glob("public_*.yaml")) for record in yaml.safe_load(file.read_text("utf-8"))
]
HOSTS = ("w1", "w2")
"""The second answers as the first: what concerns the network between hosts is judged of two."""
CHECKS = [check for check in load_checks() if check.area not in ("smoke", "launch")]
SOUND = hbm_table("| 0 910B1 | OK | 97.1 50 0 / 0 |\n| 0 | 0000:C1:00.0 | 12 0 / 0 7752 / 65536 |")
"""Of one card."""
NPU_FILES = (DRIVER, FIRMWARE, INSTALL)
ALONE = frozenset({DeviceAddresses, VnicAddresses, SuperPodId})
"""Facts that no two hosts have alike."""


class Verdict(NamedTuple):
    """What the checks made of a record."""

    findings: dict[str, str]
    """By check, all that its findings say."""
    unknown: frozenset[str]
    crashed: frozenset[str]


def words(value: Any) -> list[str]:
    """One word, several, or none."""
    return [] if value is None else [str(item) for item in value] if isinstance(value, list) else [str(value)]


def read_printed(printed: dict[str, Any], folder: Path) -> dict[type[Fact], Any]:
    """What the readers of `doctor check` make of one command's output."""
    tool, text, code = printed["tool"], printed["text"], printed.get("code", 0)
    fact, form = next((fact, form) for pattern, fact, form in TOOLS if re.search(pattern, tool))
    number = re.search(r"-i (\d+)(?: -c (\d+))?", tool)
    device = number[1] if number else "0"
    texts = (
        text
        if isinstance(text, dict)
        else {f"{device} {number[2] or 0}" if fact is NpuHccs and number else device: text}
    )
    if form == "log":
        lines = [re.sub(r"^\[ *\d+\.\d+\] ", "", line) for line in text.splitlines()]
        return {fact: collected_logs(folder, {"": lines}, printed.get("level", ERROR_LEVEL))[""]}
    if form in ("bus", "links"):
        driver = next((line for line in text.splitlines() if line.startswith("NVRM version")), "")
        pci = len(re.findall(r"(?:3D|VGA compatible) controller: NVIDIA", text)) or int(bool(driver))
        detected = {"pci": pci, "driver": driver, "tool": True}
        return {fact: answered(fact, pcie_links(text) if form == "links" else detected)}
    if form == "ports":
        return {fact: learned(fact, {"": Output(out=json.dumps(adapters(text)))})}
    if fact is CannVersion:
        return {
            fact: answered(fact, [{"root": path.rpartition("/")[0], "path": path, "text": text[path]} for path in text])
        }
    if form == "files":
        absent = {path: Output(ended="absent", err=f"{path}: no such file") for path in NPU_FILES}
        return {fact: learned(fact, absent | {path: Output(out=part) for path, part in text.items()})}
    if form == "block":
        body = "".join(f"-- {name} --\n{part.rstrip()}\n-- exit {code} --\n" for name, part in texts.items())
        return {fact: learned(fact, {"": Output(out=body)})}
    if form == "device":
        return {fact: learned(fact, {str(name): Output(out=part, code=code) for name, part in texts.items()})}
    readers = (fact, NvidiaSmi) if fact is GpuInventory else (fact,)
    return {reader: learned(reader, {"": Output(out=text, code=code)}) for reader in readers}


def judge(record: dict[str, Any], folder: Path) -> Verdict:
    """What `doctor check` would say of the host."""
    facts: dict[type[Fact], Any] = {}
    for printed in (record, *record.get("beside", ())):
        facts |= read_printed(printed, folder)
    printed_facts = set(facts)
    if any("hccn_tool" in printed["tool"] for printed in (record, *record.get("beside", ()))):
        pci = next(pci for pci, family in FAMILY_OF_PCI.items() if family == record.get("family", "A2"))
        detected = {"pci": {"0000:c1:00.0": pci}, "files": [], "refused": [], "tools": [], "chips": None, "newer": []}
        facts.setdefault(NpuProduct, answered(NpuProduct, detected))
    if DeviceAddresses in facts:
        facts.setdefault(HccnConf, Unreadable("not published"))
    if NpuHealth in facts:  # the state must come from the text, not from the table
        facts.setdefault(NpuTable, learned(NpuTable, {"": Output(out=SOUND)}))
    if NpuStart in facts:
        files = ["/dev/davinci0", "/dev/davinci_manager"]
        detected = {"pci": {}, "files": files, "refused": [], "tools": ["npu-smi"], "chips": None, "newer": []}
        facts.setdefault(NpuInventory, answered(NpuInventory, detected))
    hosts = HOSTS[:1] if record.get("alone") else HOSTS
    book = Facts({host: [] for host in hosts})
    book._facts |= {
        (host, fact): value for host in hosts for fact, value in facts.items() if host == HOSTS[0] or fact not in ALONE
    }
    intent = {LaunchConfig: LaunchConfig.from_environment({})}
    outcomes = [evaluate_check(check, hosts, book, intent) for check in CHECKS if check.facts & printed_facts]
    return Verdict(
        {outcome.check: said(outcome) for outcome in outcomes if outcome.findings},
        frozenset(outcome.check for outcome in outcomes if outcome.unknown),
        frozenset(outcome.check for outcome in outcomes if outcome.crashed),
    )


def said(outcome: Outcome) -> str:
    return " ".join(f"{finding} {dict(finding.values)}" for finding in outcome.findings)


def problem(record: dict[str, Any], verdict: Verdict) -> str:
    """Why the verdict is not what an expert says; empty where it is."""
    expect = record["expect"]
    checks, devices, unknown = (words(expect.get(name)) for name in ("check", "device", "unknown"))
    if verdict.crashed:
        return f"crashed: {sorted(verdict.crashed)}"
    if expect["verdict"] == "sick":
        if set(checks) != set(verdict.findings):
            return f"wanted {checks}, found {verdict.findings}, unknown {sorted(verdict.unknown)}"
        missing = [device for device in devices if not any(device in text for text in verdict.findings.values())]
        return f"{missing} not named in {verdict.findings}" if missing else ""
    if verdict.findings:
        return f"accused: {verdict.findings}"
    if expect["verdict"] == "healthy":
        return f"unknown: {sorted(verdict.unknown - set(unknown))}" if verdict.unknown - set(unknown) else ""
    if expect["verdict"] == "unread":
        lacking = set(checks) - verdict.unknown
        return f"not unknown: {sorted(lacking) or 'all'}" if lacking or not verdict.unknown else ""
    assert expect["verdict"] == "nothing", record["id"]
    return ""


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record["id"])
def test_a_transcript_is_judged_as_an_expert_does(record: dict[str, Any], tmp_path: Path) -> None:
    assert problem(record, judge(record, tmp_path)) == ""


def test_each_record_is_another_and_has_its_source() -> None:
    assert [name for name, count in Counter(record["id"] for record in RECORDS).items() if count > 1] == []
    assert [record["id"] for record in RECORDS if not re.match(r"https://|public file \d", record["source"])] == []
    texts = Counter(f"{record['tool']} {record['text']} {record.get('beside')}" for record in RECORDS)
    assert [text for text, count in texts.items() if count > 1] == []
