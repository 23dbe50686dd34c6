"""One examination, from targets to report: the only module that knows both halves, gathering and judging."""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from doctor import __version__
from doctor.collect.collector_request import CollectOptions, unique_facts
from doctor.collect.fanout import RecordCallback, RunInterrupted, TimeLimits
from doctor.collect.rounds import run_rounds
from doctor.engine.bounded_read import read_bounded_text
from doctor.engine.check import Check
from doctor.engine.fact import Fact, Visit
from doctor.engine.quantities import number_text
from doctor.engine.record import SCHEMA, HostRecord, LaunchOptions, ProbeInputs, RankTableFile, Run
from doctor.engine.result import Report
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled, joined
from doctor.engine.utc_time import utc_text
from doctor.environment.schedulers import batch_allocation
from doctor.facts.slurm import services_of
from doctor.job import LaunchConfig
from doctor.job.job_size import OF_STEP, RANK_OF_TORCHRUN
from doctor.job.rank_table import load_rank_table
from doctor.job.variables import at_start, relevant
from doctor.session.connection import ssh_to
from doctor.session.examine_options import ExamineOptions
from doctor.session.remedy_values import container_views, needed_facts
from doctor.session.replay import Examination, launch_on_hosts, replay
from doctor.session.saved_parts import smoke_run
from doctor.smoke.model import SmokeRun
from doctor.transport.open import open_transport
from doctor.transport.options import workers

if TYPE_CHECKING:
    from doctor.environment.inventory import Inventory
    from doctor.net.run.network_round import NetRoundResult
    from doctor.smoke.plan import SmokeOptions
    from doctor.smoke.run.channels import AgentSession
    from doctor.smoke.run.round import SmokeRoundResult, StageCallback
    from doctor.transport import Transport

ROUNDS_SHARE = 0.4
"""Part of the time budget for the first two rounds when a smoke run follows."""

BEFORE_NET_SHARE = 0.6
"""The same when a network test follows, and no smoke run."""
NET_SHARE = 0.4
"""Part of what then remains for the network test when a smoke run follows it."""
MIN_NET_SECONDS = 5.0
AS_NOW = (
    "as after a reboot: files, units and rules that are loaded at boot are judged; hardware, addresses and what other"
    " hosts see are taken as they are now"
)
"""The note of a report as after a reboot."""


def examine(
    inventory: Inventory,
    checks: Sequence[Check],
    options: ExamineOptions,
    environ: Mapping[str, str],
    *,
    rank_table: str = "",
    progress: RecordCallback = lambda host, record: None,
    stage: StageCallback = lambda name, seconds: None,
) -> Examination:
    """Reads the hosts and evaluates the checks. Never raises for a host's error.

    Raises: ValueError for options that contradict themselves; `doctor.transport.TransportError` never.
    """
    clock, started = time.monotonic(), utc_text()
    job = _JobInput(inventory, options, environ, rank_table)
    hosts = inventory.hosts
    stopped: BaseException | None = None
    records: dict[str, HostRecord] = {}
    warnings: list[str] = []
    net_notes: tuple[str, ...] = ()
    smoke_round: SmokeRoundResult | None = None
    closing: threading.Thread | None = None
    if hosts:
        transport = options.way or open_transport(
            inventory.local, options.transport, ssh_to(inventory, options.ssh, options.transport), hosts
        )
        facts = unique_facts(_facts_to_read(checks, options))
        arguments = _arguments(job.probe_inputs, job.launch, options, environ, is_local=inventory.local)
        ask = CollectOptions(facts, arguments, options.sudo, tuple(shlex.split(options.within)))
        share = ROUNDS_SHARE if options.smoke else BEFORE_NET_SHARE if options.net else 1.0
        limits = TimeLimits(options.timeout, options.budget * share, options.workers or workers(len(hosts)))
        try:
            records = run_rounds(hosts, transport, ask, limits, inventory.local, progress)
            if options.net:
                net_round = _net_round(
                    records, job, transport, options, _topology(inventory, options, environ), clock, stage
                )
                records, stopped, net_notes = net_round.records, net_round.stopped, net_round.notes
            if options.smoke and stopped is None:
                smoke_round = _smoke_round(records, inventory, transport, options, clock, stage)
                stopped = smoke_round.stopped
        except RunInterrupted as partial:
            records, stopped = partial.records, partial.interrupt
        finally:
            closing = _close(transport, wait=not options.budget)
        warnings = [*transport.warnings, *net_notes]
    run = job.run(started, clock, smoke_round.records if smoke_round else records, warnings, smoke_round, stopped)
    if options.after_reboot:
        run = msgspec.structs.replace(run, after_reboot=True, notes=(AS_NOW, *run.notes))
    report = _evaluated(run, checks, options, inventory)
    return Examination(run, report, stopped, smoke_round.rejection if smoke_round else "", closing, options.code)


