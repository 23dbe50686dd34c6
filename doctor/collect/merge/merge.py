"""Makes one run of what each host's own `doctor node` saw, to be judged as if one command had visited them all. Pure.

What is missing is never healthy: a host of the list without a file that can be used is there as an unknown host.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from doctor import __version__
from doctor.collect.merge.hosts import Known, matched
from doctor.collect.merge.records import Look, Pile, Unusable
from doctor.collect.merge.stale import fresh, newest
from doctor.engine.evaluate import Book, learn
from doctor.engine.fact import Fact, Output, Visit
from doctor.engine.record import SCHEMA, HostRecord, Run
from doctor.engine.sanitize import count
from doctor.facts.names import HostNames
from doctor.facts.network import HostAddresses
from doctor.hosts.nodeset import InventoryError, same, valid
from doctor.job.launch_config import JOB_WIDE

if TYPE_CHECKING:
    from doctor.environment.inventory import Inventory

NO_ROUND = "node files hold no second round, from host to host: doctor check makes one over SSH"
NO_NAMES = "doctor node was not told them: give it --expect too"
ALONE = "no list of hosts was given: a host that left no file is not missed; --expect NODES names them"
MOST_NOTES = 8


def merge(pile: Pile, fleet: Inventory | None, facts: Iterable[type[Fact]], where: str, job: str = "") -> Run:
    """One run of all hosts of ``fleet``, or of all that left a file, as the ``facts`` will be asked of it.

    ``where``: the files' place, in words. ``job``: the one that this is, as `doctor.collect.merge.stale.job` names it.
    """
    current, stale = fresh(pile.looks, job)
    looks, twice = newest(current)
    unusable = [*pile.unusable, *stale]
    hosts = fleet.hosts if fleet else tuple(_everyone(looks, unusable))
    place = matched(hosts, [_known(look) for look in looks])
    used = {host: looks[place[host]] for host in hosts if host in place}
    bad = _reasons([host for host in hosts if host not in used], unusable)
    records = {host: _told(used[host], hosts) if host in used else _missing(bad.get(host), where) for host in hosts}
    claimed, blamed = set(place.values()), set(bad.values())
    strangers = [look.place for number, look in enumerate(looks) if number not in claimed]
    told = [f"{one.place}: {one.why}" for one in unusable if one not in blamed]
    notes = [*twice, *(f"{place}: of a host that is not expected; not judged" for place in strangers), *told]
    return Run(
        SCHEMA,
        f"{fleet.source if fleet else count(len(hosts), 'host')}, by node files in {where}",
        min((look.run.started for look in used.values()), default=""),
        max((look.run.seconds for look in used.values()), default=0.0),
        _without_second_round(records, facts),
        {"hosts": list(hosts)},
        _launch(used, fleet),
        _table(used.values()),
        (*(fleet.notes if fleet else (ALONE,)), *_few(notes)),
        __version__,
    )


def _everyone(looks: Sequence[Look], unusable: Sequence[Unusable]) -> list[str]:
    """Every host that left something, numbers in order."""
    names = {same(one): one for one in (*(bad.host for bad in unusable if _is_name(bad.host)), *_names(looks))}
    return sorted(names.values(), key=lambda name: [(len(part), part) for part in re.split(r"(\d+)", name)])


def _names(looks: Sequence[Look]) -> Iterator[str]:
    return (look.name for look in looks)


def _is_name(text: str) -> bool:
    try:
        return bool(valid(text, ""))
    except InventoryError:
        return False


def _known(look: Look) -> Known:
    addresses = learn(look.record, HostAddresses)
    own = look.record.visit.name
    return Known(look.name, own, addresses.addresses if isinstance(addresses, HostAddresses) else ())


def _reasons(missing: Sequence[str], unusable: Sequence[Unusable]) -> dict[str, Unusable]:
    """The file that would have been each missing host's."""
    named = [one for one in unusable if _is_name(one.host)]
    place = matched(missing, [Known(one.host) for one in named])
    return {host: named[number] for host, number in place.items()}


def _missing(bad: Unusable | None, where: str) -> HostRecord:
    why = f"{bad.place}: {bad.why}" if bad else f"there is no file of it in {where}: did doctor node run there?"
    return HostRecord(Visit("no-file", why, local=True))


def _told(look: Look, hosts: Sequence[str]) -> HostRecord:
    """The record; where the host was not told the fleet's names, what they mean on it is not known."""
    given = look.run.given.get("hosts")
    told = {same(name) for name in given if isinstance(name, str)} if isinstance(given, list) else set()
    names = look.record.outputs.get(HostNames.__name__, {})
    if len(hosts) < 2 or "" not in names or all(same(host) in told for host in hosts):
        return look.record
    try:
        said = msgspec.json.decode(names[""].out)
        said["unread"] = {"the other hosts' names": NO_NAMES}
    except (msgspec.DecodeError, RecursionError, TypeError):
        return look.record
    marked = msgspec.structs.replace(names[""], out=msgspec.json.encode(said).decode())
    return HostRecord(look.record.visit, {**look.record.outputs, HostNames.__name__: {"": marked}})


def _without_second_round(records: dict[str, HostRecord], facts: Iterable[type[Fact]]) -> dict[str, HostRecord]:
    """The records, in which everything that a second round would have asked of a host is an error that says why."""
    book, complete = Book(records), dict(records)
    for fact in facts:
        for host in fact.plan({need: book.fleet(need) for need in fact.needs}) if fact.needs else ():
            if fact.__name__ not in complete[host].outputs:
                said = {**complete[host].outputs, fact.__name__: {"": Output("error", err=NO_ROUND)}}
                complete[host] = HostRecord(complete[host].visit, said)
    return complete


def _launch(used: Mapping[str, Look], fleet: Inventory | None) -> dict[str, Any]:
    """The job as the first of most hosts sees it, and what each host's own environment says of it."""
    if not used:
        return {"environ": {}}
    said = {host: look.run.launch["environ"] for host, look in used.items()}
    by_host = {host: {name: environ[name] for name in JOB_WIDE if name in environ} for host, environ in said.items()}
    usual = Counter(map(str, by_host.values())).most_common(1)[0][0]
    launch = dict(next(used[host].run.launch for host, own in by_host.items() if str(own) == usual))
    if fleet and fleet.slots:
        launch["ranks_per_host"] = dict(fleet.slots)
    return {**launch, "by_host": by_host} if any(by_host.values()) else launch


def _table(looks: Iterable[Look]) -> dict[str, str]:
    """The first rank table that could be read, else why the first could not."""
    tables = [look.run.rank_table for look in looks if look.run.rank_table]
    return next((table for table in tables if table.get("text")), tables[0] if tables else {})


def _few(notes: Sequence[str]) -> list[str]:
    left = len(notes) - MOST_NOTES
    return [*notes[:MOST_NOTES], *([f"{left} more files like that"] if left > 0 else [])]
