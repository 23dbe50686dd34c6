"""`doctor history`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Annotated

import typer

from doctor.diagnose.fetch.collect import parse_since
from doctor.engine.errors import InputError, UsageError, did_you_mean
from doctor.engine.language import localized, phrase
from doctor.engine.sanitize import quote
from doctor.engine.streams import write_stdout
from doctor.engine.texts import filled
from doctor.engine.utc_time import utc_text
from doctor.history.render_history import render, render_json
from doctor.history.run_record import RunRecord, recorded_names
from doctor.history.run_store import NoHistory, open_history
from doctor.history.tracks import HistoryPage, history_page
from doctor.hosts.nodeset import InventoryError, expand_nodeset
from doctor.report.layout.formatting import count_noun
from doctor.report.layout.terminal import terminal_columns
from doctor.session.run_history import machine_name

DEFAULT_RUNS = 50


def command(
    name: Annotated[
        str, typer.Argument(metavar="[HOST|CHECK]", help="Only these hosts (a node set), or only this check.")
    ] = "",
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Only runs since 30m, 2h, 7d ago, or a UTC time: 2026-11-21T14:02.")
    ] = "",
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="The newest runs, at most this many.")] = (
        DEFAULT_RUNS
    ),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Show what came, went and flapped over the runs of this user.

    Every run of check, net, smoke and preflight is kept, unless --no-history, DOCTOR_HISTORY=off or doctor.toml says
    otherwise. A host or check that a run did not look at is not looked at, never gone.

    Exit codes: 0 shown, also where no run is saved yet, 2 usage, 78 no run knows the host or check, or unreadable.
    """
    start = parse_start(since, datetime.now(timezone.utc)) if since else ""
    records, damaged = _read(limit, start)

    if not records:
        text = phrase("no run is saved since {time}", time=since) if since else localized("no run is saved yet")
        unread = phrase("; {files} could not be read", files=count_noun(damaged, "file")) if damaged else ""
        return write_stdout(render_json(HistoryPage((), (), (), damaged)) if as_json else f"{text}{unread}")
    hosts, check = _subject(name, records)
    page = history_page(records, hosts=hosts, check=check, damaged=damaged)
    return write_stdout(render_json(page) if as_json else render(page, terminal_columns(), name))


def parse_start(text: str, now: datetime) -> str:
    """The start of ``--since`` in UTC, ISO 8601. Raises: UsageError.

    >>> parse_start("2h", datetime(2026, 11, 21, 14, 0, tzinfo=timezone.utc))
    '2026-11-21T12:00:00Z'
    """
    try:
        moment = datetime.fromisoformat(text.removesuffix("Z"))
        moment = moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        try:
            seconds = parse_since(text)
            moment = now - timedelta(seconds=seconds) if seconds else datetime(1970, 1, 1, tzinfo=timezone.utc)
        except UsageError:
            raise UsageError(
                filled(
                    "--since {0}: expected a time such as 30m, 2h or 7d, or 2026-11-21 or 2026-11-21T14:02 in UTC",
                    f"{text!r}",
                )
            ) from None
        except OverflowError:
            moment = datetime(1970, 1, 1, tzinfo=timezone.utc)
    return utc_text(moment)


def _read(limit: int, start: str) -> tuple[list[RunRecord], int]:
    """The runs, oldest first, and how many files were damaged. Raises: InputError."""
    try:
        with open_history(os.environ, create=False) as folder:
            records = [record for record in folder.newest(limit) if record.started >= start]
            return records[::-1], folder.damaged
    except NoHistory as error:
        if str(error):
            raise InputError(str(error)) from None
        return [], 0
    except OSError as error:
        raise InputError(filled("the history cannot be read: {0}", error.strerror)) from None


def _subject(name: str, records: Sequence[RunRecord]) -> tuple[tuple[str, ...], str]:
    """The hosts or the check that ``name`` means. Raises: InputError for a name that no run knows."""
    if not name:
        return (), ""
    checks = {check for record in records for group in record.groups for check in group.checks}
    if name in checks:
        return (), name

    recorded = {host for record in records for host in record.names}
    try:
        hosts = tuple(recorded_names(expand_nodeset(name, "HOST"), machine_name()).values())
    except InventoryError as error:
        raise UsageError(str(error)) from None
    unknown = [host for host in hosts if host not in recorded]
    if name in recorded:
        return (name,), ""
    if unknown:
        hint = did_you_mean(unknown[0], {*recorded, *checks})
        raise InputError(
            filled("{0}: neither a host nor a check of the {1} runs{2}", quote(unknown[0]), len(records), hint)
        )
    return hosts, ""