def _arguments(
    inputs: ProbeInputs, launch: LaunchOptions, options: ExamineOptions, caller: Mapping[str, str], *, is_local: bool
) -> dict[str, object]:
    """What questions on the hosts get: what the run keeps, how the launcher logs in, and what a job starts with."""
    is_of_job, by_login = bool(options.job_environ) or options.gates_job, options.by_login and not is_local
    likely = options.likely_paths if by_login else []

    def placed(*paths: str) -> list[str]:
        return sorted({os.path.abspath(p) for p in paths if p and (is_local or p in likely or os.path.isabs(p))})

    module = [os.path.abspath(part) if part == "." or "/" in part else part for part in options.module]
    return {
        **msgspec.to_builtins(inputs),
        "services": services_of(LaunchConfig.from_options(launch)),
        "login": msgspec.to_builtins(options.login) if options.login else None,
        "import_folder": options.import_folder,
        "program": "".join(placed(options.program)),
        **{name: placed(*getattr(options, name)) for name in ("files", "inputs", "results")},
        "is_started": options.is_started,
        "likely": [path if path == "." else os.path.abspath(path) for path in likely],
        "by_login": by_login,
        "module": module if is_local or "." in likely or _is_sure_elsewhere(options) else (),
        "output": "".join(placed(options.output)),
        "counts_gpus": options.counts_gpus,
        "environ": at_start(options.job_environ or caller, is_of_job, options.launch.launchers[:1] == ("srun",)),
    }


def _is_sure_elsewhere(options: ExamineOptions) -> bool:
    """Which Python starts on other hosts, and where, does not depend on their logins.

    srun alone gives its tasks the PATH and PYTHONPATH of this shell; else the line must name the path of a Python.
    """
    is_named = options.launch.python in options.module[:1] and not options.job_environ.get("PYTHONPATH")
    starts = is_named or options.launch.launchers[:1] == ("srun",)
    return starts and len(options.module) > 2 and all(map(os.path.isabs, options.module[:3:2]))


