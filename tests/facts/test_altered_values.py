"""Each value that a tool prints, replaced by what says nothing: no check that needs it may then be green.

Needed is a value that, where it reads otherwise, makes a check find something. The outputs are those of a test host
with emulated NPUs, and the examples in the docstrings of all facts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pytest

from doctor.engine.catalog import load_checks
from doctor.engine.check import Check
from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.fact import Absent, Fact, Output
from doctor.engine.record import HostRecord
from doctor.facts.gpu import GpuInventory
from doctor.job import LaunchConfig
from tests.attack.hostile import record
from tests.facts.test_docstrings import collected_facts, examples
from tests.facts.test_rdma_modules import OSFP
from tests.hosts.gpu import DRIVER, GPU, GPUS, REPORT_HEAD

READABLE = (
    "0",
    "1",
    "7",
    "99999",
    "-40.0",
    "Alarm",
    "NOK",
    "DOWN",
    "Yes",
    "No",
    "Pending",
    "Reset",
    "Disabled",
    "NODE",
)
UNREADABLE = ("Unknown Error", "ERR!", "[GPU requires reset]", "#?strange?#")
EMPTY = ""
ABSENT = "N/A"
"""Of one device where others of its host and product have the value."""
VALUE = re.compile(
    r'(?m)^[^\n:=<"|]{1,60}[:=][ \t]*(?P<row>[^\n]+?)[ \t]*$'
    r'|>(?P<element>[^<>\n]+)<|"[\w .-]{1,60}": *"?(?P<leaf>[^",{}\[\]\n]+)|(?<=\|) *(?P<cell>[^|\n]+?) *(?=\|)'
)
MOST = 24
"""Values of one output; of more, some that lie evenly apart."""
ALLOWED = {
    # What stays green where it is empty, and why: the fact and a word of the row.
    ("AmdGpus", "market_name"): "a product that has no name in the tool's table",
    ("AmdGpus", "version"): "a driver that has none, as one that is built with the kernel",
    ("ControlGroup", "max"): "older kernels have none of these files",
    ("RdmaPorts", "firmware"): "software adapters (rxe, siw) have none",
    ("NpuTable", "|"): "a cell that the product has not",
}
WITHOUT_FAULT = {("NpuHccs", "first error lane"): "no lane had an error"}
"""What N/A tells of a sound device: the fact and a word of the row."""


def spans(text: str) -> list[tuple[int, int]]:
    """Where values are."""
    values = [match.span(match.lastgroup or 0) for match in VALUE.finditer(text)]
    return values[:: max(1, len(values) // MOST)]


@cache
def checks_of(fact: type[Fact]) -> list[Check]:
    return [check for check in load_checks() if fact in check.facts and check.area != "smoke"]


class OneAltered(FactCache):
    """Three hosts that answer alike, but for one output of the first."""

    def __init__(self, base: FactCache, host: HostRecord, name: str) -> None:
        super().__init__({"w1": host, "w2": base.records["w2"], "w3": base.records["w2"]})
        self.base, self.name = base, name

    def get(self, host: str, fact: type[Fact]) -> Fact | Absent:
        return super().get(host, fact) if (host, fact.output_name()) == ("w1", self.name) else self.base.get("w2", fact)


def is_green(check: Check, facts: FactCache) -> bool | None:
    """Whether the check passes for the first of the hosts; None where it finds something there."""
    intent = {LaunchConfig: LaunchConfig.from_environment({})}
    outcome = evaluate_check(check, ("w1", "w2", "w3"), facts, intent)
    assert not outcome.crashed, outcome.crashed
    if any("w1" in finding.hosts or not finding.hosts for finding in outcome.findings):
        return None
    return not {"w1", ""} & outcome.unknown.keys()


def green_though_unread(base: FactCache, fact: type[Fact]) -> Iterator[str]:
    """Each check, the row and the value in it, and what stands there."""
    host, name = base.records["w1"], fact.output_name()
    key, output = next(iter(host.outputs[name].items()))

    def with_text(text: str) -> FactCache:
        outputs = {**host.outputs, name: {**host.outputs[name], key: msgspec.structs.replace(output, out=text)}}
        return OneAltered(base, msgspec.structs.replace(host, outputs=outputs), name)

    passing = [check for check in checks_of(fact) if is_green(check, base)]
    for begin, end in spans(output.out) if passing else ():
        before, after = output.out[:begin], output.out[end:]
        row = before.rpartition("\n")[2][-60:] + after.partition("\n")[0][:20]
        others = [with_text(before + value + after) for value in READABLE]
        needing = [check for check in passing if any(is_green(check, other) is None for other in others)]
        is_one_of_many = name == GpuInventory.output_name() or host is record()
        for value in (*UNREADABLE, EMPTY, *((ABSENT,) if is_one_of_many else ())) if needing else ():
            facts = with_text(before + value + after)
            for check in needing:
                words = ALLOWED if value == EMPTY else WITHOUT_FAULT if value == ABSENT else {}
                allowed = any(fact.__name__ == reader and word in row for reader, word in words)
                if not allowed and is_green(check, facts):
                    yield f"{check.name}: {row} with {value!r}"


WELL = {
    # By fact, what the example in its docstring says of an ill device, and a sound one in its place.
    "DcgmHealth": [(r'"Warning"\}, "GPU".*\}\},', '"Healthy"}},')],
    "FabricManager": [(r"535\.129\.03", DRIVER)],
    "GpudStates": [("Degraded", "Healthy")],
    "IommuDomains": [("DMA-FQ", "identity")],
    "NicRings": [("9120", "0")],
    "NpuSwitchFaults": [(r'\n  "switch .*"\]', "]")],
    "PortCounters": [("num:9", "num:7")],
}
LINKS = "".join(f"\t Link {link}: 26.562 GB/s\n" for link in range(2))
LINK_ERRORS = "".join(f"\t Link 0: {kind} Errors: 0\n" for kind in ("Replay", "Recovery", "CRC"))


@cache
def with_examples() -> HostRecord:
    """A host whose tools print the examples of the facts that read them; its GPUs and cables are test hosts'."""
    outputs = {fact.output_name(): examples(fact) for fact in READERS}
    for name, changes in WELL.items():
        for ill, sound in changes:
            outputs[name] = {
                key: msgspec.structs.replace(output, out=re.sub(ill, sound, output.out, flags=re.S))
                for key, output in outputs[name].items()
            }
    report = REPORT_HEAD + "".join(GPU.format(number=number) for number in range(GPUS)) + "</nvidia_smi_log>\n"
    cards = {
        "pci": GPUS,
        "driver": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {DRIVER}",
        "tool": True,
        "redirecting": [],
    }
    module = f"-- mlx5_0 --{OSFP}-- exit 0 --\n"
    texts = {"GpuInventory": report, "GpuCards": json.dumps(cards), "RdmaModules": module}
    for name, rows in (("NvLinks", LINKS), ("NvLinkErrors", LINK_ERRORS)):
        texts[name] = "".join(f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu})\n{rows}" for gpu in range(GPUS))
    outputs |= {name: {"": Output(out=text)} for name, text in texts.items()}
    return msgspec.structs.replace(record(), outputs=outputs)


