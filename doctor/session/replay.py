"""From the run of an examination, made now or saved before, to its report.

The checks have a time limit: what a host printed may make one slow, and must not cost the verdict.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import msgspec

from doctor import job
from doctor.engine.check import Check
from doctor.engine.evaluate import FactCache, Intent, evaluate_check
from doctor.engine.fact import Absent, Unreadable, Visit
from doctor.engine.record import HostRecord, LaunchOptions, Run, load_run, load_run_file
from doctor.engine.result import BUDGET_ENDED, THIS_HOST_ALONE, Outcome, Reason, Report
from doctor.engine.texts import filled
from doctor.remote.runtime.reading import effective_time

CHECK_SECONDS = 60.0
"""For one check where there is no time budget, and a part for each host beside it."""
SECONDS_PER_HOST = 0.05
CHECK_SHARE = 0.25
"""Part of the remaining time that one check may take where there is a time budget, twice of it with waits for a CPU."""
INTERVAL_SECONDS = 0.05
"""Between two readings of what the thread did, once it is late."""
TOO_LONG = Reason("its evaluation took too long, and was given up")


class EvaluationLimit(msgspec.Struct, frozen=True):
    """When an evaluation ends, by the monotonic clock."""

    end: float = float("inf")

    def check_seconds(self, host_count: int) -> float:
        """How long the next check may take, without its waiting for a CPU."""
        remaining = self.end - time.monotonic()
        return max(0.0, min(remaining * CHECK_SHARE, CHECK_SECONDS + SECONDS_PER_HOST * host_count))


class Examination(msgspec.Struct, frozen=True):
    """A run and its report; ``stopped`` is the signal's exception when it was interrupted."""

    run: Run
    report: Report
    stopped: BaseException | None = None
    smoke_rejection: str = ""
    """Why the requested smoke run is impossible."""
    closing: threading.Thread | None = None
    """Ends the connections, where there is a time budget; the process should wait for it while it has the time."""
    code: Mapping[str, str] | None = None
    """Files and revision of the job's program; None: they were not read."""


def load(data: bytes, name: str) -> Run:
    """A saved run, every field of it checked: nothing behind it meets a wrong type. Raises: BadRun, with the field."""
    return _with_parts(load_run(data, name), name)


def load_file(file: BinaryIO, limit: int, name: str) -> Run:
    """The same from a file of at most ``limit`` bytes. Raises: BadRun; OSError."""
    return _with_parts(load_run_file(file, limit, name), name)


def _with_parts(run: Run, name: str) -> Run:
    """Raises: BadRun for a part that cannot be read. Hosts without a record are unknown ones."""
    if run.training or run.smoke or run.watch:
        from doctor.session.saved_parts import require_parts

        require_parts(run, name)
    names = (*run.probe_inputs.hosts, *run.launch.by_host, *_hosts_with_ranks(run))
    if run.hosts.keys() >= {*names}:
        return run

    return with_listed_hosts(run, names)


def _hosts_with_ranks(run: Run) -> Iterable[str]:
    ranks = run.launch.ranks_per_host
    return ranks if isinstance(ranks, dict) else ()


def replay(run: Run, checks: Sequence[Check], limit: EvaluationLimit = EvaluationLimit()) -> Report:
    """Evaluates a run, made now or saved before, with the intent that it was made with."""
    evaluated = checks
    if run.watch:
        from doctor.engine.loss_rules import for_watched

        evaluated = for_watched(checks)
    report = evaluate_in_time(run, evaluated, RunIntent(run), limit)
    if run.launch.places or (run.launch.launch_line and any(outcome.findings for outcome in report.outcomes)):
        from doctor.session.several_launches import launch_rules, of_launch_line, of_scripts

        def evaluate(other: Run) -> Report:
            return evaluate_in_time(other, launch_rules(checks), RunIntent(other), limit)

        is_script = bool(run.launch.places)
        report = of_scripts(report, run, checks, evaluate) if is_script else of_launch_line(report, run, checks)
    smoke = _part(run, "smoke") if run.smoke else None
    if names := {outcome.check for outcome in report.outcomes if outcome.findings}:
        from doctor.session.remedy_values import with_containers, with_places, with_rank_table

        failed = [check for check in checks if check.name in names]
        places = smoke.plan.places if smoke and not isinstance(smoke, Absent) else ()
        report = with_containers(report, failed, FactCache(run.hosts))
        report = with_places(with_rank_table(report, failed, run.rank_table.path), failed, places)
    if run.tried_network:
        from doctor.facts.network_test import NetworkAnswer
        from doctor.net.summary import summarise_test

        summary = summarise_test(FactCache(run.hosts).fleet(NetworkAnswer), report.hosts)
        report = msgspec.structs.replace(report, net=summary)
    watched = _part(run, "watch") if run.watch else None
    if watched is not None and not isinstance(watched, Absent):
        pace = tuple(watched.pace.now.ranks.values()) if watched.pace else ()
        report = msgspec.structs.replace(report, losses=watched.curves if watched.losses else (), pace=pace)
    if smoke and not isinstance(smoke, Absent):
        from doctor.smoke.results.figures import summarise

        report = msgspec.structs.replace(report, smoke=summarise(smoke, FactCache(run.hosts)))
    return report


