"""The first part of a preflight: where it runs, which hosts it is for, what they answer."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from doctor.config.file import ConfigError
from doctor.config.waivers import read_skips
from doctor.engine.bounded_read import read_text_file
from doctor.engine.errors import InputError
from doctor.engine.language import localized
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.environment.job_context import JobContext, Scope, choose_scope, detect
from doctor.preflight.gathered import Gathered, GatherProgress, NotReady
from doctor.preflight.options import TRAINING_TIERS, PreflightOptions, Tier, checks_of_tier, left_out, tests_network
from doctor.session import named_files
from doctor.session.output_files import STDOUT, combine_callbacks, open_event_streams, requested_targets

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.engine.record import LaunchOptions
    from doctor.environment.inventory import Inventory
    from doctor.net.plan import NetOptions
    from doctor.preflight.deadline import TimeBudget
    from doctor.preflight.host_leader import LeaderVerdict
    from doctor.session.examine_options import ExamineOptions
    from doctor.session.replay import Examination
    from doctor.smoke.plan import SmokeOptions
    from doctor.transport import Transport

TABLE_WAIT_SHARE = 0.5
"""Part of the budget that an unfinished rank table is waited for."""


def skips_all(environ: Mapping[str, str]) -> bool:
    """Whether DOCTOR_SKIP says ``all``; then no module is loaded that could fail."""
    try:
        return read_skips(environ, ()).all
    except ConfigError:  # names of checks
        return False


def gather(
    options: PreflightOptions, environ: Mapping[str, str], budget: TimeBudget, progress: GatherProgress
) -> Gathered | LeaderVerdict:
    """Visits the hosts, or waits for the verdict of the process of this host that does.

    ``progress`` holds all that is known at every moment. The result has an examination.

    Raises: CommandError, NotReady.
    """
    context = _detect_context(options, environ, progress)
    if options.gang:
        return _gather_gang(options, environ, budget, progress, context)
    scope = choose_scope(context, options.scope)
    if scope != "follower" and context.rank_table_pending:
        _wait_for_table(context, budget, progress)
        context = _detect_context(options, environ, progress)
    conflicts = [filled("contradiction: {0}", conflict) for conflict in context.conflicts]
    progress.add_notes(filled("started in: {0}", context.description), *conflicts, *context.notes)
    leader_verdict = _follow_leader(context, scope, environ, budget, progress)
    if leader_verdict is not None:
        return leader_verdict
    progress.on_lead()
    if scope == "follower":  # it waited for another one, and leads now
        scope = "local"
    if scope == "local" and options.scope == "auto" and progress.gathered.tier in TRAINING_TIERS:
        progress.update(tier="standard")
        progress.add_notes("rank 0 runs the smoke run on all hosts; this process checks only its own host")
    job = _job_context(options, context)
    inventory = _select_hosts(options, environ, job, scope)
    job_is_meant = scope == "cluster" and not options.hosts.names_hosts
    progress.update(inventory=inventory, hosts_unknown=job.hosts_unknown if job_is_meant else "")
    _select_checks(options, environ, progress)
    examination = _examine(options, environ, budget, progress, inventory, context.rank_table_path)
    if job_is_meant and inventory.local:
        from doctor.facts.memory import device_count

        devices = max(map(device_count, examination.run.hosts.values()), default=0)
        job = _job_context(options, _detect_context(options, environ, progress, devices), devices)
        progress.update(hosts_unknown=job.hosts_unknown)
    return progress.gathered


def _gather_gang(
    options: PreflightOptions,
    environ: Mapping[str, str],
    budget: TimeBudget,
    progress: GatherProgress,
    context: JobContext,
) -> Gathered | LeaderVerdict:
    """The same of pods that check each other. The time for the checks begins once they have come."""
    from doctor.preflight.gang import join_gang
    from doctor.preflight.host_leader import LeaderVerdict

    progress.add_notes(filled("started in: {0}", context.description))
    if context.tag == "no-job":
        progress.update(context=msgspec.structs.replace(context, tag="gang"))
    _choose_candidates(options, environ, progress)  # a name that no check has is refused before the gang meets
    joined = join_gang(options, context, environ, budget, progress)
    if isinstance(joined, LeaderVerdict):
        return joined
    budget = msgspec.structs.replace(budget, start_time=time.monotonic(), seconds=options.budget)
    progress.update(inventory=joined.inventory, evaluation_end=budget.evaluation_end)
    _select_checks(options, environ, progress)
    _examine(options, environ, budget, progress, joined.inventory, context.rank_table_path, joined.transport)
    return progress.gathered


def gather_partial(
    options: PreflightOptions,
    environ: Mapping[str, str],
    budget: TimeBudget,
    progress: GatherProgress,
    stop: BaseException,
) -> Gathered | None:
    """What was known when the signal ``stop`` came, with an examination; None when no host was visited yet."""
    from doctor.session.examine import examine_partial

    gathered = progress.gathered
    if gathered.inventory is None or not gathered.selected_checks:
        return None
    if gathered.examination is not None:
        return progress.update(examination=msgspec.structs.replace(gathered.examination, stopped=stop))
    examination = examine_partial(
        gathered.inventory,
        progress.records,
        gathered.selected_checks,
        _examine_options(options, gathered, budget),
        environ,
        "the run was interrupted before the host answered",
        stop,
        rank_table=options.hosts.rank_table or "",
    )
    return progress.update(examination=examination)


def local_host_name(environ: Mapping[str, str]) -> str:
    """This host's name in its report."""
    from doctor.environment.schedulers import scheduler_host_name

    return scheduler_host_name(environ) or os.uname().nodename.partition(".")[0] or "localhost"