READERS = [fact for fact in collected_facts() if fact.probe.kind in ("run", "ask", "read") and checks_of(fact)]
NO_TOOL = {"JobContainer"}
"""Variables that a user has set: visible-devices-wrong judges them."""


@pytest.mark.parametrize(
    "fact", [fact for fact in READERS if fact.__name__ not in NO_TOOL], ids=lambda fact: fact.__name__
)
def test_a_value_that_says_nothing_leaves_no_check_green(fact: type[Fact]) -> None:
    for host in (record(), with_examples()):
        if host.outputs.get(fact.output_name()):
            base = FactCache(dict.fromkeys(("w1", "w2", "w3"), host))
            assert not list(green_though_unread(base, fact))


NOT_TRIED = {
    "amd-gpu-link-lost": "the example has one GPU, without links",
    "gpu-topology-differs": "one cell that differs contradicts its mirror, and the table is unread",
    "device-ip-conflict": "three hosts that answer alike have one address",
    "gpu-license-missing": "GPUs of the host itself need none",
    "hccn-conf-differs": "the example of the file is of other addresses",
    "rank-table-address-differs": "there is no rank table",
    "switch-port-shared": "three hosts that answer alike have one port",
    "torch-cuda-too-new": "there is no torch",
    "vnic-link-down": "the example is of a port of another product",
}
"""Checks that read a tool, and pass on none of the hosts here."""