def evaluate_in_time(run: Run, checks: Sequence[Check], intent: Intent, limit: EvaluationLimit) -> Report:
    """All checks over one run, in the order given.

    A check that takes longer than its share of the time is unknown on every host, and so is each one that was not
    begun at the limit's end; the others keep their outcomes.
    """
    hosts, facts, outcomes = tuple(run.hosts), FactCache(run.hosts), list[Outcome]()
    evaluate: Evaluate = evaluate_check
    if run.after_reboot:
        evaluate = _evaluate_after_reboot
    while len(outcomes) < len(checks) and limit.check_seconds(len(hosts)) > 0:
        worker = _Worker(checks[len(outcomes) :], hosts, facts, intent, evaluate)
        outcomes += worker.outcomes(limit)
        if len(outcomes) < len(checks) and limit.check_seconds(len(hosts)) > 0:
            outcomes.append(_unknown(checks[len(outcomes)], hosts, worker.reason))
    outcomes += [_unknown(check, hosts, BUDGET_ENDED) for check in checks[len(outcomes) :]]
    return Report(
        run.source,
        hosts,
        tuple(outcomes),
        run.started,
        run.seconds,
        run.notes,
        hosts_unknown=run.hosts_unknown,
        after_reboot=run.after_reboot,
    )


Evaluate = Callable[[Check, Sequence[str], FactCache, Intent], Outcome]


def _evaluate_after_reboot(check: Check, hosts: Sequence[str], facts: FactCache, intent: Intent) -> Outcome:
    """The check on facts as after a reboot; skipped where what a host loads at boot determines none of its facts."""
    from doctor.engine.boot_form import BootView
    from doctor.facts.boot import FORMS, NOT_LOOKED_AT

    forms = FORMS.get(check.name)
    if not forms:
        return Outcome(check.name, check.severity, check.area, check.claim, skipped={"": NOT_LOOKED_AT})
    return evaluate_check(check, hosts, BootView(facts, {form.fact: form for form in forms}), intent)


def _unknown(check: Check, hosts: Sequence[str], why: Reason) -> Outcome:
    return Outcome(check.name, check.severity, check.area, check.claim, unknown=dict.fromkeys(hosts or ("",), why))


