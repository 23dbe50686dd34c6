"""One examination, from targets to report: the only module that knows both halves, gathering and judging."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from doctor import __version__
from doctor.collect.fanout import Limits, Partial, Progress
from doctor.collect.protocol import Ask, union, words
from doctor.collect.rounds import rounds
from doctor.engine.check import Check
from doctor.engine.evaluate import Book, Intent, judge
from doctor.engine.fact import Absent, Unreadable, Visit
from doctor.engine.record import SCHEMA, HostRecord, Run
from doctor.engine.result import Report
from doctor.job import Launch, NotARankTable, RankTable, RankTableFile, read_rank_table
from doctor.job.launch_config import relevant
from doctor.smoke.model import SmokeRun
from doctor.transport.open import open_transport
from doctor.transport.options import Options as SshOptions
from doctor.transport.options import workers

if TYPE_CHECKING:
    from doctor.environment.inventory import Inventory
    from doctor.smoke.run.connect import Call
    from doctor.smoke.run.round import Stage, Third
    from doctor.transport import Transport


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How hosts are looked at, and how long they may take."""

    transport: str = "ssh"
    ssh: SshOptions = SshOptions()
    sudo: bool = False
    within: str = ""
    """Words put before what must look where the job runs: ``docker exec -i NAME``."""
    timeout: float = 60.0
    """Seconds for a host's answer, once connected."""
    budget: float = 0.0
    """Seconds for the whole run; 0 is none."""
    workers: int = 0
    """Hosts at once; 0 is as many as the limit on open files allows, up to 256."""
    launch: dict[str, Any] = {}
    """What the command line says of the job: the keywords of `doctor.job.Launch.from_environment`."""
    smoke: Any = None
    """A `doctor.smoke.plan.Wish` for the smoke run that follows; None makes none."""


class Examination(msgspec.Struct, frozen=True):
    """A run and what was judged of it; ``stopped`` is the signal's exception when it was cut short."""

    run: Run
    report: Report
    stopped: BaseException | None = None
    refused: str = ""
    """Why the smoke run that was wished for cannot be."""


def examine(
    inventory: Inventory,
    checks: Sequence[Check],
    options: Options,
    environ: Mapping[str, str],
    *,
    rank_table: str = "",
    progress: Progress = lambda host, record: None,
    stage: Stage = lambda name, seconds: None,
) -> Examination:
    """Visits the hosts and judges what came. Never raises for what a host did.

    Raises: ValueError for options that contradict themselves; `doctor.transport.Unreached` never.
    """
    clock, started = time.monotonic(), _now()
    job = _Job(inventory, options, environ, rank_table)
    hosts = inventory.hosts
    stopped: BaseException | None = None
    records: dict[str, HostRecord] = {}
    warnings: list[str] = []
    third: Third | None = None
    if hosts:
        transport = open_transport(inventory.local, options.transport, options.ssh, hosts)
        facts = union(fact for check in checks for fact in check.facts)
        ask = Ask(facts, job.given, options.sudo, tuple(words(options.within)))
        limits = Limits(options.timeout, options.budget, options.workers or workers(len(hosts)))
        try:
            records = rounds(hosts, transport, ask, limits, inventory.local, progress)
            if options.smoke:
                third = _third_round(records, inventory, transport, options, clock, stage)
                stopped = third.stopped
        except Partial as partial:
            records, stopped = partial.records, partial.stop
        finally:
            transport.close()
        warnings = transport.warnings
    run = job.run(started, clock, third.records if third else records, warnings, third, stopped)
    return Examination(run, replay(run, checks), stopped, third.refused if third else "")


def examine_smoke(
    inventory: Inventory,
    called: Call,
    transport: Transport,
    checks: Callable[[], Sequence[Check]],
    options: Options,
    environ: Mapping[str, str],
    *,
    rank_table: str = "",
    progress: Progress = lambda host, record: None,
    stage: Stage = lambda name, seconds: None,
    meanwhile: Iterator[object] = iter(()),
) -> Examination:
    """The smoke run alone, on hosts that were called already: its agents' visit is the only one.

    ``meanwhile``: work for the time in which hosts import torch; ``checks`` is called when it is done. They must need
    nothing but the smoke run, and what any visit tells.
    """
    from doctor.smoke.run.round import only_round

    started, job = _now(), _Job(inventory, options, environ, rank_table)
    try:
        third = only_round(called, options.smoke, stage=stage, met=progress, meanwhile=meanwhile)
    finally:
        transport.close()
    run = job.run(started, called.began, third.records, transport.warnings, third, third.stopped)
    return Examination(run, replay(run, () if third.refused else checks()), third.stopped, third.refused)


def cut_short(
    inventory: Inventory,
    records: Mapping[str, HostRecord],
    checks: Sequence[Check],
    options: Options,
    environ: Mapping[str, str],
    why: str,
    stopped: BaseException | None,
    *,
    rank_table: str = "",
) -> Examination:
    """What can be said with the records that there are; of every other host only why there is none."""
    missing = HostRecord(Visit("budget", why))
    complete = {host: records.get(host, missing) for host in inventory.hosts}
    run = _Job(inventory, options, environ, rank_table).run(_now(), time.monotonic(), complete, (), None, stopped)
    return Examination(run, replay(run, checks), stopped)


