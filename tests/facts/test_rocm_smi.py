"""Hosts where rocm-smi is installed and amd-smi is not: the same facts, and the same verdicts.

Sources: captures of MI100 (ROCm 6.0.2), MI50 and RX 6700 XT in plugins/inputs/amd_rocm_smi/testdata of
github.com/influxdata/telegraf (a6270b71, 87f0b84c, 5cd0333f); python_smi_tools/rocm_smi.py of
github.com/ROCm/rocm_smi_lib (a1295714) for access, modes and the forms of errors; the table of --showrasinfo also in
AMD-AGI/Primus (rocm_smi.py of its node check), MI50 without a name in the comments of ceems' collector.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from doctor.engine.fact import Absent, Fact, Output, Unreadable
from doctor.facts.accelerators import OtherAccelerators
from doctor.facts.amd_smi import ACCESS, ERRORS, IDENTITY, LINKS, MODES, QUERIES, AmdGpus
from tests.checks.run_check import messages, run_check, skipped
from tests.facts.answers import answered, read_outputs
from tests.facts.garbage import JSON

BUSES = ("0000:83:00.0", "0000:A3:00.0", "0000:C3:00.0", "0000:E3:00.0")
MI100 = {"Card series": "Arcturus GL-XL [Instinct MI100]", "Card model": "0x0c34", "Card SKU": "D3431401"}
MI50 = {"Card Series": "N/A", "Card Model": "0x66a1", "Card SKU": "D1631700", "Node ID": "3"}
RX = {"Card Series": "Navi 22 [Radeon RX 6700/6700 XT / 6800M]", "Card Model": "0x73df", "GFX Version": "gfx1031"}
BLOCKS = """\
GPU[{0}]: 	RAS INFO
         Block       Status    Correctable Error  Uncorrectable Error  
           UMC      ENABLED                 {1}                  {2}  
          SDMA      ENABLED                  0                    0  
           GFX      ENABLED                  0                    0  
         ATHUB     DISABLED  
_______________________________________________________________________
"""  # noqa: W291 -- as the tool prints it


def printed(
    card: dict[str, str] = MI100,
    number: int = 4,
    kind: str = "PCIE",
    errors: dict[int, int] | None = None,
    without: tuple[str, ...] = (),
    codes: dict[str, int] | None = None,
    **texts: str,
) -> Output:
    """What all queries print on one host; ``texts``: in place of a query's answer, by its name in this module."""
    pairs = [(one, other) for one in range(number) for other in range(one + 1, number)]
    cards: dict[str, Any] = {f"card{n}": {"PCI Bus": BUSES[n], **card} for n in range(number)}
    link, access = (
        "(Topology) Link type between DRM devices {} and {}",
        "(Topology) Link accessibility between DRM devices {} and {}",
    )
    answers = {
        IDENTITY: json.dumps({**cards, "system": {"Driver version": "6.3.6"}}),
        LINKS: json.dumps({"system": {link.format(*pair): kind for pair in pairs}}),
        ACCESS: json.dumps({"system": {access.format(*pair): "True" for pair in pairs}}),
        MODES: json.dumps(
            {f"card{n}": {"Compute Partition": "SPX", "Memory Partition": "NPS1"} for n in range(number)}
        ),
        ERRORS: "".join(BLOCKS.format(n, 12, (errors or {}).get(n, 0)) for n in range(number)),
    }
    answers.update({query: texts[name] for name, query in NAMES.items() if name in texts})
    return Output(
        out="".join(
            f"-- rocm-smi {query} --\n{answers[query]}\n-- exit {(codes or {}).get(query, 0)} --\n"
            for query in QUERIES
            if query not in without
        )
    )


NAMES = {"identity": IDENTITY, "links": LINKS, "access": ACCESS, "modes": MODES, "errors_text": ERRORS}


def read(output: Output) -> Fact | Absent | Unreadable:
    return read_outputs(AmdGpus, one=output)


def gpus(output: Output) -> AmdGpus:
    fact = read(output)
    assert isinstance(fact, AmdGpus), fact
    return fact


def test_four_mi100_of_a_real_host() -> None:
    amd = gpus(printed(modes=json.dumps({"card0": {}})))
    assert [gpu.bus for gpu in amd.gpus] == ["0000:83:00.0", "0000:a3:00.0", "0000:c3:00.0", "0000:e3:00.0"]
    assert {(gpu.name, gpu.driver, gpu.uncorrectable, gpu.compute_partition) for gpu in amd.gpus} == {
        ("Arcturus GL-XL [Instinct MI100]", "6.3.6", 0, "")
    }
    for check in ("amd-gpu-ecc-errors", "amd-gpu-link-lost"):
        outcome = run_check(check, {"w1": [amd]})
        assert not outcome.findings and not outcome.unknown


def test_errors_are_found_on_their_gpu_whatever_the_block() -> None:
    findings = run_check("amd-gpu-ecc-errors", {"w1": [gpus(printed(errors={2: 3}))]}).findings
    assert [(finding.values["gpu"], finding.values["observed"]) for finding in findings] == [(2, 3)]