def _detect_context(
    options: PreflightOptions, environ: Mapping[str, str], progress: GatherProgress, devices: int = 0
) -> JobContext:
    context = detect(environ, ranks_per_host=_ranks_per_host(options), devices=devices)
    progress.update(context=context)
    return context


def _ranks_per_host(options: PreflightOptions) -> int:
    each = options.launch.ranks_per_host
    return each if isinstance(each, int) else 0


def _job_context(options: PreflightOptions, context: JobContext, devices: int = 0) -> JobContext:
    """Of the environment that the options name, where this process itself is in no job."""
    if options.source is None or context.tag != "no-job":
        return context
    return detect(options.source.environ, ranks_per_host=_ranks_per_host(options), devices=devices)


def _wait_for_table(context: JobContext, budget: TimeBudget, progress: GatherProgress) -> None:
    """Until it is complete there is nothing to evaluate. Raises: NotReady, when it never is."""
    from doctor.environment.mounted_rank_table import wait_for_table

    progress.heartbeat.activity = localized("waiting for the rank table to be completed")
    why = filled("rank table {0}: it was not completed before the budget ended", printable(context.rank_table_path))
    progress.pending = NotReady(why, "rank-table-not-complete")
    why = wait_for_table(context.rank_table_path, budget.start_time + budget.seconds * TABLE_WAIT_SHARE)
    if why:
        raise NotReady(why, progress.pending.cause)
    progress.pending = None


def _follow_leader(
    context: JobContext, scope: Scope, environ: Mapping[str, str], budget: TimeBudget, progress: GatherProgress
) -> LeaderVerdict | None:
    """The verdict of the process that checks this host for all; None when that is this one. Raises: NotReady."""
    from doctor.preflight.host_leader import LeaderVerdict, join

    if context.shares_host:
        progress.heartbeat.activity = localized("waiting for the process that checks this host")
    leader_or_verdict = join(context, scope, budget.end - 1.0, environ=environ, about=shlex.join(sys.argv[1:]))
    if isinstance(leader_or_verdict, LeaderVerdict):
        if leader_or_verdict.reason:
            raise NotReady(leader_or_verdict.reason, "no-verdict")
        return leader_or_verdict
    progress.leader, progress.heartbeat.activity = leader_or_verdict, localized("detecting the hosts")
    if leader_or_verdict.note:
        progress.add_notes(leader_or_verdict.note)
    return None


def _choose_candidates(options: PreflightOptions, environ: Mapping[str, str], progress: GatherProgress) -> list[Check]:
    """The checks of the options, of any tier, by what their files declare. Raises: CommandError."""
    from doctor.session.policy import validate_settings
    from doctor.session.select_checks import choose_checks, load_catalog

    catalog = progress.gathered.catalog or tuple(load_catalog(options.checks))
    progress.update(catalog=catalog)
    validate_settings(options.config, options.checks)
    skipped = read_skips(environ, [check.name for check in catalog]).names
    progress.update(skipped=tuple(sorted(skipped)))
    return choose_checks(catalog, options.select, options.ignore, roots=True)


def _select_checks(options: PreflightOptions, environ: Mapping[str, str], progress: GatherProgress) -> None:
    """Loads the catalogue, and refuses settings that could not be followed. Raises: CommandError."""
    candidates, tier = _choose_candidates(options, environ, progress), progress.gathered.tier
    tried = [check for check in candidates if options.net != "off" or not tests_network([check])]
    selected, excluded = checks_of_tier(tried, tier)
    of_job, _ = checks_of_tier(tried, options.tier)  # its first process may run more than this one
    progress.update(selected_checks=tuple(selected), left_out=left_out(options.select, candidates, of_job))
    if excluded:
        names = ", ".join(check.name for check in excluded)
        progress.update(excluded=tuple(check.area for check in excluded))
        progress.add_notes(filled("not checked in tier {0}: {1}", tier, names))
    if not selected:
        raise InputError(filled("--select, --ignore and --tier {0} leave no check to run", tier))


def _select_hosts(
    options: PreflightOptions, environ: Mapping[str, str], context: JobContext, scope: Scope
) -> Inventory:
    """This host alone, or those that the options, else the launcher, name. Raises: CommandError."""
    from doctor.environment.inventory import Inventory, InventoryError, resolve_hosts, without
    from doctor.session.select_hosts import select_inventory

    _require_files(options)
    if scope == "local":
        return Inventory((local_host_name(environ),), filled("this host alone ({0})", context.description), local=True)
    if options.hosts.names_hosts:
        return select_inventory(options.hosts)
    try:
        job_inventory = context.inventory()
        if job_inventory:
            return without(job_inventory, options.hosts.exclude)
        alone = resolve_hosts(options.hosts, {}, read_text_file)
    except InventoryError as error:
        raise InputError(str(error)) from None
    return msgspec.structs.replace(alone, hosts=(local_host_name(environ),))


