"""Where `doctor diagnose` takes logs from: files that lie here, hosts, a job by its id, or a file of ``--save``."""

from __future__ import annotations

import glob
import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from doctor.cli.host_options import ConnectionOptions, VisitOptions, examine_options, ssh_options
from doctor.diagnose.bundle.read import read_bundles
from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.fetch.ask_hosts import LogRequest
from doctor.diagnose.fetch.collect import (
    DEFAULT_SINCE,
    CollectionOptions,
    collect_logs,
    default_places,
    parse_since,
    validate_places,
)
from doctor.diagnose.fetch.excerpt_reading import LOCAL
from doctor.diagnose.fetch.pod_logs import PodLogSource, read_pod_logs
from doctor.diagnose.fetch.saved_logs import SCHEMA, LogRecord, load_logs, save_logs
from doctor.diagnose.job import JobPlace
from doctor.diagnose.job.kinds import read_job
from doctor.diagnose.run import diagnose_found, diagnose_record
from doctor.diagnose.signature import Signature
from doctor.diagnose.suspects import check_suspects
from doctor.engine.errors import InputError, UsageError
from doctor.engine.record import LaunchOptions
from doctor.engine.sanitize import count_noun, printable
from doctor.engine.texts import filled
from doctor.environment.inventory import Inventory
from doctor.hosts.selection import HostSelection
from doctor.report.layout.progress_line import ProgressLine
from doctor.session.select_checks import load_catalog
from doctor.session.select_hosts import select_inventory
from doctor.session.select_pods import find_pods, inventory_of
from doctor.transport.options import CONNECT_TIMEOUT


class LogSelection(NamedTuple):
    """What the command line says of the logs."""

    paths: list[str]
    logs: list[str]
    since: str
    job: str
    from_file: Path | None
    hosts: str | None
    hostfile: str | None
    rank_table: str | None
    exclude: str | None
    pods: bool = False
    """The hosts are pods of Kubernetes."""

    @property
    def on_hosts(self) -> bool:
        """The logs are those on hosts, and the argument names these."""
        if self.pods:
            return bool(self.logs) and not self.from_file
        named = self.hosts or self.hostfile or self.rank_table
        return not (self.from_file or self.job) and bool(self.logs or self.since or (named and not self.paths))

    @property
    def of_pods(self) -> bool:
        """The logs are those that Kubernetes keeps of pods, and no files in them."""
        return self.pods and not (self.from_file or self.logs)

    def validate(self, check: bool, save: Path | None) -> None:
        """Raises: UsageError for options that contradict each other."""
        ways = [("--from", self.from_file), ("--job", self.job), ("PATH or HOSTS", self.paths)]
        present = [name for name, value in ways if value]
        if len(present) > 1:
            raise UsageError(filled("{0} and {1} are both given: expected one of them", present[0], present[1]))
        if not present and not self.on_hosts and not self.pods:
            raise UsageError("no logs are named: expected PATH, HOSTS with --logs, --job KIND:ID or --from FILE")
        if self.from_file and (self.logs or self.since):
            raise UsageError("--from reads saved lines; expected it without --logs and --since")
        if self.job and self.since and not self.logs and not self.pods:
            raise UsageError("--since is for --logs: expected --logs with it, as --job reads the job's own output")
        if self.on_hosts and len(self.paths) > 1:
            raise UsageError(
                filled(
                    "{0}: expected one list of hosts before --logs, such as node[01-16],gpu7",
                    f"{printable(self.paths[1], 60)!r}",
                )
            )
        if save and not (self.on_hosts or self.job or self.pods):
            raise UsageError("--save keeps the lines that hosts sent; expected it with --logs or --job")
        if check and self.paths and not (self.on_hosts or self.pods) and not self.selection.names_hosts:
            raise UsageError("--check needs the job's hosts: expected --hosts, --hostfile or --rank-table")
        parse_since(self.since or "all")

    @property
    def selection(self) -> HostSelection:
        nodes = self.paths[0] if self.on_hosts and self.paths else None
        return HostSelection(self.hosts, self.hostfile, self.rank_table, self.exclude, nodes)


def collection_options(connection: ConnectionOptions, visit: VisitOptions, request: LogRequest) -> CollectionOptions:
    """How the hosts are asked for their logs. ``request``: without the way in which its program is started."""
    within = tuple(shlex.split(connection.within))
    request = msgspec.structs.replace(request, timeout=visit.timeout, within=within, sudo=visit.sudo)
    ssh = ssh_options(connection)
    return CollectionOptions(transport=connection.transport, ssh=ssh, request=request, workers=visit.workers)


