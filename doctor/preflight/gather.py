"""A preflight's look: where it runs, which hosts it is for, what they say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from doctor.engine.errors import InputError
from doctor.preflight.tiers import within

if TYPE_CHECKING:
    from doctor.engine.record import HostRecord
    from doctor.environment.context import Place, Scope
    from doctor.environment.inventory import Inventory
    from doctor.preflight.run import Preflight
    from doctor.session.examine import Examination


class NotReady(Exception):
    """Nothing can be judged: the platform has not said what the job has, or nobody what was found."""

    def __init__(self, text: str, word: str) -> None:
        super().__init__(text)
        self.word = word


def look(flight: Preflight) -> Examination | int:
    """Visits the hosts and judges them. An exit code, when another process of this host did so for all.

    Raises: CommandError, NotReady.
    """
    from doctor.environment.context import find, scope

    place = flight.place = find(flight.environ, _read_file)
    chosen = scope(place, flight.wanted.scope)
    if chosen != "follower" and place.table_waits:
        _wait_for_table(flight, place)
        place = flight.place = find(flight.environ, _read_file)
    flight.notes.append(f"started in: {place.words}")
    flight.notes += [f"contradiction: {one}" for one in place.conflicts]
    flight.notes += place.notes
    heard = _meet(flight, place, chosen)
    if heard is not None:
        return heard
    if chosen == "follower":  # it waited for another one, and leads now
        chosen = "local"
    if chosen == "local" and flight.wanted.scope == "auto" and flight.tier == "smoke":
        flight.tier = "standard"
        flight.notes.append("the smoke run is rank 0's, with all hosts; this process looks at its own host alone")
    _checks(flight)
    flight.inventory = _fleet(flight, place, chosen)
    return _examine(flight, flight.inventory)


def skips_all(environ: Mapping[str, str]) -> bool:
    """Whether DOCTOR_SKIP says ``all``; then nothing is even loaded that could go wrong."""
    from doctor.config.skips import BadSettings, skipped

    try:
        return skipped(environ, ()).all
    except BadSettings:  # names of checks
        return False


def _checks(flight: Preflight) -> None:
    """Loads the catalogue, and refuses settings that could not be followed. Raises: CommandError."""
    from doctor.cli.selection import catalogue, chosen
    from doctor.config.skips import skipped
    from doctor.session.policy import refuse_settings

    wanted = flight.wanted
    flight.known = catalogue(wanted.checks)
    refuse_settings(Path(wanted.config) if wanted.config else None, wanted.checks)
    names = [one.name for one in flight.known]
    flight.skipped = tuple(sorted(skipped(flight.environ, names).names))
    picked = chosen(flight.known, wanted.select, wanted.ignore, roots=True)
    flight.picked, flight.left_out = within(picked, flight.tier)
    if flight.left_out:
        flight.notes.append(f"not looked at in tier {flight.tier}: {', '.join(flight.left_out)}")
    if not flight.picked:
        raise InputError(f"--select, --ignore and --tier {flight.tier} leave no check to run")


def _fleet(flight: Preflight, place: Place, chosen: str) -> Inventory:
    """The hosts to look at: this one alone, or those that the words, else the launcher, name. Raises: CommandError."""
    from doctor.cli.host_options import inventory
    from doctor.environment import context as places
    from doctor.environment.inventory import Inventory, InventoryError, without

    wanted = flight.wanted.hosts
    if chosen == "local":
        return Inventory((own_name(flight.environ),), f"this host alone ({place.words})", local=True)
    if wanted.nodes or wanted.hosts or wanted.hostfile or wanted.rank_table:
        return inventory(wanted)
    try:
        named = places.inventory(place)
        if named:
            return without(named, wanted.exclude)
    except InventoryError as error:
        raise InputError(str(error)) from None
    fleet = inventory(wanted)
    return msgspec.structs.replace(fleet, hosts=(own_name(flight.environ),)) if fleet.local else fleet


def own_name(environ: Mapping[str, str]) -> str:
    """What this host is called in a report that lies beside those of others."""
    return environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0] or "localhost"


def _wait_for_table(flight: Preflight, place: Place) -> None:
    """Until it is complete there is nothing to judge. Raises: NotReady, when it never is."""
    from doctor.environment.context import wait_for_table
    from doctor.preflight.run import WAIT_FOR_TABLE

    flight.beat.doing = "waiting for the rank table to be completed"
    why = wait_for_table(place.rank_table, flight.began + flight.wanted.budget * WAIT_FOR_TABLE)
    if why:
        raise NotReady(why, "rank-table-not-complete")


def _examine(flight: Preflight, fleet: Inventory) -> Examination:
    from doctor.session.examine import examine
    from doctor.session.output_files import both, follow

    def keep(host: str, record: HostRecord) -> None:
        flight.records[host] = record

    names = [one.name for one in flight.picked]
    flight.events = follow(flight.asked, fleet.hosts, names, fleet.source, flight.wanted.redact)
    flight.beat.expect(len(fleet.hosts))
    table = flight.wanted.hosts.rank_table or (flight.place.rank_table if flight.place else "")
    return examine(
        fleet,
        flight.picked,
        flight.options(),
        flight.environ,
        rank_table=table,
        progress=both(keep, flight.beat.step, flight.events.host),
        stage=both(flight.beat.stage, flight.events.stage),
    )


def _meet(flight: Preflight, place: Place, chosen: Scope) -> int | None:
    """The code of the process that looks for all of this host's; None when that is this one."""
    import shlex
    import sys

    from doctor.preflight.host_leader import Verdict, join

    flight.beat.doing = "waiting for the process that looks for this host"
    met = join(place, chosen, flight.end - 1.0, environ=flight.environ, about=shlex.join(sys.argv[1:]))
    if isinstance(met, Verdict):
        if met.why:
            raise NotReady(met.why, "no-verdict")
        flight.beat.close()
        return met.code
    flight.party = met
    flight.notes += [met.note] if met.note else []
    return None


def _read_file(path: str) -> str:
    return Path(path).read_text("utf-8")