@pytest.mark.parametrize("fact", [fact for fact in READERS if fact.probe.kind == "run"], ids=lambda fact: fact.__name__)
def test_each_check_that_reads_a_tool_is_tried(fact: type[Fact]) -> None:
    """On a host that is ill already no altered value shows anything: one of the two must be well."""
    bases = [FactCache(dict.fromkeys(("w1", "w2", "w3"), host)) for host in (record(), with_examples())]
    needing = [check for check in checks_of(fact) if is_needed(check, fact) and check.name not in NOT_TRIED]
    assert [check.name for check in needing if not any(passed(check, base) for base in bases)] == []


FAILED_ANSWERS: dict[str, dict[str, Any]] = {
    "no answer in time": {"ended": "timeout"},
    "could not be read": {"ended": "error", "out": "", "err": "Input/output error"},
    "cut in the middle": {"cut": True},
    "killed": {"code": -9},
    "ended with a failure": {"code": 1},
    "there is no such tool": {"ended": "absent", "out": ""},
}
MAY_FAIL = {
    # What stays green, and why: the fact and words of its finding here.
    ("Conntrack", "nf_conntrack_buckets"): "for the fix alone: the table may grow to four times as many",
    ("GpuInventory", "killed"): "the report is complete, and gpu-tool-fails shows the status",
    ("GpuInventory", "ended with a failure"): "the same",
    ("GpuInventory", "no answer in time"): "the same",
    ("NvidiaSmi", "killed"): "the report is complete, and gpu-tool-fails shows the status",
    ("NvidiaSmi", "ended with a failure"): "the same",
}


def passed(check: Check, facts: FactCache) -> bool:
    """Whether the check looked at the first of the hosts, and it is well."""
    outcome = evaluate_check(check, ("w1", "w2", "w3"), facts, {LaunchConfig: LaunchConfig.from_environment({})})
    assert not outcome.crashed, outcome.crashed
    about = {"w1", ""} & (outcome.unknown.keys() | outcome.skipped.keys())
    return not about and not any("w1" in finding.hosts for finding in outcome.findings)


def is_needed(check: Check, fact: type[Fact]) -> bool:
    return any(need.type is fact and not need.optional for need in check.needs)


@pytest.mark.parametrize(
    "fact", [fact for fact in READERS if fact.__name__ not in NO_TOOL], ids=lambda fact: fact.__name__
)
def test_an_answer_that_failed_leaves_no_check_green(fact: type[Fact]) -> None:
    """Each output of a fact in its turn, as the collector brings it where a tool hangs, dies or fails at its end."""
    green = []
    for host in (record(), with_examples()):
        name = fact.output_name()
        base = FactCache(dict.fromkeys(("w1", "w2", "w3"), host))
        outputs = host.outputs.get(name, {})
        checks = [check for check in checks_of(fact) if is_needed(check, fact) and passed(check, base)]
        for key, output in list(outputs.items())[:MOST] if checks else ():
            for what, change in FAILED_ANSWERS.items():
                if fact.probe.kind != "run" and ("code" in change or change.get("ended") == "absent"):
                    continue  # files and questions have no exit status, and need not be there
                altered = msgspec.structs.replace(output, **change)
                facts = OneAltered(
                    base,
                    msgspec.structs.replace(host, outputs={**host.outputs, name: {**outputs, key: altered}}),
                    name,
                )
                green += [f"{check.name}: {key} {what}" for check in checks if passed(check, facts)]
    allowed = [words for name, words in MAY_FAIL if name == fact.__name__]
    assert not [line for line in green if not any(words in line for words in allowed)]