class LogSource:
    """Reads the logs that a selection names; keeps what ``--check`` needs to know of the hosts."""

    def __init__(
        self,
        selection: LogSelection,
        signatures: Mapping[str, Signature],
        connection: ConnectionOptions,
        visit: VisitOptions,
        limit: int,
        checks: bool = False,
    ) -> None:
        self.selection, self.signatures, self.limit = selection, signatures, limit
        self.connection, self.visit, self.checks = connection, visit, checks
        self.inventory: Inventory | None = None
        self.hosts: set[str] = set()
        """All that were asked, or that belong to the job."""

    def diagnosis(self, save: Path | None) -> Diagnosis:
        """Raises: CommandError for what cannot be read at all."""
        selection = self.selection
        if selection.from_file:
            record = load_logs(selection.from_file)
        elif selection.of_pods:
            record = self._pod_record()
        elif selection.job and not selection.pods:
            record = self._job_record(read_job(selection.job))
        elif selection.on_hosts:
            self.inventory = select_inventory(self.connection.select(selection.selection, selection.job))
            since = parse_since(selection.since) if selection.since else DEFAULT_SINCE
            record = self._collected(self.inventory, self._places(), since)
        elif bundled := read_bundles(selection.paths, self.signatures):
            record = bundled
        else:
            return self._of_files()
        if save:
            try:
                save_logs(save, record)
            except OSError as error:
                raise InputError(
                    filled("--save {0}: {1}; the lines were not saved", printable(str(save)), error.strerror)
                ) from None
        local = record.job_hosts == (LOCAL,)
        if self.inventory is None and not selection.selection.names_hosts and record.job_hosts and not local:
            self.inventory = Inventory(
                record.job_hosts, filled("{0} of {1}", count_noun(len(record.job_hosts), "host"), record.source)
            )
        self.hosts = {*record.hosts, *record.job_hosts}
        return diagnose_record(record, self.signatures)

    def _pod_record(self) -> LogRecord:
        """The logs of pods that the options name. Raises: CommandError."""
        selection, connection = self.selection, self.connection
        pod_names = selection.paths[0] if selection.paths else selection.hosts or ""
        choice = connection.select(HostSelection(), selection.job).pods
        assert choice is not None
        listing = find_pods(choice, pod_names)
        if not listing.pods:
            raise InputError(
                filled("the namespace {0} has no pod {1}", listing.namespace, ", ".join(listing.absent[:4]))
            )
        notes = (
            *listing.notes,
            *(filled("the namespace {0} has no pod {1}", listing.namespace, name) for name in listing.absent),
        )
        if self.checks:
            self.inventory = inventory_of(listing, choice.container)
        patience = choice.connect_timeout or CONNECT_TIMEOUT
        source = PodLogSource(
            listing.pods, listing.kubectl, listing.namespace, listing.source, choice.container, notes, patience
        )
        since = parse_since(selection.since or "all")
        request = LogRequest(
            places=(), since=since, limit=self.limit, timeout=self.visit.timeout, budget=self.visit.budget
        )
        with closing(ProgressLine(len(listing.pods), sys.stderr)) as progress:
            return read_pod_logs(source, request, self.signatures, lambda host, answered: progress.count(answered))

    def _of_files(self) -> Diagnosis:
        with closing(ProgressLine(1, sys.stderr, hosts=False)) as progress:
            return diagnose_found(self.selection.paths, self.signatures, progress.read, self.visit.budget)

    def _places(self) -> tuple[str, ...]:
        if self.selection.logs:
            is_here = self.inventory is not None and self.inventory.local and not self.connection.within
            return validate_places(self.selection.logs, is_here)
        return default_places(os.environ, os.getcwd())

    def _collected(self, inventory: Inventory, places: tuple[str, ...], since: float) -> LogRecord:
        request = LogRequest(places, since, limit=self.limit, budget=self.visit.budget, kernel=not inventory.local)
        options = collection_options(self.connection, self.visit, request)
        with closing(ProgressLine(len(inventory.hosts), sys.stderr)) as progress:
            return collect_logs(inventory, options, self.signatures, lambda host, answered: progress.count(answered))

    def _job_record(self, job: JobPlace) -> LogRecord:
        """The job's output, read here where it lies here, else on its hosts; and what ``--logs`` names on its hosts."""
        source = job.source
        here = [pattern for pattern in job.outputs if job.shared and glob.glob(pattern)]
        record = LogRecord(
            SCHEMA, source, "", tuple(job.outputs), 0.0, {}, job.texts, tuple(job.hosts), job.notes, job.logs
        )
        if here:
            local = self._collected(Inventory((LOCAL,), source, local=True), tuple(here), 0.0)
            record = msgspec.structs.replace(record, hosts=dict(local.hosts), started=local.started)
        places = validate_places(self.selection.logs) if self.selection.logs else ()
        if not here:
            places = (*job.outputs, *places)
        if places and job.hosts:
            inventory = Inventory(tuple(job.hosts), source)
            since = parse_since(self.selection.since or "all")
            remote = self._collected(inventory, places, since)
            record = msgspec.structs.replace(
                record,
                hosts={**record.hosts, **remote.hosts},
                started=remote.started,
                places=(*here, *places),
                since=since,
            )
        return record

    def checked(self, diagnosis: Diagnosis) -> Diagnosis:
        """With what the checks of the causes find now on the hosts that these name."""
        if not diagnosis.causes:
            return diagnosis

        if self.inventory is None:
            if not self.selection.selection.names_hosts:
                raise UsageError("--check needs the job's hosts, which these lines do not name: expected --hosts")
            self.inventory = select_inventory(self.selection.selection)
        inventory = self.inventory
        options = examine_options(self.connection, self.visit, LaunchOptions(), self.connection.within)
        with closing(ProgressLine(len(inventory.hosts), sys.stderr, hosts=False)) as progress:
            return check_suspects(
                diagnosis, self.signatures, inventory, load_catalog(()), options, os.environ, progress.step
            )
