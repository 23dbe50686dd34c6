"""Raw outputs of the hosts: the saved run, and the fixture of tests."""

from __future__ import annotations

from typing import Any

import msgspec

from doctor.engine.fact import Output, Visit
from doctor.engine.job_input import LaunchOptions, ProbeInputs, SavedRankTable
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.secrets import HIDDEN, hide_in_output, is_secret_name
from doctor.engine.texts import filled

SCHEMA = "doctor.run/2"
"""A change of `Run`, or of what is in it, gets a new number: `tests.test_saved_run` holds the form of this one."""
EARLIER_SCHEMA = "doctor.run/1"
"""Still read; fields that have gone since are dropped, and named in a note."""
MAX_RUN_BYTES = 1 << 30
"""Bytes of a saved run. 10,000 hosts with eight NPUs each need about half of it."""


class HostRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All raw outputs of one host."""

    visit: Visit
    outputs: dict[str, dict[str, Output]] = {}
    """By fact name, then by path, device number, or the empty string."""


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The records of all hosts, with everything needed to evaluate them again later."""

    schema: str
    source: str
    started: str
    seconds: float
    hosts: dict[str, HostRecord]
    probe_inputs: ProbeInputs = ProbeInputs()
    """Inputs of the probes on the hosts."""
    launch: LaunchOptions = LaunchOptions()
    """The job's settings, from which `doctor.job.LaunchConfig` is made."""
    rank_table: SavedRankTable = SavedRankTable()
    """The rank table that was checked, or why it could not be read."""
    notes: tuple[str, ...] = ()
    version: str = ""
    smoke: dict[str, Any] = {}
    """`doctor.smoke.model.SmokeRun` as builtins with keys of text, or the reason in ``not_started``; empty when no
    smoke run was requested. `doctor.session.saved_run.load` checks it."""
    checks: tuple[str, ...] = ()
    """The checks that it was made for; empty if unknown."""
    hosts_unknown: str = ""
    """Why the job may have more hosts than these; empty where it has not."""
    training: dict[str, Any] = {}
    """`doctor.job.training.TrainingLaunch` as builtins; empty when no launch line or configuration was given."""
    watch: dict[str, Any] = {}
    """`doctor.engine.watch_summary.WatchResult` as builtins with keys of text; empty when no program was watched."""


def redact_run(run: Run) -> Run:
    """The run with every output, message and table redacted, for writing to disk."""
    clean = msgspec.to_builtins(run)
    return msgspec.convert(_redact_value(clean), Run)


def _redact_value(value: Any) -> Any:
    if isinstance(value, str):
        return hide_in_output(value)
    if isinstance(value, dict):
        return {
            key: HIDDEN if isinstance(item, str) and item and is_secret_name(key) else _redact_value(item)
            for key, item in value.items()
        }
    return [_redact_value(item) for item in value] if isinstance(value, (list, tuple)) else value


class BadRun(Exception):
    """A saved run that cannot be read: what, where, what was expected."""


def load_run(data: bytes, name: str) -> Run:
    """A saved run of this form or the one before. Raises: BadRun."""
    try:
        try:
            run = msgspec.json.decode(data, type=Run)
        except msgspec.ValidationError:
            run = _load_earlier(data)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeError, RecursionError) as error:
        raise BadRun(filled("{0}: not a saved run: {1}", name, strip_control_chars(str(error), 300))) from None
    if run.schema not in (SCHEMA, EARLIER_SCHEMA):
        raise BadRun(
            filled("{0}: schema {1}, expected {2}", name, f"{strip_control_chars(run.schema, 60)!r}", f"{SCHEMA!r}")
        )
    return msgspec.structs.replace(run, schema=SCHEMA)


def _load_earlier(data: bytes) -> Run:
    """A run of `EARLIER_SCHEMA` without the fields that are not known any more; a note names them.

    Raises: msgspec.ValidationError, also for what is wrong in a run of today's form.
    """
    saved = msgspec.json.decode(data)
    if not isinstance(saved, dict) or saved.get("schema") != EARLIER_SCHEMA:
        return msgspec.json.decode(data, type=Run)
    hosts = saved.get("hosts")
    parts: list[tuple[str, Any, type[msgspec.Struct]]] = [("", saved, Run)]
    parts += [(f"{key}.", saved.get(key), kind) for key, kind in _PARTS.items()]
    parts += [("hosts.", record, HostRecord) for record in (hosts.values() if isinstance(hosts, dict) else ())]
    dropped = {f"{place}{field}" for place, part, kind in parts for field in _drop_unknown(part, kind)}
    run = msgspec.convert(saved, Run)
    if not dropped:
        return run
    names = strip_control_chars(", ".join(sorted(dropped)), 200)
    note = filled("the run was saved in an earlier form, {0}: {1} cannot be read any more", EARLIER_SCHEMA, names)
    return msgspec.structs.replace(run, notes=(*run.notes, note))


_PARTS: dict[str, type[msgspec.Struct]] = {
    "launch": LaunchOptions,
    "probe_inputs": ProbeInputs,
    "rank_table": SavedRankTable,
}


def _drop_unknown(part: object, kind: type[msgspec.Struct]) -> list[str]:
    """Removes the fields that the struct does not have. Returns their names."""
    unknown = [name for name in part if name not in kind.__struct_encode_fields__] if isinstance(part, dict) else []
    for name in unknown:
        part.pop(name)  # type: ignore[attr-defined]
    return unknown
