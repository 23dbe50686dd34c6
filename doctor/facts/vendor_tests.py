"""What the vendors' own tools have found: the saved diagnosis of Ascend DMI, the health watches of DCGM and gpud."""

from __future__ import annotations

import itertools
import json
import os
import re
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, Unreadable, ask, run
from doctor.engine.texts import beginning, filled
from doctor.facts.reported_value import require_no_complaint
from doctor.remote.runtime.reading import table_address, table_rows

RESULT = "/var/log/ascend_check/environment_check_before.txt"
"""Where ``ascend-dmi --dg -fmt json`` of root saves its result."""
MAX_ITEMS = 64
MAX_CHARS = 200
MAX_INCIDENTS = 512
"""Of DCGM: eight GPUs of 18 links each may report every link."""


def read_diagnosis(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: the saved result of the last diagnosis, and its age in seconds."""
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
            raise Unreadable(filled("{0}: not a result of ascend-dmi", RESULT)) from None


def _group(item: dict[str, Any]) -> DiagnosisGroup:
    sentences: list[str] = []
    for sub in item.get("sub_items") or []:
        info = sub.get("item_info") or []
        sentences += [beginning(str(line), MAX_CHARS) for line in ([info] if isinstance(info, str) else info)]
    return DiagnosisGroup(
        beginning(str(item["group_name"]), 40), beginning(str(item["group_results"]), 40), tuple(sentences[:MAX_ITEMS])
    )


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
    """Of each incident the device such as GPU 3, the result, and the system with the tool's words."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> DcgmHealth:
        try:
            body = _dcgmi_report(answer)["body"]
            overall = beginning(str(body["Overall Health"]["value"]), 40)
            problems = tuple(itertools.islice(_problems(body), MAX_INCIDENTS))
        except (KeyError, TypeError, AttributeError):
            raise Unreadable("dcgmi: not a health report") from None
        _require_success(answer, is_well=not problems and overall == "Healthy")
        return cls(overall=overall, problems=problems)


_NOT_HERE = r"not enabled|unable to establish a connection|unsupported gpu|no gpus? (?:found|to )"
"""What dcgmi says where its host engine does not run, no watch is on, or the GPUs are none that DCGM tests."""
_NOT_NOW = r"already running|in progress|permission|privilege|not permitted"
"""Where another diagnosis runs, or this user may start none."""


def _dcgmi_report(answer: ProbeAnswer, absent: str = _NOT_HERE) -> dict[str, Any]:
    """The JSON that dcgmi printed. Raises: Absent where it says ``absent`` instead, Unreadable for anything else."""
    output = answer.get("")
    printed = f"{output.out}\n{output.err}" if output else ""
    if output is not None and output.ended == "exited" and "{" not in output.out:
        if re.search(absent, printed, re.I):
            raise Absent("DCGM runs no such test here")
        raise Unreadable(filled("dcgmi: {0}", beginning(printed.strip().partition("\n")[0], MAX_CHARS) or "no answer"))
    text = answer.text(codes=tuple(range(256)))
    begin, end = text.find("{"), text.rfind("}")
    require_no_complaint("dcgmi", f"{text[:begin]}\n{text[end:]}\n{answer[''].err}")
    try:
        report = json.loads(text[begin : end + 1])
    except (ValueError, RecursionError):
        raise Unreadable("dcgmi: not JSON") from None
    if not isinstance(report, dict):
        raise Unreadable("dcgmi: not JSON")
    return report


def _require_success(answer: ProbeAnswer, is_well: bool) -> None:
    """Raises: Unreadable where dcgmi found nothing wrong, and failed: it exits with its findings' code, or with 0."""
    if is_well:
        answer.text()


_NEXT_INCIDENT = re.compile(r", (?=[A-Z])")
"""Between the sentences of several incidents of one system, which dcgmi joins before it breaks the text into lines."""


def _problems(body: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Each incident on its own: what is said of one of them is not said of those beside it."""
    for kind, group in body.items():
        for number, entity in (group.get("children") or {}).items():
            systems = (entity.get("children") or {}).get("Errors", {}).get("children") or {}
            for system, state in systems.items():
                for sentence in _NEXT_INCIDENT.split(" ".join(str(line) for line in state.get("overflow") or [])):
                    yield (
                        beginning(filled("{0} {1}", kind, number), 40),
                        beginning(str(state.get("value")), 40),
                        beginning(filled("{0}: {1}", system, sentence), MAX_CHARS),
                    )


class DcgmFailure(msgspec.Struct, frozen=True):
    """What one test of DCGM found wrong with one device."""

    test: str
    """Such as ``memory`` or ``Page Retirement/Row Remap``."""
    device: str
    """Such as GPU 3; empty where the test names none."""
    text: str
    severity: int | None = None
    """Of dcgm_errors.h, since DCGM 3.1: 2 isolate the GPU, 5 a setting of the host, 6 reset it."""


class DcgmDiagnosis(Fact, frozen=True):
    """The shortest diagnosis of DCGM (level 1, seconds, beside a running job), where its host engine runs.

    Raw output, from dcgmi (4.2.3; releases before 4 have "DCGM GPU Diagnostic", and ``gpu_ids`` in place of entities)::

        {"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [{"name": "software",
         "results": [{"entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "status": "Pass"}],
         "test_summary": {"status": "Pass"}}]}]},
         "metadata": {"Driver Version Detected": "580.82.09", "version": "4.2.3"}}
    """

    probe = run("dcgmi diag -r 1 -j", requires="dcgmi", timeout=30, limit=1 << 19)

    failures: tuple[DcgmFailure, ...]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> DcgmDiagnosis:
        report = _dcgmi_report(answer, f"{_NOT_HERE}|{_NOT_NOW}")
        body = report.get("DCGM Diagnostic") or report.get("DCGM GPU Diagnostic") or report
        try:
            tests = [test for part in body["test_categories"] for test in part["tests"] if test]
            results = [(str(test["name"]), result) for test in tests for result in _results(test)]
            if not results:
                raise Unreadable("dcgmi: no test in its diagnosis")
            failures = [failure for name, result in results for failure in _failures(name, result)]
            passed = {name for name, result in results if str(result.get("status")).lower() == "pass"}
            unread = {
                filled("DCGM's test {0}", beginning(f"{name}, {device}" if device else name, 60)): beginning(status, 60)
                for name, result in results
                for status, device in ((str(result.get("status")), _device(result)),)
                if status.lower() not in ("pass", "fail", "warn", *(() if name in passed and device else _SKIPPED))
            }
        except (KeyError, TypeError, AttributeError):
            raise Unreadable("dcgmi: not a diagnosis") from None
        _require_success(answer, is_well=not any(_is_failed(result) for _, result in results) and not unread)
        return cls(failures=tuple(failures[:MAX_INCIDENTS]), unread=unread)


def _results(test: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each device; a test that names none has a summary alone."""
    return [*test.get("results", ()), *([test["test_summary"]] if not test.get("results") else ())]


