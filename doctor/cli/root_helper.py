"""`doctor root-helper`: the helper for `--sudo`, and the line that allows it."""

from __future__ import annotations

from typing import Annotated

import typer

from doctor.collect.root_helper import helper_text, sudoers_line
from doctor.engine.errors import UsageError
from doctor.engine.streams import write_stdout
from doctor.engine.texts import filled
from doctor.facts.boot import boot_facts
from doctor.session.select_checks import load_catalog


def command(
    *,
    print_: Annotated[bool, typer.Option("--print", help="Write the helper to stdout, as one Python file.")] = False,
    sudoers: Annotated[
        str, typer.Option(metavar="USER", help="Write the line for /etc/sudoers.d; %GROUP for a group.")
    ] = "",
) -> None:
    """Write the helper by which --sudo needs no right but one.

    It is installed on each host as /usr/local/sbin/doctor-probe, owned by root. --sudo then calls it: it runs the
    probes that are listed in it, as root, and nothing that comes over the connection.

    Exit codes: 0 written; 2 usage.
    """
    if print_ == bool(sudoers):
        raise UsageError("expected one of --print and --sudoers USER, for example doctor root-helper --print")
    if sudoers:
        try:
            write_stdout(sudoers_line(sudoers))
        except ValueError as error:
            raise UsageError(filled("--sudoers {0}", error)) from None
        return
    checks = load_catalog([])
    write_stdout(helper_text([*(fact for check in checks for fact in check.facts), *boot_facts(checks)]))
