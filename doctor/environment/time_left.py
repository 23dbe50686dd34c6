"""How long the scheduler lets the job of this process still run.

Sources: sbatch(1) and srun(1), "OUTPUT ENVIRONMENT VARIABLES" (SLURM_JOB_END_TIME, of Slurm 22.05 and later);
squeue(1), ``%L``, the time that is left; Argonne, Cobalt (COBALT_ENDTIME). Other schedulers give their jobs no end.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from functools import partial

from doctor.engine.quantities import DAY
from doctor.environment.host_list import RunCommand, run_command
from doctor.job.job_script.directives import slurm_seconds
from doctor.job.launch_line import LaunchLine

_END_VARIABLES = ("SLURM_JOB_END_TIME", "COBALT_ENDTIME")
_FOREVER = 10 * 365 * DAY
"""Seconds; an end later than that is none."""
_ask_scheduler = partial(run_command, time_limit=3.0)
"""squeue that does not answer within as many seconds is not waited for."""


def seconds_left(
    environ: Mapping[str, str], run: RunCommand = _ask_scheduler, now: Callable[[], float] = time.time
) -> float | None:
    """Seconds until the scheduler ends the job; None for a job without an end, outside of a job, and if not known.

    ``squeue`` is asked where Slurm set no variable, by rank 0 and by processes that are no rank. Never raises.

    >>> seconds_left({"SLURM_JOB_END_TIME": "1700000600"}, now=lambda: 1700000000.0)
    600.0
    """
    for name in _END_VARIABLES:
        text = environ.get(name, "")
        if re.fullmatch(r"[0-9]{9,11}(\.[0-9]{1,9})?", text, re.ASCII):
            remaining = float(text) - now()
            return max(0.0, remaining) if remaining < _FOREVER else None
    job = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID") or ""
    if not re.fullmatch(r"[0-9]{1,12}", job, re.ASCII) or environ.get("SLURM_PROCID", "0") != "0":
        return None
    try:
        answer = run(["squeue", "--noheader", "--jobs", job, "--format", "%L"])
    except OSError:
        return None
    first = answer.strip().splitlines()[0].strip() if answer.strip() else ""
    left = slurm_seconds(first) if ":" in first or "-" in first else None  # without a colon it is no time
    return float(left) if left is not None else None


def step_limit(line: LaunchLine) -> int | None:
    """Seconds of the launch line's ``srun --time``, the shortest; None without one."""
    texts = [call.option("time") for call in line.launchers if call.launcher == "srun"]
    return min((seconds for seconds in map(slurm_seconds, texts) if seconds), default=None)
