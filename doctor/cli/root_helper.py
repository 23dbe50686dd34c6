"""`doctor root-helper`: the helper for `--sudo`, and the line that allows it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

import typer

from doctor import __version__
from doctor.collect.collector.collector import ROOT_HELPER
from doctor.collect.collector_request import probe_digest, probe_fields
from doctor.engine.errors import UsageError
from doctor.engine.fact import OWN_ROUND, Fact
from doctor.engine.streams import write_stdout
from doctor.engine.texts import filled
from doctor.facts.boot import boot_facts
from doctor.remote.bootstrap import assemble
from doctor.session.select_checks import load_catalog

_HEAD = f"""\
#!/usr/bin/python3 -IS
# cluster-doctor {__version__}: reads what only root may read, for `doctor check --sudo` of users who may call it.
# It runs the probes that are listed in it, which change nothing. Owner root, mode 0755.
# Install: doctor root-helper --print | sudo tee {ROOT_HELPER} >/dev/null; sudo chmod 0755 {ROOT_HELPER}
"""


def root_probes(facts: Iterable[type[Fact]]) -> dict[str, tuple[str, dict[str, object]]]:
    """Digest and fields of each probe that needs root and no answer of another host, by the fact's name."""
    return {
        fact.__name__: (probe_digest(probe_fields(fact.probe)), probe_fields(fact.probe))
        for fact in sorted({fact.shares or fact for fact in facts}, key=lambda fact: fact.__name__)
        if fact.probe.root and not fact.needs and fact.probe.kind not in ("visit", *OWN_ROUND)
    }


def helper_text(facts: Iterable[type[Fact]]) -> str:
    """The helper, as one file for Python 3.6 and later."""
    program = assemble("doctor.collect.collector.root_helper")
    listed = ",\n".join(f"    {name!a}: {list(entry)!a}" for name, entry in root_probes(facts).items())
    return f"{_HEAD}{program}\nPROBES = {{\n{listed}\n}}\nhelp_as_root(PROBES)\n"


def sudoers_line(user: str) -> str:
    """The line for ``/etc/sudoers.d``. Raises: ValueError for what is no name of a user or a group there: ``ALL`` is
    everybody, other words in capitals are aliases, and ``Defaults`` begins another kind of line.

    >>> sudoers_line("%hpc")
    '%hpc ALL=(root) NOPASSWD: /usr/local/sbin/doctor-probe ""'
    """
    is_word = re.fullmatch(r"[A-Z][A-Z0-9_]*|Defaults|(?:User|Runas|Host|Cmnd|Cmd)_Alias", user.lstrip("%"))
    if is_word or not re.fullmatch(r"%?[A-Za-z_][A-Za-z0-9_.-]{0,63}", user):
        raise ValueError(filled("{0}: expected a user, or %GROUP", repr(user)))
    return f'{user} ALL=(root) NOPASSWD: {ROOT_HELPER} ""'


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
