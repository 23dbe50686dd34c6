"""What amd-gpu-link-lost finds in `amd-smi topology --json`, in the form of AMD's change log (ROCm 6.3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from doctor.engine.fact import Output
from doctor.facts.amd_smi import AmdGpus
from tests.checks.run_check import messages, run_check, skipped
from tests.facts.answers import read_outputs
from tests.facts.test_amd_smi import printed


def topology(count: int, kinds: dict[tuple[int, int], tuple[str, str]], default: str = "XGMI") -> list[Any]:
    """Rows as AMD's program prints them; ``kinds``: type and status of pairs that are not as all others."""

    def link(one: int, other: int) -> dict[str, Any]:
        kind, status = kinds.get((min(one, other), max(one, other)), (default, "ENABLED"))
        row = {"gpu": other, "bdf": f"0000:{other}5:00.0", "weight": 15, "link_status": status, "link_type": kind}
        return {**row, "link_type": "SELF"} if one == other else row

    return [
        {"gpu": one, "bdf": f"0000:{one}5:00.0", "links": [link(one, other) for other in range(count)]}
        for one in range(count)
    ]


def amd(document: object, count: int = 8, code: int = 0) -> AmdGpus:
    listed = [{"gpu": n, "bdf": f"0000:{n}5:00.0", "partition_id": 0} for n in range(count)]
    text = json.dumps(document, indent=4) if not isinstance(document, str) else document
    before = printed(listed=listed).out
    query = "topology --access --link-type"
    fact = read_outputs(AmdGpus, one=Output(out=f"{before}-- {query} --\n{text}\n-- exit {code} --\n"))
    assert isinstance(fact, AmdGpus), fact
    return fact


def found(document: object, count: int = 8) -> list[str]:
    return [text for _, text in messages(run_check("amd-gpu-link-lost", {"w1": [amd(document, count)]}))]


LOST = ("PCIE", "ENABLED")


@pytest.mark.parametrize(
    ("count", "kinds", "default"),
    [
        (8, {}, "XGMI"),
        (8, {}, "PCIE"),
        (4, {(0, 1): ("XGMI", "ENABLED"), (2, 3): ("XGMI", "ENABLED")}, "PCIE"),
        (8, {(a, b): LOST for a in range(4) for b in range(4, 8)}, "XGMI"),
    ],
)
def test_sound_hosts(count: int, kinds: dict[tuple[int, int], tuple[str, str]], default: str) -> None:
    assert found(topology(count, kinds, default), count) == []


@pytest.mark.parametrize(
    ("kinds", "text"),
    [
        ({(3, n): LOST for n in range(4, 8)} | {(n, 3): LOST for n in range(3)}, "AMD GPU 3 has no XGMI link to GPU 0"),
        ({(2, 5): LOST}, "AMD GPU 2 has no XGMI link to GPU 5"),
        ({(2, 5): LOST, (5, 6): LOST}, "AMD GPU 5 has no XGMI link to GPU 2"),
        ({(0, 7): ("XGMI", "DISABLED")}, "AMD GPU 0 cannot access GPU 7"),
    ],
)
def test_a_link_that_is_lost_or_barred(kinds: dict[tuple[int, int], tuple[str, str]], text: str) -> None:
    (message,) = found(topology(8, kinds))
    assert message.startswith(text)


@pytest.mark.parametrize("shown", [("N/A", "ENABLED"), ("XGMI", "N/A"), ("XGMI", "PENDING"), ("", "")])
def test_a_link_that_the_tool_does_not_tell_among_others_is_unknown(shown: tuple[str, str]) -> None:
    outcome = run_check("amd-gpu-link-lost", {"w1": [amd(topology(8, {(2, 5): shown}))]})
    assert not outcome.findings
    assert outcome.unknown["w1"].text == "amd-smi: no link type and status of GPU 2 to GPU 5"
    rows = topology(8, {})
    rows[7]["links"] = rows[7]["links"][7:]  # the other ways stand in the other rows
    for link in (link for row in rows for link in row["links"]):  # a release without the column of --access
        del link["link_status"]
    assert found(rows) == []


@pytest.mark.parametrize(
    "document", ["", "usage: amd-smi [-h]", [{"gpu": 0, "weight": {"gpu_0": 0, "gpu_1": 40}}], "[1]"]
)
def test_without_rows_of_links_it_does_not_apply_and_the_rest_is_read(document: object) -> None:
    fact = amd(document)
    assert len(fact.gpus) == 8
    assert skipped(run_check("amd-gpu-link-lost", {"w1": [fact]}))


def test_two_gpus_without_links_are_two_findings() -> None:
    barred = {(a, b): ("XGMI", "DISABLED") for a in range(8) for b in range(a + 1, 8) if {a, b} & {3, 6}}
    assert [text.split(" cannot")[0] for text in found(topology(8, barred))] == ["AMD GPU 3", "AMD GPU 6"]
