"""`doctor merge`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from doctor.cli.expected_hosts import ExpectedHostOptions, expected_inventory, without_excluded
from doctor.cli.shared_options import CheckOptions, OutputOptions, expand_option_groups
from doctor.collect.collector_request import unique_facts
from doctor.collect.merge.merge_records import merge, slurm_job_run
from doctor.collect.merge.node_files import read_node_files
from doctor.collect.merge.node_records import NodeFiles
from doctor.engine.errors import InputError, UsageError
from doctor.engine.sanitize import first_names
from doctor.engine.texts import filled
from doctor.report.layout.formatting import clean
from doctor.session.finish import replay_and_report, validate_output
from doctor.session.select_checks import choose_with_rounds, load_catalog


@expand_option_groups
def command(
    *,
    paths: Annotated[
        list[Path], typer.Argument(metavar="DIR|FILE...", help="Files or folders written by doctor node; -: stdin.")
    ],
    fleet: ExpectedHostOptions,
    choice: CheckOptions,
    output: OutputOptions,
) -> None:
    """Evaluate the records that doctor node wrote on each host.

    The expected hosts come from the first of: --expect, --hostfile, --rank-table, DOCTOR_HOSTS, DOCTOR_HOSTFILE,
    SLURM_JOB_NODELIST, RANK_TABLE_FILE; else from the files, and then a host without a file is not noticed. A missing,
    broken or old file makes its host unknown.

    Clocks are not compared, and NPUs do not ping those of other hosts: these checks are unknown where they apply, and
    so is every check that doctor node skipped. --select and --ignore leave them out here as well.

    Exit codes: as doctor check.
    """
    validate_output(output, choice.checks)
    if output.from_file:
        raise UsageError("--from reads a saved run: expected it with doctor check")
    catalog = load_catalog(choice.checks)
    selected = choose_with_rounds(catalog, choice.select, choice.ignore)

    named = expected_inventory(fleet)
    where = first_names([clean(str(path)) for path in paths[:4]], 3)
    node_files = _read(paths, where)
    facts = unique_facts(fact for check in selected for fact in check.facts)
    if named is None and not node_files.records:
        node_files = NodeFiles((), tuple(msgspec.structs.replace(bad, host="") for bad in node_files.unusable))
    run = merge(node_files, named, facts, where, slurm_job_run(os.environ))
    if not run.hosts:
        for entry in node_files.unusable:
            raise InputError(filled("{0}: {1}", entry.location, entry.reason))
        raise InputError(filled("{0}: no file of doctor node, and no host list; expected --expect NODES", where))
    if named is None:
        run = without_excluded(run, where, fleet.exclude)
    raise typer.Exit(replay_and_report(run, selected, catalog, output))


def _read(paths: list[Path], where: str) -> NodeFiles:
    """Raises: CommandError."""
    try:
        return read_node_files(paths)
    except OSError as error:
        name = clean(str(error.filename or where))
        raise InputError(filled("{0}: {1}; expected files written by doctor node", name, error.strerror)) from None
