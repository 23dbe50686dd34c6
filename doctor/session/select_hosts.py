"""The hosts that a command is for."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from doctor.engine.bounded_read import read_text_file
from doctor.engine.errors import InputError, UsageError
from doctor.engine.texts import filled
from doctor.environment.inventory import Inventory, InventoryError, resolve_hosts
from doctor.environment.job_context import detect
from doctor.hosts.selection import HostSelection
from doctor.session.named_files import require_rank_table


def select_inventory(
    selection: HostSelection, scope: str = "local", environ: Mapping[str, str] | None = None, ranks_per_host: int = 0
) -> Inventory:
    """The hosts that the options name, else the environment: this shell's, or ``environ``. Raises: CommandError.

    ``scope``: ``auto`` notes why the job may have more hosts than the environment lists; ``local``: these are enough.
    ``ranks_per_host``: as the user says; 0: not said.

    Raises UsageError (exit code 2) for options that contradict each other, InputError (78) for hosts, hostfiles and
    rank tables that cannot be read.
    """
    environ = os.environ if environ is None else environ
    if selection.pods is not None:
        from doctor.session.select_pods import pods_inventory

        return pods_inventory(selection)
    require_rank_table(selection.rank_table)
    named = {"HOSTS": selection.nodes, "--hosts": selection.hosts, "--hostfile": selection.hostfile}
    used = [option for option, value in named.items() if value]
    if len(used) > 1:
        raise UsageError(filled("{0} and {1} are both given: expected one of them", used[0], used[1]))
    try:
        inventory = resolve_hosts(selection, environ, read_text_file)
    except InventoryError as error:
        raise InputError(str(error)) from None
    if scope == "local" or selection.names_hosts:
        return inventory
    context = detect(environ, read_text_file, ranks_per_host=ranks_per_host)
    unknown = context.hosts_unknown
    if inventory.local and context.hosts and len(context.hosts) > 1:  # of a platform whose hosts may not be reachable
        text = "{0} names {1} hosts of the job, and this host alone was checked"
        unknown = filled(text, context.hosts_source, len(context.hosts))
    return msgspec.structs.replace(inventory, hosts_unknown=unknown or context.hosts_error)
