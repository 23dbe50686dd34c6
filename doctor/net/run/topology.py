"""Slurm's topology.conf, where this process can read it: which switch each host hangs from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from doctor.engine.bounded_read import read_bounded_text
from doctor.engine.errors import InputError
from doctor.engine.texts import filled
from doctor.net.host_groups import MAX_CONF_BYTES

FILE = "topology.conf"
FOLDER = "/etc/slurm"


def topology_of(path: Path) -> str:
    """The text of the file that a user named. Raises: InputError."""
    try:
        return read_bounded_text(path, MAX_CONF_BYTES)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "is not text"
        raise InputError(filled("--topology {0}: {1}; expected Slurm's topology.conf", path, why)) from None


def slurm_topology(environ: Mapping[str, str]) -> str:
    """The text of the file beside slurm.conf, which SLURM_CONF names; empty where there is none.

    Source: https://slurm.schedmd.com/slurm.conf.html (SLURM_CONF), https://slurm.schedmd.com/topology.conf.html
    """
    named = environ.get("SLURM_CONF", "")
    folder = Path(named).parent if named else Path(FOLDER)
    try:
        return read_bounded_text(folder / FILE, MAX_CONF_BYTES)
    except (OSError, ValueError):
        return ""
