"""Earlier runs that a run can be compared with: files of ``--save``, and those of the history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from doctor.engine.errors import InputError
from doctor.engine.texts import filled
from doctor.history.baseline import EarlierRun
from doctor.history.kept_values import UnusableValues, decode_values
from doctor.history.run_record import RunRecord
from doctor.history.run_store import NoHistory, open_history
from doctor.report.diff.values import RunValues

MAX_RUNS = 500
"""Kept runs that are looked through."""


def earlier_runs(environ: Mapping[str, str], until: str = "") -> Iterator[EarlierRun]:
    """The kept runs, the newest first; ``until``: none that started later (UTC, ISO 8601). Raises: InputError."""
    try:
        with open_history(environ, create=False) as folder:
            for record in folder.newest(MAX_RUNS):
                if not until or record.started <= until:
                    yield _earlier(record)
    except NoHistory as error:
        if str(error):
            raise InputError(str(error)) from None
    except OSError as error:
        raise InputError(filled("the history cannot be read: {0}", error.strerror)) from None


def _earlier(record: RunRecord) -> EarlierRun:
    def values() -> RunValues | None:
        if not record.values:
            return None
        try:
            return decode_values(record.values, record.started, record.command, record.verdict)
        except UnusableValues:
            return None

    return EarlierRun(record.command, record.verdict, frozenset(record.names[: record.host_count]), values, record.code)
