"""Joins the records of `doctor node` into one run, which is evaluated as if one command had read all hosts. Pure.

A missing host is never healthy: a host of the list without a usable file is an unknown host in the result. A record
that an earlier run left counts for nothing: such a host may be dead by now.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

import msgspec

from doctor import __version__
from doctor.collect.merge.node_records import HostIdentity, NodeFileRecord, NodeFiles, UnusableFile, match_hosts
from doctor.engine.evaluate import FactCache, read_fact
from doctor.engine.fact import Fact, Output, Visit
from doctor.engine.record import SCHEMA, HostRecord, LaunchOptions, ProbeInputs, RankTableFile, Run
from doctor.engine.sanitize import count_noun, strip_control_chars
from doctor.engine.texts import filled
from doctor.environment.inventory import Inventory
from doctor.facts.names import HostNames
from doctor.facts.network import HostAddresses
from doctor.hosts.nodeset import InventoryError, canonical_host, validate_host
from doctor.job.variables import BY_HOST, JOB_WIDE, RANK_NUMBERS

NO_SECOND_ROUND = "node files contain no host-to-host round; doctor check runs one over SSH"
NO_NAMES = "doctor node did not get them: pass --expect to it as well"
NO_HOST_LIST = "no host list: a host without a file is not noticed; expected --expect NODES"
MAX_NOTES = 8


def merge(files: NodeFiles, fleet: Inventory | None, facts: Iterable[type[Fact]], where: str, job: str = "") -> Run:
    """One run of all hosts of ``fleet``, or of all that left a file, as the ``facts`` will be asked of it.

    ``where``: where the files are, for messages. ``job``: this job, as `slurm_job_run` names it.
    """
    current, stale = split_stale(files.records, job)
    node_records, disagreeing, duplicate_notes = one_by_name(current)
    unusable = [*disagreeing, *files.unusable, *stale]
    hosts = fleet.hosts if fleet else tuple(_all_hosts(node_records, unusable))
    place = match_hosts(hosts, [_identity(look) for look in node_records])
    used = {host: node_records[place[host]] for host in hosts if host in place}
    bad = _unusable_by_host([host for host in hosts if host not in used], unusable)
    records = {
        host: _with_unread_names(used[host], hosts) if host in used else _absent_record(bad.get(host), where)
        for host in hosts
    }
    claimed, blamed = set(place.values()), set(bad.values())
    unexpected = [look.location for number, look in enumerate(node_records) if number not in claimed]
    unusable_notes = [filled("{0}: {1}", entry.location, entry.reason) for entry in unusable if entry not in blamed]
    notes = [
        *duplicate_notes,
        *(filled("{0}: of a host that is not expected; ignored", place) for place in unexpected),
        *unusable_notes,
    ]
    return Run(
        SCHEMA,
        filled("{0}, by node files in {1}", fleet.source if fleet else count_noun(len(hosts), "host"), where),
        min((look.run.started for look in used.values()), default=""),
        max((look.run.seconds for look in used.values()), default=0.0),
        _without_second_round(records, facts),
        ProbeInputs(hosts=tuple(hosts)),
        _launch(used, fleet),
        _rank_table(used.values()),
        (*(fleet.notes if fleet else (NO_HOST_LIST,)), *_limit_notes(notes)),
        __version__,
    )


def _all_hosts(node_records: Sequence[NodeFileRecord], unusable: Sequence[UnusableFile]) -> list[str]:
    names = {
        canonical_host(host): host
        for host in (*(bad.host for bad in unusable if _is_name(bad.host)), *(look.name for look in node_records))
    }
    return sorted(names.values(), key=lambda name: [(len(part), part) for part in re.split(r"(\d+)", name)])


def _is_name(text: str) -> bool:
    try:
        return bool(validate_host(text, ""))
    except InventoryError:
        return False


def _identity(node_record: NodeFileRecord) -> HostIdentity:
    addresses = read_fact(node_record.record, HostAddresses)
    self_name = node_record.record.visit.name
    return HostIdentity(
        node_record.name, self_name, addresses.addresses if isinstance(addresses, HostAddresses) else ()
    )


def _unusable_by_host(absent_hosts: Sequence[str], unusable: Sequence[UnusableFile]) -> dict[str, UnusableFile]:
    """The file that would have been each missing host's."""
    named = [entry for entry in unusable if _is_name(entry.host)]
    place = match_hosts(absent_hosts, [HostIdentity(entry.host) for entry in named])
    return {host: named[number] for host, number in place.items()}


def _absent_record(bad: UnusableFile | None, where: str) -> HostRecord:
    why = (
        filled("{0}: {1}", bad.location, bad.reason)
        if bad
        else filled("no file of this host in {0}; check that doctor node ran there", where)
    )
    return HostRecord(Visit("no-file", why, local=True))


def _with_unread_names(node_record: NodeFileRecord, hosts: Sequence[str]) -> HostRecord:
    """The record; without the fleet's host names, their addresses on the host are unknown."""
    expected_names = {canonical_host(name) for name in node_record.run.probe_inputs.hosts}
    names = node_record.record.outputs.get(HostNames.__name__, {})
    if len(hosts) < 2 or "" not in names or all(canonical_host(host) in expected_names for host in hosts):
        return node_record.record
    try:
        content = msgspec.json.decode(names[""].out)
        content["unread"] = {"the other hosts' names": NO_NAMES}
    except (msgspec.DecodeError, RecursionError, TypeError):
        return node_record.record
    marked = msgspec.structs.replace(names[""], out=msgspec.json.encode(content).decode())
    return HostRecord(node_record.record.visit, {**node_record.record.outputs, HostNames.__name__: {"": marked}})


