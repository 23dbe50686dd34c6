"""The attempts before the last one of a job, and the jobs before it in the same file: why each of them ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from doctor.diagnose.attempts import AttemptEnd, attempt_number, ends_in
from doctor.diagnose.decide import diagnose
from doctor.diagnose.diagnosis import MAX_EVIDENCE, Cause, Diagnosis, EarlierAttempt
from doctor.diagnose.events import FileReading
from doctor.diagnose.rules.deciding_lines import DECIDING_LINE
from doctor.diagnose.signature import Signature
from doctor.engine.texts import filled

MAX_ATTEMPTS = 20
"""Attempts that are diagnosed, the newest."""
CONNECTS = ("gloo-connect-full-mesh", "nccl-connect-timeout")
"""What ranks print that connect to each other, and get no answer."""
Catalog = Mapping[str, Signature]


def with_earlier_attempts(
    diagnosis: Diagnosis, readings: Sequence[FileReading], catalog: Catalog, unread: Sequence[str] = ()
) -> Diagnosis:
    """The diagnosis of a job with what its logs show of earlier attempts, the newest first.

    Attempts are counted from the last: a file that shows fewer of them shows the newest.
    """
    folders = {number for reading in readings if (number := attempt_number(reading.summary.name)) is not None}
    newest_folder = max(folders, default=0)
    ends = [ends_in(reading.events, catalog, restarted=len(folders) > 1) for reading in readings]
    count = max([len(of_file) for of_file in ends] + [newest_folder - min(folders, default=0)], default=0)
    attempts = []
    later = diagnosis
    for back in range(1, min(count, MAX_ATTEMPTS) + 1):
        parts = [_part(reading, of_file, back) for reading, of_file in zip(readings, ends, strict=True)]
        chosen = [
            part
            for part, reading in zip(parts, readings, strict=True)
            if part and attempt_number(reading.summary.name) in (None, newest_folder - back)
        ]
        if not chosen:
            continue
        cause = diagnose(chosen, catalog, unread)
        is_job = any(len(of_file) >= back and of_file[-back].is_job for of_file in ends)
        attempts.append(EarlierAttempt(cause, is_job, _is_same(cause, later)))
        later = cause if is_job else later
    if not attempts:
        return diagnosis
    return msgspec.structs.replace(_restart_named(diagnosis, attempts[0]), attempts=tuple(attempts))


def _restart_named(diagnosis: Diagnosis, before: EarlierAttempt) -> Diagnosis:
    """A restart whose ranks connect to no peer, although the attempt before it had connected, has its cause there.

    From torch 2.6 on, the ranks of a restart read the addresses of the failed attempt in the store that torchrun keeps:
    see the check ``launch-restart-shares-store``. An attempt that could not connect either speaks for the network.
    """
    earlier = before.diagnosis
    refused = [
        waiting.first
        for waiting in diagnosis.waiting
        if waiting.signature in CONNECTS and "Connection refused" in waiting.first.text
    ]
    connected = not any(waiting.signature in CONNECTS for waiting in earlier.waiting) and not any(
        cause.signature in CONNECTS for cause in earlier.causes
    )
    stronger = any(cause.rule != DECIDING_LINE for cause in diagnosis.causes)
    if stronger or before.is_job or not refused or not earlier.causes or not connected:
        return diagnosis
    first = earlier.causes[0].summary
    summary = filled(
        "{0}; torchrun started the ranks again, and they connect to addresses of the failed attempt", first
    )
    evidence = tuple(refused[:MAX_EVIDENCE])
    cause = Cause("torch-restart-shares-store", "restart", "likely", (), summary, evidence)
    return msgspec.structs.replace(diagnosis, causes=(cause,), undecidable=None)


def _part(reading: FileReading, ends: Sequence[AttemptEnd], back: int) -> FileReading | None:
    """What a file shows of the attempt that is ``back`` before its last one; None where it shows nothing of it."""
    if attempt_number(reading.summary.name) is not None:
        return reading
    if len(ends) < back:
        return None
    last = ends[-back].line
    first = ends[-back - 1].line if len(ends) > back else 0
    events = [event for event in reading.events if first < event.line <= last]
    summary = msgspec.structs.replace(reading.summary, first_line=first + 1, last_line=last)
    return FileReading(summary, events)


def _is_same(earlier: Diagnosis, later: Diagnosis) -> bool:
    """The same causes on the same ranks; where no rank is known, on the same hosts and devices."""
    return bool(earlier.causes) and [_key(cause) for cause in earlier.causes] == [_key(c) for c in later.causes]


def _key(cause: Cause) -> tuple[str, list[object]]:
    places: list[object] = [(c.host, c.device) if c.rank is None else c.rank for c in cause.culprits]
    return cause.signature, places