def _require_files(options: PreflightOptions) -> None:
    """Raises: InputError for a file that the options name, and that cannot be read or written.

    Lists of hosts are not among them: that one was not written makes the verdict unknown.
    """
    named_files.require_connection_files(options.ssh, options.transport == "tree")
    named_files.require_rank_table(options.hosts.rank_table)
    outputs = [("--report", options.report), ("--save", options.save)]
    outputs += [(f"-f {target.name}", target.path) for target in requested_targets(options.formats)]
    for option, path in outputs:
        if path and path != STDOUT:
            named_files.require_writable(option, path)


def _examine(
    options: PreflightOptions,
    environ: Mapping[str, str],
    budget: TimeBudget,
    progress: GatherProgress,
    inventory: Inventory,
    mounted_rank_table: str,
    way: Transport | None = None,
) -> Examination:
    """Visits the hosts and evaluates the checks on them."""
    from doctor.session.examine import examine

    checks, heartbeat = progress.gathered.selected_checks, progress.heartbeat
    progress.events = open_event_streams(
        requested_targets(options.formats),
        inventory.hosts,
        [check.name for check in checks],
        inventory.source,
        options.redact,
    )
    heartbeat.expect(len(inventory.hosts))
    if options.source:
        inventory = options.source.annotate(inventory)
    examination = examine(
        inventory,
        checks,
        msgspec.structs.replace(_of_scope(_examine_options(options, progress.gathered, budget), inventory), way=way),
        environ,
        rank_table=options.hosts.rank_table or mounted_rank_table,
        progress=combine_callbacks(progress.keep_record, heartbeat.step, progress.events.host),
        stage=combine_callbacks(heartbeat.stage, progress.events.stage),
    )
    progress.update(examination=examination)
    return examination


def _examine_options(options: PreflightOptions, gathered: Gathered, budget: TimeBudget) -> ExamineOptions:
    """How hosts are visited, in the time that remains."""
    from doctor.session.examine_options import ExamineOptions
    from doctor.session.replay import EvaluationLimit

    seconds = budget.visit_seconds(len(gathered.hosts))
    is_local = gathered.inventory is not None and gathered.inventory.local
    examined = ExamineOptions(
        transport=options.transport,
        ssh=options.ssh,
        sudo=options.sudo,
        within=options.source.within(options.within, is_local) if options.source else options.within,
        timeout=min(60.0, seconds),
        budget=seconds,
        evaluation=EvaluationLimit(budget.evaluation_end),
        gates_job=options.exit_code_policy.profile == "job",
        launch=_launch(options),
        net=_net_options(options, gathered),
        smoke=_smoke_options(options, gathered.tier) if gathered.tier in TRAINING_TIERS else None,
        reads_settings=_keeps_settings(options),
    )
    if options.source is None:
        return examined
    from doctor.session.training_files import with_launch_line

    return with_launch_line(examined, options.source, options.job_script)


def _keeps_settings(options: PreflightOptions) -> bool:
    """Whether doctor.toml wants every setting kept; a file that cannot be read is reported where the run is kept."""
    from doctor.session.run_history import HistoryOptions, keeps_settings

    try:
        return options.keeps_history and keeps_settings(HistoryOptions("preflight", options.config))
    except ConfigError:
        return False


def _net_options(options: PreflightOptions, gathered: Gathered) -> NetOptions | None:
    """The network test of the tier; none where no check of it was chosen, or where there is one host alone."""
    from doctor.net.plan import NetOptions, tries_devices

    if not tests_network(gathered.selected_checks) or len(gathered.hosts) < 2 or options.net == "off":
        return None
    full = options.net == "full" or (not options.net and gathered.tier in TRAINING_TIERS)
    return NetOptions(mode="full" if full else "quick", devices=tries_devices(gathered.selected_checks))


def _of_scope(options: ExamineOptions, inventory: Inventory) -> ExamineOptions:
    """Where each host of the job checks itself, its number of hosts is no matter of one."""
    launch = options.launch
    is_whole = launch.starts_here or (len(launch.launchers) == 1 and launch.nodes == launch.max_nodes == 1)
    if is_whole or not inventory.source.startswith("this host alone ("):  # a line for one host says all of its job
        return options
    return msgspec.structs.replace(options, launch=launch.of_one_host())


def _launch(options: PreflightOptions) -> LaunchOptions:
    return options.source.complete(options.launch) if options.source else options.launch


def _smoke_options(options: PreflightOptions, tier: Tier) -> SmokeOptions:
    from doctor.smoke.plan import DEVICE_SECONDS, options_of_launch

    smoke = options_of_launch(_launch(options), options.source.environ if options.source else os.environ)
    return msgspec.structs.replace(smoke, device_seconds=DEVICE_SECONDS) if tier == "deep" else smoke
