"""A job of Ray: its hosts, and its logs, from the dashboard's HTTP API.

Sources: Ray, "Ray Jobs REST API" (``/api/jobs/ID``, ``/api/jobs/ID/logs``; the fields of a job: ``JobDetails``), "State
API" (``/api/v0/nodes``, ``actors`` and ``tasks``; parameters and answer: ``StateApiClient`` in
python/ray/util/state/api.py), "Ray token authentication" (``RAY_AUTH_TOKEN``), and "Log Files in Ray logging
directory" (``job-driver-ID.log``, ``worker-WORKER-JOB-PID.out`` and ``.err``).
"""

from __future__ import annotations

import ipaddress
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from typing import Any

import msgspec

from doctor.diagnose.job import JobPlace
from doctor.engine.errors import InputError
from doctor.engine.http_answer import http_answer
from doctor.engine.sanitize import printable, strip_control_chars
from doctor.engine.texts import filled
from doctor.environment.host_list import RunCommand

PORT = 8265
"""Of the dashboard, where the address has none."""
SECONDS = 15.0
"""For one answer."""
MAX_BYTES = 32 << 20
"""Of one answer; the end of a longer log is lost, and a note says so."""
LIMIT = 10_000
"""Most nodes, actors and tasks that the state API gives."""
MAX_PIDS = 512
"""Actors whose logs are looked for by their process ids."""
LOG_FOLDER = "/tmp/ray/session_latest/logs"
_ID = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_ADDRESS = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<host>[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:]{2,45}\])(?::(?P<port>\d{1,5}))?"
)
_RUNS = ("PENDING", "RUNNING")
_NO_JOB = "ffffffff"  # of a worker that Ray had started before any job asked for it (seen: 2.60)


class _Driver(msgspec.Struct):
    id: str = ""
    node_ip_address: str = ""
    pid: str = ""


class _Job(msgspec.Struct):
    status: str = ""
    job_id: str | None = None
    submission_id: str | None = None
    message: str | None = None
    error_type: str | None = None
    entrypoint: str | None = None
    driver_info: _Driver | None = None
    driver_exit_code: int | None = None

    @property
    def internal_id(self) -> str:
        """By which the state API and the files of logs know it; empty before it has a driver."""
        return (self.driver_info.id if self.driver_info else "") or self.job_id or ""


class _Logs(msgspec.Struct):
    logs: str = ""


class _Entry(msgspec.Struct):
    """A node, an actor or a task."""

    node_id: str | None = None
    node_ip: str | None = None
    state: str = ""
    pid: int | None = None


class _Listing(msgspec.Struct):
    result: list[_Entry] = []


class _Listed(msgspec.Struct):
    result: _Listing = msgspec.field(default_factory=_Listing)


class _State(msgspec.Struct):
    """An answer of the state API."""

    data: _Listed = msgspec.field(default_factory=_Listed)


class _NotThere(Exception):
    """One line."""


def read_ray(name: str, _run: RunCommand) -> JobPlace:
    """Raises: ValueError for another form; InputError for a job that the dashboard does not know."""
    address, slash, number = name.rpartition("/")
    match = _ADDRESS.fullmatch(address)
    if not slash or match is None or not _ID.fullmatch(number) or int(match["port"] or PORT) > 65535:
        raise ValueError(name)
    base = f"{match['scheme'] or 'http'}://{match['host']}:{match['port'] or PORT}"
    try:
        job = _ask(f"{base}/api/jobs/{number}", _Job)
    except _NotThere as error:
        raise InputError(
            filled("--job ray:{0}/{1}: {2}; expected Ray's dashboard and a job of it", address, number, error)
        ) from None
    place = JobPlace(title=filled("Ray job {0}", number), number=number, state=printable(job.status, 40), shared=False)
    place.ended = job.status not in _RUNS
    place.variables = {"RAY_JOB_ID": [job.internal_id, _NO_JOB]} if job.internal_id else {}
    # on one line
    place.texts[" ".join(("ray job status", number))] = strip_control_chars(msgspec.json.encode(job), 8000) + "\n"
    _add_logs(place, base, job)
    _add_hosts(place, base, job)
    return place


def _add_hosts(place: JobPlace, base: str, job: _Job) -> None:
    """The hosts of its actors and running tasks, of the driver first; all of the cluster where these are not known."""
    driver = job.driver_info.node_ip_address if job.driver_info else ""
    _add_host(place, driver)
    identity = job.internal_id
    query = urllib.parse.urlencode(
        {"limit": LIMIT, "filter_keys": "job_id", "filter_predicates": "=", "filter_values": identity}
    )
    try:
        nodes = _ask(f"{base}/api/v0/nodes?limit={LIMIT}", _State).data.result.result
        actors = _ask(f"{base}/api/v0/actors?{query}", _State).data.result.result if identity else []
        tasks = _ask(f"{base}/api/v0/tasks?{query}", _State).data.result.result if identity else []
    except _NotThere as error:
        place.notes.append(filled("the hosts of its processes are not known: {0}", error))
        return
    # A worker that Ray had started beforehand has no job in its file's name.
    pids = sorted({actor.pid for actor in actors if actor.pid})[:MAX_PIDS]
    place.outputs += [f"{LOG_FOLDER}/worker-*-{pid}.{end}" for pid in pids for end in ("out", "err")]
    used = {actor.node_id for actor in actors if place.ended or actor.state == "ALIVE"}
    used |= {task.node_id for task in tasks if place.ended or task.state.startswith("RUNNING")}
    here = [node for node in nodes if node.node_id in used]
    if not here and not driver:
        here = [node for node in nodes if node.state == "ALIVE"]
        place.notes.append("Ray does not say on which hosts the job runs: doctor checks all of the cluster")
    for node in here:
        _add_host(place, node.node_ip or "")
    if place.ended and (dead := [node for node in here if node.state == "DEAD"]):
        names = ", ".join(printable(node.node_ip or "", 60) for node in dead[:8])
        place.notes.append(filled("Ray calls these nodes of the job dead: {0}", names))


def _add_host(place: JobPlace, address: str) -> None:
    try:
        host = str(ipaddress.ip_address(address))
    except ValueError:
        return
    if host not in place.hosts:
        place.hosts.append(host)


def _add_logs(place: JobPlace, base: str, job: _Job) -> None:
    try:
        place.logs[" ".join(("ray job logs", place.number))] = _ask(f"{base}/api/jobs/{place.number}/logs", _Logs).logs
    except _NotThere as error:
        place.notes.append(filled("the driver's log is not known to the dashboard: {0}", error))
    place.outputs.append(f"{LOG_FOLDER}/job-driver-{place.number}.log")
    if re.fullmatch(r"[0-9a-f]{8}", job.internal_id):
        place.outputs += [f"{LOG_FOLDER}/worker-*-{job.internal_id}-*.{end}" for end in ("out", "err")]


def _ask(url: str, kind: type[Any]) -> Any:
    """The JSON at a URL as ``kind``. Raises: _NotThere."""
    headers = {"Accept": "application/json"}
    if token := os.environ.get("RAY_AUTH_TOKEN", ""):
        headers["Authorization"] = "Bearer " + token
    try:
        data = http_answer(urllib.request.Request(url, headers=headers), SECONDS, MAX_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise _NotThere(filled("HTTP status {0}", error.code)) from None
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise _NotThere(strip_control_chars(str(getattr(reason, "strerror", "") or reason), 120)) from None
    if len(data) > MAX_BYTES:
        raise _NotThere(filled("more than {0} MiB", MAX_BYTES >> 20))
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError):
        raise _NotThere("the answer is not that of Ray's dashboard") from None
