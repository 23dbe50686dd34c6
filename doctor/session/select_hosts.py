"""The hosts that a command is for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from doctor.engine.errors import InputError, UsageError

if TYPE_CHECKING:
    from doctor.environment.host_selection import HostSelection
    from doctor.environment.inventory import Inventory


def select_inventory(selection: HostSelection, environ: Mapping[str, str] | None = None) -> Inventory:
    """The hosts that the options name, else the environment: this shell's, or ``environ``. Raises: CommandError.

    Raises UsageError (exit code 2) for options that contradict each other, InputError (78) for hosts, hostfiles and
    rank tables that cannot be read.
    """
    from doctor.environment.inventory import InventoryError, resolve_hosts
    from doctor.environment.text_files import read_text_file
    from doctor.session.named_files import require_rank_table

    require_rank_table(selection.rank_table)
    if selection.nodes and selection.hosts:
        raise UsageError("HOSTS and --hosts are both given: expected one of them")
    try:
        return resolve_hosts(selection, os.environ if environ is None else environ, read_text_file)
    except InventoryError as error:
        raise InputError(str(error)) from None
