"""What one process of a job checks, by its job context. Pure.

- Started once, by a batch script or by hand: it checks the fleet.
- Started on every host or rank: one process of each host checks that host, and rank 0 alone the fleet. No rank learns
  another host's verdict. It need not: srun, mpirun and torchrun end a job as soon as one process of it fails, so the
  job begins only where all end with 0. A script that starts its ranks itself has to check all their codes.
"""

from __future__ import annotations

from typing import Literal

from doctor.environment.job_context import JobContext

Scope = Literal["local", "cluster", "follower"]
"""Its own host, the fleet, or nothing, as another process of its host does."""
RequestedScope = Literal["auto", "local", "cluster"]


def choose_scope(context: JobContext, requested: RequestedScope = "auto") -> Scope:
    """What this process checks. ``requested``: the user's choice; ``auto``: by the context.

    Where the rank within the host is not known, no process is a follower by its number:
    `doctor.preflight.host_leader` lets the first process check the host.
    """
    first_of_host = not context.shares_host or context.local_rank in (0, None)
    if requested == "cluster":
        return "cluster" if first_of_host or context.leads_fleet else "follower"
    if requested == "auto" and context.leads_fleet:
        return "cluster"
    return "local" if first_of_host else "follower"
