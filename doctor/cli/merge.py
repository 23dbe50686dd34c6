"""`doctor merge`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from doctor.cli.expected_hosts import Expected, expected
from doctor.cli.selection import Names, Not, Sites, catalogue, chosen
from doctor.cli.shared_options import spread
from doctor.engine.errors import InputError, UsageError
from doctor.session.finish import Output, again, refuse_output


@spread
def command(
    *,
    paths: Annotated[list[Path], typer.Argument(metavar="DIR|FILE...", help="What doctor node wrote; - is stdin.")],
    fleet: Expected,
    select: Names = [],  # noqa: B006 - typer's way
    ignore: Not = [],  # noqa: B006
    checks: Sites = [],  # noqa: B006
    output: Output,
) -> None:
    """Judge a fleet by the files that doctor node left on each of its hosts.

    The hosts that must be there come from the first of: --expect, --hostfile, --rank-table, DOCTOR_HOSTS,
    DOCTOR_HOSTFILE, SLURM_JOB_NODELIST, RANK_TABLE_FILE; else from the files, and then a host that left none is not
    missed. A missing, broken or old file makes its host unknown.

    Clocks are not compared. NPUs do not ping those of other hosts: those checks are unknown where they apply, as all
    are that doctor node was told to leave out; --select and --ignore leave them out here, too.

    Exit codes: as doctor check.
    """
    refuse_output(output, checks)
    if output.from_file:
        raise UsageError("--from judges a saved run: expected it with doctor check")
    known = catalogue(checks)
    picked = chosen(known, select, ignore if select else [*ignore, "smoke"], roots=True)
    from doctor.collect.merge.files import read
    from doctor.collect.merge.merge import merge
    from doctor.collect.merge.stale import job
    from doctor.collect.protocol import union
    from doctor.report.layout.formatting import clean

    named = expected(fleet)
    where = ", ".join(clean(str(path)) for path in paths[:3]) + (", ..." if len(paths) > 3 else "")
    try:
        pile = read(paths)
    except OSError as error:
        raise InputError(
            f"{clean(str(error.filename or where))}: {error.strerror}; expected files of doctor node"
        ) from None
    if named is None and not pile.looks and not pile.unusable:
        raise InputError(f"{where}: holds no file of doctor node, and no host is expected; expected --expect NODES")
    again(
        merge(pile, named, union(fact for one in picked for fact in one.facts), where, job(os.environ)),
        picked,
        known,
        output,
    )
