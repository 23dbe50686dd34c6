"""What the vendors' own tools have found: the saved diagnosis of Ascend DMI, the health watches of NVIDIA's DCGM."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, Unreadable, ask, run

RESULT = "/var/log/ascend_check/environment_check_before.txt"
"""Where ``ascend-dmi --dg -fmt json`` of root saves its result."""
MAX_ITEMS = 64
MAX_CHARS = 200


def read_diagnosis(arguments: dict[str, Any]) -> dict[str, Any]:
    """Runs on the host: the saved result of the last diagnosis, and its age in seconds."""
    import os
    import time

    fd = os.open("/var/log/ascend_check/environment_check_before.txt", os.O_RDONLY | os.O_NONBLOCK)
    try:
        age = max(0.0, time.time() - os.fstat(fd).st_mtime)
        text = os.read(fd, 262144).decode("utf-8", "replace")
    finally:
        os.close(fd)
    return {"age": age, "text": text}


class DiagnosisGroup(msgspec.Struct, frozen=True):
    """One group of tests, such as Hardware."""

    name: str
    result: str
    """PASS, FAIL, WARN, SKIP, HEALTH ..."""
    failures: tuple[str, ...]
    """Sentences of the tool."""


class AscendDiagnosis(Fact, frozen=True):
    r"""The result of the last ``ascend-dmi --dg`` on the host whose result was saved.

    Raw output, as JSON, with the tool's own JSON in ``text``::

        {"age": 3600.0, "text": "{\"DiagnosisItems\": [{\"group_name\": \"Hardware\", \"group_results\": \"PASS\"}]}"}
    """

    probe = ask(read_diagnosis, requires=RESULT, root=True)

    age: float
    """Seconds."""
    groups: tuple[DiagnosisGroup, ...]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> AscendDiagnosis:
        if "" in answer and answer[""].ended == "absent":
            raise Absent("no result of ascend-dmi --dg is saved")
        data = answer.json()
        text = str(data.get("text", "")) if isinstance(data, dict) else ""
        begin, end = text.find("{"), text.rfind("}")
        try:
            items = json.loads(text[begin : end + 1])["DiagnosisItems"]
            groups = tuple(_group(item) for item in items[:MAX_ITEMS])
            return cls(age=float(data["age"]), groups=groups)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise Unreadable(f"{RESULT}: not a result of ascend-dmi") from None


def _group(item: dict[str, Any]) -> DiagnosisGroup:
    sentences: list[str] = []
    for sub in item.get("sub_items") or []:
        info = sub.get("item_info") or []
        sentences += [str(line)[:MAX_CHARS] for line in ([info] if isinstance(info, str) else info)]
    return DiagnosisGroup(str(item["group_name"])[:40], str(item["group_results"])[:40], tuple(sentences[:MAX_ITEMS]))


class DcgmHealth(Fact, frozen=True):
    """The health watches of DCGM, where its host engine runs and they are switched on.

    Raw output, from dcgmi::

        {"body": {"Overall Health": {"value": "Warning"}, "GPU": {"children": {"3": {"value": "Warning", "children":
         {"Errors": {"children": {"PCIe system": {"value": "Warning", "overflow": ["Detected 9 PCIe replays"]}}}}}}}},
         "header": ["Health Monitor Report"]}
    """

    probe = run("dcgmi health -g 0 -c -j", requires="dcgmi", timeout=20, limit=1 << 18)

    overall: str
    """Healthy, Warning or Failure."""
    problems: tuple[tuple[str, str, str], ...]
    """Device such as GPU 3, result, and system with the tool's words."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> DcgmHealth:
        output = answer.get("")
        printed = f"{output.out}\n{output.err}" if output else ""
        if output is not None and output.ended == "exited" and "{" not in output.out:
            if "not enabled" in printed or "unable to establish a connection" in printed.lower():
                raise Absent("DCGM runs no health watches here")
            raise Unreadable(f"dcgmi: {printed.strip().partition(chr(10))[0][:MAX_CHARS] or 'no answer'}")
        text = answer.text(codes=tuple(range(256)))
        try:
            body = json.loads(text[text.find("{") : text.rfind("}") + 1])["body"]
            return cls(overall=str(body["Overall Health"]["value"])[:40], problems=tuple(_problems(body))[:MAX_ITEMS])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise Unreadable("dcgmi: not a health report") from None


def _problems(body: dict[str, Any]) -> list[tuple[str, str, str]]:
    problems = []
    for kind, group in body.items():
        for number, entity in (group.get("children") or {}).items():
            systems = (entity.get("children") or {}).get("Errors", {}).get("children") or {}
            for system, state in systems.items():
                sentences = " ".join(str(line) for line in state.get("overflow") or [])
                problems.append(
                    (f"{kind} {number}"[:40], str(state.get("value"))[:40], f"{system}: {sentences}"[:MAX_CHARS])
                )
    return problems