class _Job:
    """What the command line and the environment say of the job, and the run that is made of it."""

    def __init__(self, inventory: Inventory, options: Options, environ: Mapping[str, str], rank_table: str) -> None:
        self.inventory = inventory
        self.launch = {"environ": relevant(environ), "rank_table": rank_table, **options.launch}
        if inventory.slots:
            self.launch.setdefault("ranks_per_host", dict(inventory.slots))
        self.table = _rank_table_file(Launch.from_environment(**self.launch).rank_table_path)
        self.given = _given(inventory.fleet or inventory.hosts, _intent(self.launch, self.table), self.table)

    def run(
        self,
        started: str,
        clock: float,
        records: dict[str, HostRecord],
        warnings: Sequence[str],
        third: Third | None,
        stopped: BaseException | None,
    ) -> Run:
        notes = [*self.inventory.notes, *warnings]
        if stopped is not None:
            notes.append("interrupted: the report is of what had been read by then")
        return Run(
            SCHEMA,
            self.inventory.source,
            started,
            round(time.monotonic() - clock, 3),
            records,
            self.given,
            self.launch,
            self.table,
            (*notes, *(third.notes if third else ())),
            __version__,
            third.smoke if third else {},
        )


def replay(run: Run, checks: Sequence[Check]) -> Report:
    """Judges a run, made now or saved before, with the intent that it was made with."""
    intent = _intent(run.launch, run.rank_table, run.smoke)
    report = judge(run, checks, intent)
    smoke = intent[SmokeRun]
    if not isinstance(smoke, SmokeRun):
        return report
    from doctor.smoke.results.figures import summarise

    return msgspec.structs.replace(report, smoke=summarise(smoke, Book(run.hosts)))


def _third_round(
    records: dict[str, HostRecord],
    inventory: Inventory,
    transport: Transport,
    options: Options,
    clock: float,
    stage: Stage,
) -> Third:
    """The smoke run, within what is left of the budget."""
    from doctor.smoke.run.round import not_started, third_round

    assert options.smoke
    wish, left = options.smoke, options.budget - (time.monotonic() - clock)
    if options.budget and left < 1:
        return not_started(records, f"the budget of {options.budget:g} s ended before it")
    if options.budget:
        wish = msgspec.structs.replace(wish, budget=min(wish.budget, left))
    within = tuple(words(options.within))
    return third_round(records, inventory.slots, transport, wish, local=inventory.local, within=within, stage=stage)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


def _rank_table_file(path: str) -> dict[str, str]:
    """The rank table as it was found: ``path``, ``link`` when it is one, and ``text`` or ``error``."""
    if not path:
        return {}
    link = str(Path(path).readlink()) if Path(path).is_symlink() else ""
    file = RankTableFile.load(path, lambda name: Path(name).read_text("utf-8"), link)
    return {name: value for name, value in msgspec.structs.asdict(file).items() if value}


def _intent(launch: Mapping[str, Any], table: Mapping[str, str], smoke: Mapping[str, Any] | None = None) -> Intent:
    """What the job should be, by type, and the smoke run. A value that is Absent says why there is none."""
    found: dict[type, object] = {Launch: Launch.from_environment(**launch), SmokeRun: smoke_run(smoke or {})}
    if not table:
        found[RankTableFile] = found[RankTable] = Absent("no rank table was given")
        return found
    file = RankTableFile(**table)
    found[RankTableFile] = file
    if file.error:
        found[RankTable] = Unreadable(f"{file.path}: {file.error}", "rank-table-not-json")
        return found
    try:
        found[RankTable] = read_rank_table(file.path, file.text)
    except NotARankTable as error:
        found[RankTable] = error
    return found


def smoke_run(saved: Mapping[str, Any]) -> SmokeRun | Absent:
    """The smoke run out of a `Run`'s field."""
    if not saved:
        return Absent("no smoke run was made; doctor smoke makes one")
    if "not_started" in saved:
        return Unreadable(f"the smoke run was not started: {saved['not_started']}")
    try:
        return msgspec.convert(saved, SmokeRun, str_keys=True)
    except msgspec.ValidationError as error:
        return Unreadable(f"the smoke run cannot be read: {error}")


def _given(hosts: Sequence[str], intent: Intent, table: Mapping[str, str]) -> dict[str, Any]:
    """What the probes on the hosts are told."""
    launch = intent[Launch]
    assert isinstance(launch, Launch)
    path = table.get("path", "")
    return {
        "hosts": list(hosts),
        "python": launch.python,
        "master_addr": launch.master_addr,
        "ports": [
            launch.master_port,
            *(port for span in launch.hccl_ports for port in range(span.first, span.last + 1)),
        ],
        "rank_table": path if not path or os.path.isabs(path) else str(Path.cwd() / path),
    }
