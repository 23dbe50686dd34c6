"""A preflight's look: where it runs, which hosts it is for, what they say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from doctor.cli import Refused
from doctor.preflight.tiers import within

if TYPE_CHECKING:
    from doctor.examine import Examination
    from doctor.inventory import Inventory
    from doctor.preflight.place import Place
    from doctor.preflight.run import Preflight


def look(flight: Preflight) -> Examination | int:
    """Visits the hosts and judges them. An exit code, when another process of this host did so for all.

    Raises: Refused.
    """
    from doctor.preflight.place import find, scope

    flight.place = place = find(flight.environ, _read_file)
    flight.notes.append(f"started in: {place.words}")
    flight.notes += [f"contradiction: {one}" for one in place.conflicts]
    chosen = scope(place, flight.wanted.scope)
    _checks(flight)
    if chosen == "follower":
        return _follow(flight, place)
    flight.inventory = _fleet(flight, place, chosen)
    if chosen == "cluster":
        _wait_for_table(flight, place)
    return _examine(flight, flight.inventory)


def skips_all(environ: Mapping[str, str]) -> bool:
    """Whether DOCTOR_SKIP says ``all``; then nothing is even loaded that could go wrong."""
    from doctor.skips import BadSettings, skipped

    try:
        return skipped(environ, ()).all
    except BadSettings:  # names of checks
        return False


def _checks(flight: Preflight) -> None:
    """Loads the catalogue, and refuses settings that could not be followed. Raises: Refused."""
    from doctor.commands.chosen import catalogue, chosen
    from doctor.commands.waived import refuse_settings
    from doctor.skips import skipped

    wanted = flight.wanted
    flight.known = catalogue(wanted.checks)
    refuse_settings(Path(wanted.config) if wanted.config else None, wanted.checks)
    names = [one.name for one in flight.known]
    flight.skipped = tuple(sorted(skipped(flight.environ, names).names))
    picked = chosen(flight.known, wanted.select, wanted.ignore, roots=True)
    flight.picked, flight.left_out = within(picked, wanted.tier)
    if flight.left_out:
        flight.notes.append(f"not looked at in tier {wanted.tier}: {', '.join(flight.left_out)}")
    if not flight.picked:
        raise Refused(f"--select, --ignore and --tier {wanted.tier} leave no check to run")


def _fleet(flight: Preflight, place: Place, chosen: str) -> Inventory:
    """The hosts to look at: this one alone, or those that the words, else the launcher, name. Raises: Refused."""
    import msgspec

    from doctor.commands.hosts import inventory
    from doctor.inventory import Inventory

    if chosen == "local":
        return Inventory((own_name(flight),), f"this host alone ({place.words})", local=True)
    fleet = inventory(flight.wanted.hosts)
    if fleet.local and place.hosts:
        from doctor.hostnames import InventoryError, valid

        try:
            hosts = tuple(valid(host, place.source) for host in place.hosts)
        except InventoryError as error:
            raise Refused(str(error)) from None
        return Inventory(hosts, f"{len(hosts)} host{'' if len(hosts) == 1 else 's'} from {place.source}")
    if fleet.local:
        return msgspec.structs.replace(fleet, hosts=(own_name(flight),))
    return fleet


def own_name(flight: Preflight) -> str:
    """What this host is called in a report that lies beside those of others."""
    return flight.environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0] or "localhost"


def _wait_for_table(flight: Preflight, place: Place) -> None:
    """MindCluster writes the rank table while pods come up; until it is complete there is nothing to judge."""
    from doctor.preflight.place import wait_for_table
    from doctor.preflight.run import WAIT_FOR_TABLE

    if not place.rank_table or place.kind != "mindcluster":
        return
    flight.beat.doing = "waiting for the rank table to be completed"
    note = wait_for_table(place.rank_table, flight.began + flight.wanted.budget * WAIT_FOR_TABLE)
    flight.notes += [note] if note else []


def _examine(flight: Preflight, fleet: Inventory) -> Examination:
    from doctor.examine import examine

    def step(host: str, record: object) -> None:
        flight.records[host] = record  # type: ignore[assignment]
        flight.beat.step(host, record)  # type: ignore[arg-type]

    flight.beat.expect(len(fleet.hosts))
    table = flight.wanted.hosts.rank_table or ""
    return examine(
        fleet,
        flight.picked,
        flight.options(),
        flight.environ,
        rank_table=table,
        progress=step,
        stage=flight.beat.stage,
    )


def _follow(flight: Preflight, place: Place) -> int:
    from doctor.preflight.company import follow

    return follow(flight, place)


def _read_file(path: str) -> str:
    return Path(path).read_text("utf-8")
