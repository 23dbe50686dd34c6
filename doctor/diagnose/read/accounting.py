"""Saved output of Slurm: of sacct a table, ``--parsable`` text with any columns, or JSON; of scontrol show job.

There is one event for each row. A row becomes the text ``JOB|STATE|EXIT|NODES|``, as `doctor.diagnose.job.slurm` asks
sacct for it, and so matches the signatures of these. Sources: sacct(1), "--format", "--parsable2", "--json"; output of
Slurm 22.05 (v0.0.38), and the lists of states of later versions (slurm.schedmd.com/rest_api.html, "v0.0.40_job").
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from doctor.diagnose.events import MAX_TEXT, Event
from doctor.diagnose.read.matcher import Matcher
from doctor.engine.sanitize import strip_control_chars

MAX_BYTES = 8 << 20
"""Bytes of a saved output; of a larger one, only rows of the default columns are read."""
MAX_ROWS = 4000
"""Rows of one output, the last."""
_HEAD = re.compile(r"[A-Za-z0-9/_%|, ]{9,4000}")
"""Of the names of columns, among which `JobID` and `State` are."""
_CONTROLLER_HEAD = re.compile(
    r"JobId=(?P<job>\d{1,10})(?: ArrayJobId=(?P<parent>\d{1,10}) ArrayTaskId=(?P<task>\d{1,7}))? .*JobName="
)
_SHOWN_STATE = re.compile(r" JobState=([A-Z_]{4,20})(?= |$)")
_SHOWN_NODES = re.compile(r" NodeList=(\S{1,2000})")
_JOB = re.compile(r"\d{1,10}(?:[_+]\d{1,7})?(?:\.\w{1,30}(?:\+\d{1,7})?)?")
_NODES = re.compile(r"[\w.-][\w.,\[\]-]{0,1999}")
_STATE = re.compile(r"[A-Z_]{4,20}(?: by \d{1,10})?")
_JSON_STATE = re.compile(r'"(?:current|state|job_state)"\s{0,40}:\s{0,40}\[?\s{0,40}"([A-Z_]{4,20})"')
_FULL_STATES = {"OUT_OF_ME+": "OUT_OF_MEMORY", "CANCELLED+": "CANCELLED"}
"""What a column of sacct's default width, 10, leaves of a state."""


class _Row(NamedTuple):
    line: int
    job: str
    state: str
    exit: str
    nodes: str


def is_accounting(head: bytes) -> bool:
    """Whether a file that begins like this is saved output of sacct."""
    text = head[:8192].decode("utf-8", "replace").lstrip()
    if text.startswith("{"):
        return b'"derived_exit_code"' in head and b'"job_id"' in head
    first = text.partition("\n")[0]
    return bool(_column_names(first) or _CONTROLLER_HEAD.match(first))


def read_rows(data: bytes, matcher: Matcher, file: int = 0) -> list[Event]:
    """The rows that match a signature, in order. What is not complete JSON has none."""
    text = data.decode("utf-8", "replace")
    lines = text.split("\n")
    is_json = text.lstrip().startswith("{")
    rows = list(_json_rows(text)) if is_json else [*_table_rows(lines), *_shown_rows(lines)]
    return [event for row in rows[-MAX_ROWS:] for event in _events(row, lines, matcher, file)]


def _events(row: _Row, lines: Sequence[str], matcher: Matcher, file: int) -> Iterator[Event]:
    text = f"{row.job}|{row.state}|{row.exit}|{row.nodes}|"
    excerpt = strip_control_chars(lines[row.line - 1].strip("\r"), MAX_TEXT)
    for signature, pattern in matcher.candidates(text.encode()):
        match = pattern.regex.match(text)
        if match:
            values = {name: value for name, value in match.groupdict().items() if value is not None}
            yield Event(signature.id, file, row.line, excerpt, values)
            return


def _table_rows(lines: Sequence[str]) -> Iterator[_Row]:
    names: list[str] = []
    separator = ""
    spans: list[tuple[int, int]] = []
    for number, line in enumerate(lines, 1):
        if _column_names(line):
            names, separator, spans = _column_names(line), _separator(line), []
            continue
        if not separator and not spans:
            spans = [match.span() for match in re.finditer("-+", line)] if set(line.strip()) == {"-", " "} else []
            continue
        cells = line.split(separator) if separator else [line[start:end].strip() for start, end in spans]
        fields = dict(zip(names, cells, strict=False))
        row = _row(number, fields)
        if row:
            yield row


