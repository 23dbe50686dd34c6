"""The hosts that a command is for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from doctor.engine.errors import InputError, UsageError

if TYPE_CHECKING:
    from doctor.environment.host_selection import HostSelection
    from doctor.environment.inventory import Inventory


def select_inventory(selection: HostSelection) -> Inventory:
    """The hosts that the options name, else the environment. Raises: CommandError.

    Raises UsageError (exit code 2) for options that contradict each other, InputError (78) for hosts, hostfiles and
    rank tables that cannot be read.
    """
    from doctor.environment.inventory import InventoryError, resolve_hosts
    from doctor.environment.text_files import read_text_file
    from doctor.session.named_files import require_rank_table

    require_rank_table(selection.rank_table)
    named = {"HOSTS": selection.nodes, "--hosts": selection.hosts, "--hostfile": selection.hostfile}
    given = [option for option, value in named.items() if value]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} are both given: expected one of them")
    try:
        return resolve_hosts(selection, os.environ, read_text_file)
    except InventoryError as error:
        raise InputError(str(error)) from None
