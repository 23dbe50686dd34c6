"""Data of a preflight: job context, hosts, and their records."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from doctor.engine.errors import InputError
from doctor.preflight.tiers import checks_of_tier

if TYPE_CHECKING:
    from doctor.engine.record import HostRecord
    from doctor.environment.inventory import Inventory
    from doctor.environment.job_context import JobContext
    from doctor.environment.scope import Scope
    from doctor.preflight.run import Preflight
    from doctor.session.examine import Examination


class NotReady(Exception):
    """Nothing can be evaluated: the platform has not described the job yet, or no result arrived."""

    def __init__(self, text: str, cause: str) -> None:
        super().__init__(text)
        self.cause = cause


def examine_or_follow(flight: Preflight) -> Examination | int:
    """Visits the hosts and judges them. An exit code, when another process of this host did so for all.

    Raises: CommandError, NotReady.
    """
    from doctor.environment.job_context import detect
    from doctor.environment.scope import choose_scope

    context = flight.context = detect(flight.environ)
    chosen = choose_scope(context, flight.preflight_options.scope)
    if chosen != "follower" and context.rank_table_pending:
        _wait_for_table(flight, context)
        context = flight.context = detect(flight.environ)
    flight.notes.append(f"started in: {context.description}")
    flight.notes += [f"contradiction: {conflict}" for conflict in context.conflicts]
    flight.notes += context.notes
    leader_exit_code = _follow_leader(flight, context, chosen)
    if leader_exit_code is not None:
        return leader_exit_code
    if chosen == "follower":  # it waited for another one, and leads now
        chosen = "local"
    if chosen == "local" and flight.preflight_options.scope == "auto" and flight.tier == "smoke":
        flight.tier = "standard"
        flight.notes.append("rank 0 runs the smoke run on all hosts; this process checks only its own host")
    _checks(flight)
    flight.inventory = _fleet(flight, context, chosen)
    return _examine(flight, flight.inventory)


def skips_all(environ: Mapping[str, str]) -> bool:
    """Whether DOCTOR_SKIP says ``all``; then no module is loaded that could fail."""
    from doctor.config.skips import ConfigError, read_skips

    try:
        return read_skips(environ, ()).all
    except ConfigError:  # names of checks
        return False


def _checks(flight: Preflight) -> None:
    """Loads the catalogue, and refuses settings that could not be followed. Raises: CommandError."""
    from doctor.cli.selection import choose_checks, load_catalog
    from doctor.config.skips import read_skips
    from doctor.session.policy import validate_settings

    options = flight.preflight_options
    flight.catalog = load_catalog(options.checks)
    validate_settings(Path(options.config) if options.config else None, options.checks)
    names = [check.name for check in flight.catalog]
    flight.skipped = tuple(sorted(read_skips(flight.environ, names).names))
    selected = choose_checks(flight.catalog, options.select, options.ignore, roots=True)
    flight.selected_checks, flight.excluded_checks = checks_of_tier(selected, flight.tier)
    if flight.excluded_checks:
        flight.notes.append(f"not checked in tier {flight.tier}: {', '.join(flight.excluded_checks)}")
    if not flight.selected_checks:
        raise InputError(f"--select, --ignore and --tier {flight.tier} leave no check to run")


def _fleet(flight: Preflight, context: JobContext, chosen: str) -> Inventory:
    """The hosts to check: this one, or those of the command line, else of the launcher. Raises: CommandError."""
    from doctor.cli.host_options import inventory
    from doctor.environment.inventory import Inventory, InventoryError, without

    host_options = flight.preflight_options.hosts
    if chosen == "local":
        return Inventory((local_host_name(flight.environ),), f"this host alone ({context.description})", local=True)
    if host_options.nodes or host_options.hosts or host_options.hostfile or host_options.rank_table:
        return inventory(host_options)
    try:
        named = context.inventory()
        if named:
            return without(named, host_options.exclude)
    except InventoryError as error:
        raise InputError(str(error)) from None
    fleet = inventory(host_options)
    return msgspec.structs.replace(fleet, hosts=(local_host_name(flight.environ),)) if fleet.local else fleet


def local_host_name(environ: Mapping[str, str]) -> str:
    """This host's name in its report."""
    from doctor.environment.schedulers import scheduler_host_name

    return scheduler_host_name(environ) or os.uname().nodename.partition(".")[0] or "localhost"


def _wait_for_table(flight: Preflight, context: JobContext) -> None:
    """Until it is complete there is nothing to judge. Raises: NotReady, when it never is."""
    from doctor.environment.mounted_rank_table import wait_for_table
    from doctor.preflight.run import TABLE_WAIT_SHARE

    flight.heartbeat.activity = "waiting for the rank table to be completed"
    why = wait_for_table(
        context.rank_table_path, flight.start_time + flight.preflight_options.budget * TABLE_WAIT_SHARE
    )
    if why:
        raise NotReady(why, "rank-table-not-complete")


def _examine(flight: Preflight, fleet: Inventory) -> Examination:
    from doctor.session.examine import examine
    from doctor.session.output_files import combine_callbacks, open_event_streams

    def keep(host: str, record: HostRecord) -> None:
        flight.records[host] = record

    names = [check.name for check in flight.selected_checks]
    flight.events = open_event_streams(
        flight.format_targets, fleet.hosts, names, fleet.source, flight.preflight_options.redact
    )
    flight.heartbeat.expect(len(fleet.hosts))
    table = flight.preflight_options.hosts.rank_table or (flight.context.rank_table_path if flight.context else "")
    return examine(
        fleet,
        flight.selected_checks,
        flight.examine_options(),
        flight.environ,
        rank_table=table,
        progress=combine_callbacks(keep, flight.heartbeat.step, flight.events.host),
        stage=combine_callbacks(flight.heartbeat.stage, flight.events.stage),
    )


def _follow_leader(flight: Preflight, context: JobContext, chosen: Scope) -> int | None:
    """The exit code of this host's leader; None if this process is the leader."""
    import shlex
    import sys

    from doctor.preflight.host_leader import LeaderVerdict, join

    flight.heartbeat.activity = "waiting for the process that checks this host"
    leader_or_verdict = join(context, chosen, flight.end - 1.0, environ=flight.environ, about=shlex.join(sys.argv[1:]))
    if isinstance(leader_or_verdict, LeaderVerdict):
        if leader_or_verdict.reason:
            raise NotReady(leader_or_verdict.reason, "no-verdict")
        flight.heartbeat.close()
        return leader_or_verdict.code
    flight.leader = leader_or_verdict
    flight.notes += [leader_or_verdict.note] if leader_or_verdict.note else []
    return None