@pytest.mark.parametrize("card", [MI100, MI50])
@pytest.mark.parametrize(
    "output",
    [
        {"without": (ERRORS,)},
        {"errors_text": "GPU[0]:\tRAS INFO\n  UMC  DISABLED  \n"},
        {"errors_text": BLOCKS.format(0, 0, 0).replace("UMC      ENABLED", "UMC  UNKNOWN ERROR")},
    ],
)
def test_an_accelerator_without_counts_is_never_healthy(card: dict[str, str], output: dict[str, Any]) -> None:
    outcome = run_check("amd-gpu-ecc-errors", {"w1": [gpus(printed(card, number=1, **output))]})
    assert not outcome.findings and "w1" in outcome.unknown


def test_a_desktop_gpu_has_no_counts() -> None:
    amd = gpus(printed(RX, number=1, without=(ERRORS, ACCESS, MODES), codes={IDENTITY: 2}))
    outcome = run_check("amd-gpu-ecc-errors", {"w1": [amd]})
    assert not outcome.findings and not outcome.unknown


def test_a_gpu_that_answers_nothing_is_unread() -> None:
    """rocm-smi prints what it could read, and ends with the status of the last failure."""
    lost = json.dumps({"card0": {"PCI Bus": BUSES[0], **MI100}, "card1": {"PCI Bus": BUSES[1]}, "system": {}})
    fact = gpus(printed(number=2, identity=lost, codes={IDENTITY: 2}))
    assert len(fact.gpus) == 1 and list(fact.unread) == ["GPU 1"]


def test_links_and_modes() -> None:
    mesh = gpus(printed(kind="XGMI"))
    assert [len(gpu.links) for gpu in mesh.gpus] == [3] * 4
    assert not run_check("amd-gpu-link-lost", {"w1": [mesh]}).findings
    lost = printed(kind="XGMI")
    lost = Output(out=lost.out.replace('devices 1 and 3": "XGMI"', 'devices 1 and 3": "PCIE"'))
    assert [text for _, text in messages(run_check("amd-gpu-link-lost", {"w1": [gpus(lost)]}))] == [
        "AMD GPU 1 has no XGMI link to GPU 3; the others reach each other over XGMI"
    ]
    barred = printed(kind="XGMI")
    barred = Output(out=barred.out.replace('devices 0 and 2": "True"', 'devices 0 and 2": "False"'))
    assert [text for _, text in messages(run_check("amd-gpu-link-lost", {"w1": [gpus(barred)]}))] == [
        "AMD GPU 0 cannot access GPU 2 over their XGMI link"
    ]
    other = gpus(Output(out=printed().out.replace('"SPX"', '"CPX"')))
    findings = run_check("amd-gpu-settings-differ", {"w1": [gpus(printed())], "w2": [gpus(printed())], "w3": [other]})
    assert [host for host, _ in messages(findings)] == ["w3"]


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        (printed(without=QUERIES), Unreadable),
        (printed(without=(IDENTITY,)), Unreadable),
        (printed(identity="ERROR:root:ROCm SMI returned 8 (the expected value is 0)", codes={IDENTITY: 8}), Unreadable),
        (printed(identity='{"system": {"Driver version": "6.3.6"}}'), Absent),
        (Output(ended="absent", err="amd-smi is not installed"), Absent),
    ],
)
def test_what_cannot_be_read(output: Output, kind: type[Exception]) -> None:
    assert isinstance(read(output), kind)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (printed(identity="hello\nworld"), f"rocm-smi {IDENTITY}: expected JSON of GPUs, found hello"),
        (printed(identity=""), f"rocm-smi {IDENTITY}: expected JSON of GPUs, found an empty answer"),
        (printed(identity="[1]"), f"rocm-smi {IDENTITY}: expected JSON of GPUs, found [1]"),
        (printed(identity="", codes={IDENTITY: 124}), f"rocm-smi {IDENTITY}: no answer in 15 s"),
        (printed(identity="broken", codes={IDENTITY: 2}), f"rocm-smi {IDENTITY}: exit status 2: broken"),
        (printed(identity='{"system": {}}'), "rocm-smi lists no GPU"),
    ],
)
def test_a_reason_names_the_tool_and_what_could_not_be_read(output: Output, reason: str) -> None:
    assert str(read(output)) == reason


def test_a_finding_names_the_tool_that_answered() -> None:
    few = read(printed(number=3))
    devices = [[bus.lower(), "1002", "738c", "1200", "amdgpu"] for bus in BUSES]
    on_bus = answered(OtherAccelerators, {"devices": devices, "files": []})
    ((_, text),) = messages(run_check("amd-gpu-missing", {"w1": [few, on_bus]}))
    assert text == "rocm-smi does not list the GPU at 0000:e3:00.0; expected 4 GPUs, as on the PCI bus"
    outcome = run_check("amd-gpu-link-lost", {"w1": [few]})
    assert skipped(outcome) == {"rocm-smi shows no links among four GPUs"}


@given(JSON)
@settings(max_examples=60, deadline=None)
def test_arbitrary_documents(value: object) -> None:
    text = json.dumps(value)
    assert isinstance(read(printed(identity=text, links=text, modes=text)), Fact | Absent | Unreadable)
