"""A place in words: for people, and for one word of a line. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from doctor.engine.sanitize import printable
from doctor.environment.mounted_rank_table import Table
from doctor.environment.nested_rank import Ranked
from doctor.environment.platforms import Platform

if TYPE_CHECKING:
    from doctor.environment.context import Place

_OWN = {"torchrun": "torchrun", "mpirun": "openmpi", "mpiexec": "mpich", "msrun": "msrun", "environment": "shell"}


def kind(environ: Mapping[str, str], platform: Platform | None, ranked: Ranked, table: Table | None) -> str:
    """The platform; without one the launcher; without one where the hosts are from."""
    if platform:
        return platform.kind
    if table and ranked.launcher in ("", "environment"):
        return "rank-table"
    if ranked.launcher:
        return _OWN[ranked.launcher]
    return "hosts" if "DOCTOR_HOSTS" in environ else "hostfile" if "DOCTOR_HOSTFILE" in environ else "alone"


def words(place: Place, environ: Mapping[str, str], platform: Platform | None) -> str:
    """``Slurm job 1234, step 0, task 3 of 8 on n2``."""
    parts = [platform.words] if platform else []
    if place.started == "prolog":
        parts.append(environ["SLURM_SCRIPT_CONTEXT"].partition("_")[0])
    elif place.started == "ranks":
        parts += _as_rank(place, environ)
    elif place.started == "hosts":
        number = "?" if place.node_rank is None else place.node_rank
        parts.append("scheduler" if place.scheduler else f"host {number} of {place.nodes or '?'}")
    elif place.kind == "slurm":
        step = environ.get("SLURM_STEP_ID")
        parts += [f"step {printable(step, 20)}"] if step else ["batch script"] if "SLURM_PROCID" in environ else []
    elif not platform and place.source:
        parts.append(place.source)
    text = ", ".join(parts) or "this host alone"
    host = environ.get("SLURMD_NODENAME", "") if place.kind == "slurm" else ""
    return f"{text} on {printable(host, 60)}" if host else text


def _as_rank(place: Place, environ: Mapping[str, str]) -> list[str]:
    of = f"{'?' if place.rank is None else place.rank} of {place.world or '?'}"
    if place.launcher == "srun":
        return [f"step {printable(environ['SLURM_STEP_ID'], 20)}", f"task {of}"]
    if place.scheduler:
        return ["msrun's scheduler"]
    made = "a loop in a shell" if place.launcher in ("environment", "") else place.launcher
    return [f"{made}, rank {of}"]


def tag(place: Place) -> str:
    """
    >>> from doctor.environment.context import Place
    >>> tag(Place(kind="slurm", words="", tag="", job="12 34", launcher="torchrun", started="ranks"))
    'slurm:12_34/torchrun'
    """
    word = f"{place.kind}:{place.job}" if place.job else place.kind
    inner = _OWN.get(place.launcher, "") if place.started == "ranks" else ""
    word += f"/{inner}" if inner and inner != place.kind and place.kind != "rank-table" else ""
    return re.sub(r"[^A-Za-z0-9._:@+/-]", "_", word)[:80]