def _rank_to_be(inventory: Inventory, options: ExamineOptions, environ: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The rank that this process is, by host, where no launcher of a launch line numbers it anew."""
    is_rank = options.gates_job and inventory.local and not options.launch.read_from
    if not is_rank or not (environ.get("RANK") and environ.get("WORLD_SIZE")):
        return {}
    of_torchrun = any(environ.get(name) for name in RANK_OF_TORCHRUN)
    of_slurm = ("SLURM_PROCID", "SLURM_NTASKS") if environ.get(OF_STEP) else ()
    of_task = () if of_torchrun else ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", *of_slurm)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", *of_task)
    return {inventory.hosts[0]: {name: printable(environ[name], 40) for name in names if environ.get(name)}}


def _facts_to_read(checks: Sequence[Check], options: ExamineOptions) -> list[type[Fact]]:
    if options.after_reboot:
        from doctor.facts.boot import boot_facts

        return [*boot_facts(checks), *container_views(checks)]
    facts = [*needed_facts(checks)]
    if options.net:
        from doctor.net.plan import input_facts

        facts += input_facts(options.net)
    if options.reads_settings:
        from doctor.facts.settings import READ_FOR_CHANGES

        facts += READ_FOR_CHANGES
    return facts


def _close(transport: Transport, wait: bool) -> threading.Thread:
    """Ends the connections beside the evaluation: hosts that hang let it take seconds."""
    thread = threading.Thread(target=transport.close, daemon=True)
    thread.start()
    if wait:
        thread.join()
    return thread


def examine_smoke(
    inventory: Inventory,
    agents: AgentSession,
    transport: Transport,
    checks: Sequence[Check],
    options: ExamineOptions,
    environ: Mapping[str, str],
    *,
    rank_table: str = "",
    progress: RecordCallback = lambda host, record: None,
    stage: StageCallback = lambda name, seconds: None,
    meanwhile: Iterator[object] = iter(()),
) -> Examination:
    """The smoke run alone, on hosts that are already chosen: its agents' visit is the only one.

    ``checks`` must need nothing but the smoke run, and what any visit tells. ``meanwhile``: work for the time in which
    hosts import torch.
    """
    from doctor.smoke.run.round import run_single_round
    from doctor.smoke.run.supervisor import smoke as run_again

    assert options.smoke is not None
    started, job = utc_text(), _JobInput(inventory, options, environ, rank_table)
    try:
        slots = dict(agents.slots)
        smoke_round = run_single_round(
            agents,
            _meeting_in_pods(options.smoke, inventory),
            on_stage=stage,
            on_host=progress,
            meanwhile=meanwhile,
            repeat=lambda other: run_again(slots, transport, other, local=inventory.local),
        )
    finally:
        transport.close()
    run = job.run(started, agents.began, smoke_round.records, transport.warnings, smoke_round, smoke_round.stopped)
    report = _evaluated(run, () if smoke_round.rejection else checks, options, inventory)
    return Examination(run, report, smoke_round.stopped, smoke_round.rejection)


def examine_partial(
    inventory: Inventory,
    records: Mapping[str, HostRecord],
    checks: Sequence[Check],
    options: ExamineOptions,
    environ: Mapping[str, str],
    why: str,
    stopped: BaseException | None,
    *,
    rank_table: str = "",
) -> Examination:
    """Evaluates the existing records; every other host is unknown, with the reason."""
    absent_record = HostRecord(Visit("budget", why))
    complete = {host: records.get(host, absent_record) for host in inventory.hosts}
    run = _JobInput(inventory, options, environ, rank_table).run(
        utc_text(), time.monotonic(), complete, (), None, stopped
    )
    return Examination(run, _evaluated(run, checks, options, inventory), stopped)


def _evaluated(run: Run, checks: Sequence[Check], options: ExamineOptions, inventory: Inventory) -> Report:
    report = replay(run, checks, options.evaluation)
    words = (*options.connection_words, *inventory.connection_words)
    return msgspec.structs.replace(
        report, connection_words=words, smoke_words=options.smoke.words if options.smoke else ()
    )


def _names_among_hosts(inventory: Inventory) -> tuple[str, ...]:
    """What the hosts call each other: their names in the report, but of pods that a service names."""
    names = inventory.pods.names if inventory.pods else {}
    return tuple(names.get(host, host) for host in inventory.fleet or inventory.hosts)


def _meeting_in_pods(smoke: SmokeOptions, inventory: Inventory) -> SmokeOptions:
    """Ranks in pods meet at the first pod's address, which no connection to it shows, unless the user names another."""
    if inventory.pods is None or smoke.master_addr or len(inventory.hosts) < 2:
        return smoke
    return msgspec.structs.replace(smoke, master_addr=inventory.pods.addresses.get(inventory.hosts[0], ""))


class _JobInput:
    """Job settings of the command line and the environment, and the run built from them."""

    def __init__(
        self, inventory: Inventory, options: ExamineOptions, environ: Mapping[str, str], rank_table: str
    ) -> None:
        self.inventory = inventory
        self.launch = msgspec.structs.replace(
            options.launch,
            environ=options.launch.environ if options.launch.read_from else options.launch.environ or relevant(environ),
            rank_table=options.launch.rank_table or rank_table,
            ranks_per_host=options.launch.ranks_per_host or dict(inventory.slots) or None,
            by_host=options.launch.by_host or _rank_to_be(inventory, options, environ),
        )
        self.training = msgspec.to_builtins(options.training) if options.training else {}
        others = {LaunchConfig.from_options(other).rank_table_path for other in options.launch.others}
        self.other_tables = {path: _read_rank_table(path) for path in sorted(others) if os.path.isfile(path)}
        launch = LaunchConfig.from_options(self.launch)
        is_read = not self.other_tables or os.path.isfile(launch.rank_table_path)
        self.table = _read_rank_table(launch.rank_table_path if is_read else "")
        probe_inputs = _probe_inputs(
            _names_among_hosts(inventory),
            launch,
            self.table,
            {**environ, **options.job_environ} if options.gates_job or batch_allocation(environ) else {},
            is_carried=batch_allocation(environ) is not None or inventory.local,
        )
        folders = (*probe_inputs.folders, *filter(os.path.isabs, options.results))
        self.probe_inputs = msgspec.structs.replace(probe_inputs, paths=options.paths, folders=folders)

    def _rank_table(self) -> str:
        """Which rank table was checked, for the head of the report; empty where the hosts are from it, or none was."""
        name = printable(self.table.path, 200) if self.table.path else ""
        return filled("; rank table: {0}", name) if name and name not in self.inventory.source else ""

    def _environment(self) -> str:
        """Whose environment was checked, for the head of the report; empty: this shell's."""
        return filled("; environment: of {0}", self.launch.read_from) if self.launch.read_from else ""

    def run(
        self,
        started: str,
        clock: float,
        records: dict[str, HostRecord],
        warnings: Sequence[str],
        smoke_round: SmokeRoundResult | None,
        stopped: BaseException | None,
    ) -> Run:
        from doctor.session.link_coverage import link_coverage

        smoke = smoke_run(smoke_round.smoke) if smoke_round else None
        tried = link_coverage(records, smoke if isinstance(smoke, SmokeRun) else None)
        notes = [*self.inventory.notes, *warnings, *tried]
        if stopped is not None:
            notes.append("interrupted: the report covers only what was read until then")
        return Run(
            SCHEMA,
            joined("", (self.inventory.source, self._rank_table(), self._environment())),
            started,
            round(time.monotonic() - clock, 3),
            records,
            self.probe_inputs,
            self.launch,
            self.table,
            (*notes, *(smoke_round.notes if smoke_round else ())),
            __version__,
            smoke_round.smoke if smoke_round else {},
            other_rank_tables=self.other_tables,
            hosts_unknown=self.inventory.hosts_unknown,
            training=self.training,
        )


def _topology(inventory: Inventory, options: ExamineOptions, environ: Mapping[str, str]) -> str:
    """The switches between the hosts, in the form of topology.conf: as given, by labels of nodes, or Slurm's."""
    from doctor.net.host_groups import slurm_topology

    if options.net and options.net.topology:
        return options.net.topology
    if inventory.pods is None:
        return slurm_topology(environ)
    from doctor.transport.kubernetes.topology import switches_of_pods

    return switches_of_pods(inventory.pods)


def _net_round(
    records: dict[str, HostRecord],
    job: _JobInput,
    transport: Transport,
    options: ExamineOptions,
    topology: str,
    clock: float,
    stage: StageCallback,
) -> NetRoundResult:
    """The network test, within what is left of the budget."""
    from doctor.net.run.network_round import NetRoundResult, run_net_round, without_net_answers

    assert options.net
    net, remaining = options.net, options.budget - (time.monotonic() - clock)
    if options.budget and options.smoke:
        remaining *= NET_SHARE
    if options.budget and remaining < MIN_NET_SECONDS:
        return NetRoundResult(
            without_net_answers(records, filled("the budget of {0} s ended before it", number_text(options.budget)))
        )
    if options.budget:
        net = msgspec.structs.replace(net, budget=min(net.budget, remaining))
    net = msgspec.structs.replace(net, topology=topology)
    within = tuple(shlex.split(options.within))
    launch = launch_on_hosts(job.launch, records)
    return run_net_round(records, launch, transport, net, within=within, on_phase=stage)


def _smoke_round(
    records: dict[str, HostRecord],
    inventory: Inventory,
    transport: Transport,
    options: ExamineOptions,
    clock: float,
    stage: StageCallback,
) -> SmokeRoundResult:
    """The smoke run, within what is left of the budget."""
    from doctor.smoke.run.round import not_started, run_smoke_round

    assert options.smoke
    smoke_options, remaining = _meeting_in_pods(options.smoke, inventory), options.budget - (time.monotonic() - clock)
    if options.budget and remaining < 1:
        return not_started(records, filled("the budget of {0} s ended before it", number_text(options.budget)))
    if options.budget:
        smoke_options = msgspec.structs.replace(smoke_options, budget=min(smoke_options.budget, remaining))
    within = tuple(shlex.split(options.within))
    return run_smoke_round(
        records, inventory.slots, transport, smoke_options, local=inventory.local, within=within, on_stage=stage
    )


def _read_rank_table(path: str) -> RankTableFile:
    """The rank table as it was found; an empty one without a path."""
    if not path:
        return RankTableFile()
    return load_rank_table(path, read_bounded_text, str(Path(path).readlink()) if Path(path).is_symlink() else "")


def temporary_folder(environ: Mapping[str, str]) -> str:
    """The job's TMPDIR, where it is an absolute path."""
    path = environ.get("TMPDIR", "")
    return path if os.path.isabs(path) else ""


def job_folders(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The folders that a job which starts here writes to."""
    folders = [temporary_folder(environ), environ.get("HOME", "")]
    with suppress(OSError):
        folders.append(str(Path.cwd()))
    return tuple(dict.fromkeys(folder for folder in folders if os.path.isabs(folder)))


def _probe_inputs(
    hosts: Sequence[str], launch: LaunchConfig, table: RankTableFile, job_environ: Mapping[str, str], is_carried: bool
) -> ProbeInputs:
    """Inputs of the probes. ``job_environ``: empty where no job starts here. ``is_carried``: all ranks have it."""
    path = table.path
    return ProbeInputs(
        hosts=tuple(hosts),
        python=launch.python,
        master_addr=launch.master_addr,
        announces_name=launch.announces_name,
        folders=job_folders(job_environ) if job_environ else (),
        temporary_folder=temporary_folder(job_environ) if is_carried else "",
        ports=(launch.master_port, *(port for span in launch.hccl_ports for port in range(span.first, span.last + 1))),
        rank_table=path if not path or os.path.isabs(path) else str(Path.cwd() / path),
    )