_SKIPPED = ("skip", "skipped")
"""Of all devices: the test is for other products. Where a device of the host passes it, it was not run on this one."""


def _device(result: dict[str, Any]) -> str:
    """Such as GPU 3; empty where the result names none."""
    number = result["entity_id"] if "entity_id" in result else result.get("gpu_ids")
    return beginning(filled("{0} {1}", result.get("entity_group", "GPU"), number), 40) if number is not None else ""


def _is_failed(result: dict[str, Any]) -> bool:
    return str(result.get("status")).lower() == "fail"


def _failures(name: str, result: dict[str, Any]) -> Iterator[DcgmFailure]:
    """Each warning on its own; before DCGM 3.1 it is a text."""
    if _is_failed(result):
        device = _device(result)
        for warning in result.get("warnings") or [filled("no reason")]:
            reported = warning if isinstance(warning, dict) else {"warning": warning}
            severity = reported.get("error_severity")
            text = beginning(str(reported.get("warning")), MAX_CHARS)
            yield DcgmFailure(beginning(name, 60), device, text, severity if isinstance(severity, int) else None)


GPUD_FOLDER = "/var/lib/gpud"
_NO_ACTION = "IGNORE_NO_ACTION_REQUIRED"


def read_gpud(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: what gpud answers on its port, where the listener is root's."""
    import http.client

    port, names = 15132, ("/proc/net/tcp", "/proc/net/tcp6")
    listening = [row for name in names for row in table_rows(name) or () if row[3] == "0A"]
    if {row[7] for row in listening if table_address(row[1])[1] == port} != {"0"}:
        return {"running": False}
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False  # gpud signs its own certificate; that the listener is root's was read above
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection("localhost", port, timeout=4, context=context)
    try:
        connection.request("GET", "/v1/states")
        answer = connection.getresponse()
        return {"running": True, "status": answer.status, "text": answer.read(1048576).decode("utf-8", "replace")}
    except (OSError, http.client.HTTPException) as error:
        return {"running": True, "status": 0, "text": str(error)}
    finally:
        connection.close()


class GpudState(msgspec.Struct, frozen=True):
    """One component that gpud does not find healthy."""

    component: str
    """Such as ``accelerator-nvidia-error-xid``."""
    health: str
    """Unhealthy or Degraded."""
    reason: str
    actions: tuple[str, ...] = ()
    """What gpud proposes, such as REBOOT_SYSTEM, HARDWARE_INSPECTION, CHECK_USER_APP_AND_GPU."""


class GpudStates(Fact, frozen=True):
    r"""The components that gpud, the GPU monitor of Lepton AI, does not find healthy, where it runs.

    Raw output, as JSON, with gpud's own JSON in ``text``::

        {"running": true, "status": 200, "text": "[{\"component\": \"os\", \"states\": [{\"health\": \"Degraded\"}]}]"}

    Source: leptonai/gpud, docs/INTEGRATION.md and issue 1072.
    """

    probe = ask(read_gpud, requires=GPUD_FOLDER, timeout=8)

    problems: tuple[GpudState, ...]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> GpudStates:
        if "" in answer and answer[""].ended == "absent":
            raise Absent("gpud is not installed")
        data = answer.json()
        if not isinstance(data, dict) or not data.get("running"):
            raise Absent("gpud does not run here, or not as root")
        if data.get("status") != 200:
            raise Unreadable(beginning(filled("gpud: {0}", data.get("text") or data.get("status")), MAX_CHARS))
        try:
            components = json.loads(str(data.get("text", "")))
            states = [(entry, state) for entry in components for state in entry.get("states") or []]
            problems = [_gpud_state(str(entry["component"]), state) for entry, state in states if not _is_well(state)]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise Unreadable("gpud: not a list of states") from None
        return cls(problems=tuple(problems[:MAX_ITEMS]))


def _is_well(state: dict[str, object]) -> bool:
    """Releases before 0.5 have ``healthy`` in place of ``health``; a state of neither is none of ours to judge."""
    if _actions(state) == (_NO_ACTION,):
        return True
    if "health" in state:
        return state["health"] not in ("Unhealthy", "Degraded")
    return state.get("healthy") is not False


def _actions(state: dict[str, Any]) -> tuple[str, ...]:
    actions = (state.get("suggested_actions") or {}).get("repair_actions") or ()
    return tuple(beginning(str(action), 40) for action in actions[:8])


def _gpud_state(component: str, state: dict[str, object]) -> GpudState:
    health = beginning(str(state.get("health") or "Unhealthy"), 40)
    return GpudState(
        beginning(component, 80), health, beginning(str(state.get("reason") or "no reason"), MAX_CHARS), _actions(state)
    )