class _Worker:
    """A thread that evaluates checks one after another; one that hangs in a check is left behind."""

    def __init__(
        self, checks: Sequence[Check], hosts: Sequence[str], facts: FactCache, intent: Intent, evaluate: Evaluate
    ) -> None:
        self._checks, self._hosts, self._facts, self._intent, self._evaluate = checks, hosts, facts, intent, evaluate
        self._finished: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()
        self._abandoned = False
        self.reason = TOO_LONG
        """Why there is no outcome of the check behind the last one."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def outcomes(self, limit: EvaluationLimit) -> Iterator[Outcome]:
        """One for each check, until one takes too long."""
        try:
            for _ in self._checks:
                outcome = self._next(limit.check_seconds(len(self._hosts)), limit.end)
                if outcome is None:
                    return
                if isinstance(outcome, BaseException):
                    raise outcome
                yield outcome
        finally:
            self._abandoned = True

    def _next(self, seconds: float, end: float) -> Outcome | BaseException | None:
        """None: the check has had its ``seconds``; or, with waits for a CPU, twice that of the time until ``end``."""
        taken = effective_time(f"/proc/self/task/{self._thread.native_id}")
        latest = time.monotonic() + 2 * CHECK_SHARE * max(0.0, end - time.monotonic())
        pause = seconds
        while True:
            try:
                return self._finished.get(timeout=pause)
            except queue.Empty:
                if taken() >= seconds:
                    self.reason = TOO_LONG
                    return None
                if time.monotonic() >= latest:
                    self.reason = BUDGET_ENDED
                    return None
                pause = INTERVAL_SECONDS

    def _run(self) -> None:
        for check in self._checks:
            if self._abandoned:
                return
            try:
                self._finished.put(self._evaluate(check, self._hosts, self._facts, self._intent))
            except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that waits
                self._finished.put(error)
                return


class RunIntent(Mapping[type, object]):
    """What the job should be, by type, its smoke run and training: each read when a check wants it, with its type.

    A value that is Absent holds the reason.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._values: dict[type, object] = {}

    def __getitem__(self, kind: type) -> object:
        if kind not in self._values:
            self._values[kind] = _READERS[f"{kind.__module__}.{kind.__name__}"](self._run)
        return self._values[kind]

    def __iter__(self) -> Iterator[type]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def launch_on_hosts(options: LaunchOptions, records: Mapping[str, HostRecord]) -> job.LaunchConfig:
    """The job's settings, with those of NCCL's files on the hosts and of the shells that start the ranks there."""
    read = {name for record in records.values() for name in record.outputs}
    if not read & {"NcclFiles", "StartupVariables"}:
        return job.LaunchConfig.from_options(options)
    from doctor.facts.host_variables import NcclFiles, StartupVariables

    facts = FactCache(records)
    files = {host: fact.variables for host, fact in facts.fleet(NcclFiles).items()}
    shells = {host: fact.variables for host, fact in facts.fleet(StartupVariables).items()}
    return job.LaunchConfig.from_options(options, files, shells)


def _rank_table(run: Run) -> object:
    if not run.rank_table:
        return Absent("no rank table was given")
    if run.rank_table.error:
        return Unreadable(filled("{0}: {1}", run.rank_table.path, run.rank_table.error), "rank-table-not-json")
    try:
        return job.read_rank_table(run.rank_table.path, run.rank_table.text)
    except job.NotARankTable as error:
        return error.for_checks


def _part(run: Run, name: str) -> Any:
    """A part that has a type of its own, or `Absent`."""
    from doctor.session.saved_parts import saved_part

    return saved_part(getattr(run, name), name)


_READERS: dict[str, Callable[[Run], object]] = {
    "doctor.job.launch_config.LaunchConfig": lambda run: launch_on_hosts(run.launch, run.hosts),
    "doctor.engine.record.RankTableFile": lambda run: run.rank_table or Absent("no rank table was given"),
    "doctor.job.rank_table.model.RankTable": _rank_table,
    "doctor.job.training.model.TrainingLaunch": lambda run: _part(run, "training"),
    "doctor.smoke.model.SmokeRun": lambda run: _part(run, "smoke"),
    "doctor.engine.watch_summary.WatchResult": lambda run: _part(run, "watch"),
}
"""By the full name of the type, so that none is loaded which no check wants."""


NO_RECORD = "the saved run names it and has no record of it"


def with_listed_hosts(run: Run, names: Iterable[str]) -> Run:
    """The run with an unknown host for each of ``names``, by which it calls its hosts, that it holds no record of.

    A run of one host alone names its fleet, and is about no other host; one without any record judges none.

    >>> from doctor.engine.record import SCHEMA
    >>> list(with_listed_hosts(Run(SCHEMA, "2 hosts", "", 0.0, {"n1": HostRecord(Visit())}), ("n1", "n2")).hosts)
    ['n1', 'n2']
    """
    named = dict.fromkeys(names)
    listed = [name for name in named if name and name not in run.hosts]
    if not listed or not run.hosts or _is_of_this_host_alone(run):
        return run
    from doctor.collect.merge.node_records import HostIdentity, match_hosts

    others = [HostIdentity(host, run.hosts[host].visit.name) for host in run.hosts.keys() - named.keys()]
    matches = match_hosts(listed, others)
    absent = [name for name in listed if name not in matches]
    records = dict.fromkeys(absent, HostRecord(Visit("no-file", NO_RECORD)))
    return msgspec.structs.replace(run, hosts={**run.hosts, **records}) if absent else run


def _is_of_this_host_alone(run: Run) -> bool:
    local = all(record.visit.local for record in run.hosts.values())
    return len(run.hosts) == 1 and local and run.source.startswith(THIS_HOST_ALONE)