def _without_second_round(records: dict[str, HostRecord], facts: Iterable[type[Fact]]) -> dict[str, HostRecord]:
    """The records, in which every probe of the second round is an error with the reason, and every trial absent."""
    book, complete = FactCache(records), dict(records)
    for fact in facts:
        for host in fact.plan({need: book.fleet(need) for need in fact.needs}) if fact.needs else ():
            if fact.__name__ not in complete[host].outputs:
                output = Output("absent" if fact.is_trial else "error", err=NO_SECOND_ROUND)
                outputs = {**complete[host].outputs, fact.__name__: {"": output}}
                complete[host] = HostRecord(complete[host].visit, outputs)
    return complete


def _launch(used: Mapping[str, NodeFileRecord], fleet: Inventory | None) -> LaunchOptions:
    """The job settings of the majority of hosts, and those in each host's own environment."""
    if not used:
        return LaunchOptions()
    environs = {host: look.run.launch.environ for host, look in used.items()}
    by_host = _select(environs, (*BY_HOST, *RANK_NUMBERS))
    job_wide = _select(environs, JOB_WIDE)
    usual = Counter(map(str, job_wide.values())).most_common(1)[0][0]
    launch = next(used[host].run.launch for host, variables in job_wide.items() if str(variables) == usual)
    if fleet and fleet.slots:
        launch = msgspec.structs.replace(launch, ranks_per_host=dict(fleet.slots))
    return msgspec.structs.replace(launch, by_host=by_host) if any(by_host.values()) else launch


def _select(environs: Mapping[str, Mapping[str, str]], names: Iterable[str]) -> dict[str, dict[str, str]]:
    chosen = tuple(names)
    return {host: {name: environ[name] for name in chosen if name in environ} for host, environ in environs.items()}


def _rank_table(looks: Iterable[NodeFileRecord]) -> RankTableFile:
    """The first rank table that could be read, else why the first could not."""
    tables = [look.run.rank_table for look in looks if look.run.rank_table]
    return next((table for table in tables if table.text), tables[0] if tables else RankTableFile())


def _limit_notes(notes: Sequence[str]) -> list[str]:
    omitted = len(notes) - MAX_NOTES
    return [*notes[:MAX_NOTES], *([filled("{0} more such files", omitted)] if omitted > 0 else [])]


MAX_AGE_DIFFERENCE = timedelta(hours=1)
"""Files of one run are not further apart than this."""


def slurm_job_run(environ: Mapping[str, str]) -> str:
    """The Slurm job of this process, and its run; empty outside of one. A requeued job keeps its number."""
    number = environ.get("SLURM_JOB_ID", "")
    return f"{number}.{environ.get('SLURM_RESTART_COUNT') or 0}" if number else ""


def split_stale(records: Sequence[NodeFileRecord], this_job: str) -> tuple[list[NodeFileRecord], list[UnusableFile]]:
    """The records of this run, and those of an earlier run, whose hosts may be down."""
    current, stale = [], []
    latest = max(records, key=lambda record: record.began, default=None)
    for look in records:
        record_job, age = (
            strip_control_chars(look.run.probe_inputs.job, 40),
            latest.began - look.began if latest else timedelta(0),
        )
        why = ""
        if this_job and record_job:
            why = filled("of Slurm job {0}, this is {1}", record_job, this_job) if record_job != this_job else ""
        elif latest and age > MAX_AGE_DIFFERENCE:
            hours = age.total_seconds() / 3600
            why = filled(
                "{0} h older than {1}: from an earlier run, or a clock is wrong", f"{hours:.1f}", latest.location
            )
        if why:
            stale.append(UnusableFile(look.name, look.location, why))
        else:
            current.append(look)
    return current, stale


def one_by_name(records: Sequence[NodeFileRecord]) -> tuple[list[NodeFileRecord], list[UnusableFile], list[str]]:
    """One record for each name, the names whose records disagree, and notes on those with several that agree.

    Of two records that disagree, the host's own cannot be determined: one may be another user's, or older than a fault.
    """
    by_name: dict[str, list[NodeFileRecord]] = {}
    for record in sorted(records, key=lambda record: record.began):
        by_name.setdefault(canonical_host(record.name), []).append(record)
    chosen, unusable, notes = [], [], []
    for alike in by_name.values():
        newest = alike[-1]
        other = next((record for record in alike if _answers(record) != _answers(newest)), None)
        if other:
            fact = _first_difference(_answers(other), _answers(newest))
            text = filled(
                "disagrees with {0} about {1} ({2}); expected one record of a host", other.location, newest.name, fact
            )
            unusable.append(UnusableFile(newest.name, newest.location, text))
            continue
        chosen.append(newest)
        notes += [
            filled(
                "{0} has more than one record: {1} is used, {2} says the same",
                newest.name,
                newest.location,
                older.location,
            )
            for older in alike[:-1]
        ]
    return chosen, unusable, notes


def _answers(record: NodeFileRecord) -> dict[str, object]:
    """All that the host said, by fact; not how long it took."""
    outputs = record.record.outputs
    answers: dict[str, object] = {
        fact: {key: msgspec.structs.replace(output, seconds=0) for key, output in by_key.items()}
        for fact, by_key in outputs.items()
    }
    return {**answers, "visit": (record.record.visit.failure, record.record.visit.name.lower())}


def _first_difference(first: Mapping[str, object], second: Mapping[str, object]) -> str:
    return next(strip_control_chars(fact, 60) for fact in (*first, *second) if first.get(fact) != second.get(fact))