FOREIGN = (
    "Error: query of device 1 failed, ret is -7",
    "[ERROR] 2026-11-27 08:00:00 device 1: operation failed",
    "WARNING: device at slot 3 is not responding",
)
MAY_STAND = {
    # What stays green although the value is another one, and why: the fact and words of the alteration.
    ("EthernetCounters", "behind counters: 2"): "behind the number of its rows",
    ("TlsSwitches", "cut at line 1,"): "an NPU without a certificate",
    ("Neighbours", "cut at line 0"): "the tool prints nothing where no neighbour is",
    ("Neighbours", "empty"): "the same",
    ("NpuFrequencies", "cut in line 14"): "its last row, which no check needs",
    ("NpuTable", "| 0000:42:00.0"): "behind the last NPU",
    ("NpuTable", "| 0000:9D:00.0"): "the same",
    ("NpuTable", "running processes"): "of the list of processes, which npu-busy alone needs",
    ("NpuTable", "Process id"): "the same",
    ("NpuTable", "twice"): "the same table again",
    ("NvLinks", "cut at line 2"): "one GPU alone: how many links it has is not known from it",
    ("GpuInventory", "line"): "gpu-tool-fails reports it",
    ("NvidiaSmi", "line"): "gpu-tool-fails reports it",
    ("NvidiaSmi", "zero bytes"): "GpuInventory is unread",
    ("NvidiaSmi", "twice"): "gpu-tool-fails reports it",
    ("Optics", "RxPower Low Thres"): "rows behind the last limit",
    ("Optics", "Bias"): "the same",
    ("Optics", "Flag"): "the same",
    ("Optics", "SNR"): "the same",
    **dict.fromkeys(
        (("RdmaModules", word) for word in ("Temp", "Volt", "Bias", "Power", "Identifier")), "rows behind the first"
    ),
}


def altered(text: str) -> Iterator[tuple[str, str]]:
    """The text cut at every line, in a block as well, with a line or bytes that are no answer, empty, and twice."""
    lines = text.splitlines(keepends=True)
    for place in range(len(lines)):
        before = next((line.strip() for line in reversed(lines[:place]) if line.strip(" \t\n+-=")), "")
        if place <= 40 or place % 10 == 0:
            yield f"cut at line {place}, behind {before}", "".join(lines[:place])
    for begin in [match.end() for match in re.finditer(r"(?m)^-- (?!exit)[^\n]+ --\n", text)][:1]:
        end = text.find("-- exit", begin)
        body = text[begin:end].splitlines(keepends=True) if end > 0 else []
        for place in range(len(body)):
            before = "".join(body[:place]).strip().rpartition("\n")[2]
            yield f"cut in line {place}, behind {before}", text[:begin] + "".join(body[:place]) + text[end:]
    for line in FOREIGN:
        for place in (0, len(lines) // 2, len(lines)):
            yield f"{line!r} at line {place}", "".join((*lines[:place], line + "\n", *lines[place:]))
    yield "zero bytes", text[: len(text) // 2] + "\0" * 16 + text[len(text) // 2 :]
    yield "only zero bytes", "\0" * 64
    yield "empty", ""
    yield "twice", text + text


@pytest.mark.parametrize(
    "fact",
    [fact for fact in READERS if fact.probe.kind == "run" and fact.__name__ not in NO_TOOL],
    ids=lambda fact: fact.__name__,
)
def test_an_output_that_is_cut_or_has_more_than_an_answer_leaves_no_check_green(fact: type[Fact]) -> None:
    """The tool ended well each time."""
    green = []
    for host in (record(), with_examples()):
        name = fact.output_name()
        base = FactCache(dict.fromkeys(("w1", "w2", "w3"), host))
        outputs = host.outputs.get(name, {})
        checks = [check for check in checks_of(fact) if is_needed(check, fact) and passed(check, base)]
        for key, output in list(outputs.items())[:1] if checks else ():
            for what, text in altered(output.out):
                changed = {**host.outputs, name: {**outputs, key: msgspec.structs.replace(output, out=text)}}
                facts = OneAltered(base, msgspec.structs.replace(host, outputs=changed), name)
                if facts.get("w1", fact) != base.get("w2", fact) or not what.startswith(("cut", "twice")):
                    green += [f"{check.name}: {what}" for check in checks if passed(check, facts)]
            windows = msgspec.structs.replace(output, out=output.out.replace("\n", "\r\n"))
            comma = msgspec.structs.replace(output, out=re.sub(r"(\d)\.(\d)", r"\1,\2", output.out))
            for other in (windows, comma):  # read or not, but no traceback
                changed = {**host.outputs, name: {**outputs, key: other}}
                facts = OneAltered(base, msgspec.structs.replace(host, outputs=changed), name)
                assert all(passed(check, facts) in (True, False) for check in checks)
    allowed = [words for name, words in MAY_STAND if name == fact.__name__]
    assert not [line for line in green if not any(words in line for words in allowed)]