def _shown_rows(lines: Sequence[str]) -> Iterator[_Row]:
    """Of ``scontrol show job``, on several lines for each job, or with ``--oneliner`` on one."""
    job, rows = "", dict[str, _Row]()
    for number, line in enumerate(lines, 1):
        head = _CONTROLLER_HEAD.match(line)
        if head:
            job = f"{head['parent']}_{head['task']}" if head["task"] else head["job"]
            line = line.rpartition(" UserId=")[2] if " UserId=" in line else ""
        elif not line.startswith("   "):
            job = ""
        state = _SHOWN_STATE.search(line) if job else None
        if state and _STATE.fullmatch(state[1]):
            rows[job] = _Row(number, job, state[1], "0:0", "")
        nodes = _SHOWN_NODES.search(line) if job else None
        if nodes and job in rows and _NODES.fullmatch(nodes[1]) and nodes[1] != "(null)":
            rows[job] = rows[job]._replace(nodes=nodes[1])
    yield from rows.values()


def _separator(line: str) -> str:
    return next((letter for letter in "|," if letter in line), "")


def _column_names(line: str) -> list[str]:
    """Empty where the line is not the head of a table of sacct."""
    if not _HEAD.fullmatch(line.rstrip("\r")):
        return []
    names = line.strip().split(_separator(line) or None)
    return names if "State" in names and ("JobID" in names or "JobIDRaw" in names) else []


def _row(line: int, fields: dict[str, str]) -> _Row | None:
    job = fields.get("JobID") or fields.get("JobIDRaw", "")
    state = _FULL_STATES.get(fields.get("State", ""), fields.get("State", ""))
    if not _JOB.fullmatch(job) or not _STATE.fullmatch(state):
        return None
    exit_code, nodes = fields.get("ExitCode", ""), fields.get("NodeList", "")
    if not nodes and "." in job:
        nodes = fields.get("MaxRSSNode", "") if state == "OUT_OF_MEMORY" and fields.get("NTasks", "") == "1" else ""
    return _Row(line, job, state, exit_code or "0:0", nodes if _NODES.fullmatch(nodes) else "")


def _json_rows(text: str) -> Iterator[_Row]:
    """The jobs and steps of the document; a state's line is rows by counting states, which keep their order."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return
    jobs = document.get("jobs") if isinstance(document, dict) else None
    rows = [row for job in jobs if isinstance(job, dict) for row in _job_rows(job)] if isinstance(jobs, list) else []
    starts = list(_JSON_STATE.finditer(text))
    line, end = 1, 0
    for index, row in enumerate(rows):
        if len(starts) == len(rows):
            at = starts[index].start(1)
            line, end = line + text.count("\n", end, at), at
        yield row._replace(line=line)


def _job_rows(job: dict[str, Any]) -> Iterator[_Row]:
    number = _number(job.get("job_id"))
    array = job.get("array") if isinstance(job.get("array"), dict) else {}
    task, parent = _number((array or {}).get("task_id")), _number((array or {}).get("job_id"))
    name = f"{parent}_{task}" if parent and task is not None else str(number)
    for key, value in job.items():
        if key in ("state", "job_state"):
            yield _json_row(name, value, job, job.get("nodes"))
        elif key == "steps" and isinstance(value, list):
            for step in value:
                if isinstance(step, dict) and "state" in step:
                    identity, nodes = step.get("step"), step.get("nodes")
                    label = identity.get("id") if isinstance(identity, dict) else None
                    label = label.get("step_id") if isinstance(label, dict) else label
                    suffix = str(label).rpartition(".")[2]
                    places = nodes.get("range") if isinstance(nodes, dict) else None
                    yield _json_row(f"{name}.{suffix}", step["state"], step, places)


def _json_row(name: str, state: object, item: dict[str, object], nodes: object) -> _Row:
    if isinstance(state, dict):
        state = state.get("current")
    if isinstance(state, list):
        state = next(iter(state), "")
    fields = {"JobID": name, "State": str(state), "ExitCode": _exit_code(item), "NodeList": str(nodes or "")}
    return _row(1, fields) or _Row(1, "0", "PENDING", "0:0", "")


def _exit_code(item: dict[str, object]) -> str:
    code = item.get("exit_code")
    if not isinstance(code, dict):
        return "0:0"
    signal = code.get("signal")
    number = _number(signal.get("signal_id", signal.get("id"))) if isinstance(signal, dict) else None
    return f"{_number(code.get('return_code')) or 0}:{number or 0}"


def _number(value: object) -> int | None:
    """A number, also as ``{"set": true, "number": 7}``."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") is not False else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40 else None
