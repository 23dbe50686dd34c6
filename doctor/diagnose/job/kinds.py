"""The kinds of jobs that ``--job KIND:ID`` names: one row for each."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from doctor.diagnose.job.model_arts import read_model_arts
from doctor.diagnose.job.place import JobPlace
from doctor.diagnose.job.ray import read_ray
from doctor.diagnose.job.slurm import read_slurm
from doctor.engine.errors import InputError, UsageError
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled, joined
from doctor.environment.commands import RunCommand, run_command


class JobKind(msgspec.Struct, frozen=True):
    """One kind."""

    form: str
    """How it is written."""
    read: Callable[[str, RunCommand], JobPlace]
    """From what stands behind the colon. Raises: ValueError for another form; InputError for an unknown job."""


JOB_KINDS = {
    "slurm": JobKind("slurm:ID, such as slurm:1234 or slurm:1234_7", read_slurm),
    "ray": JobKind("ray:ADDRESS/ID, such as ray:head:8265/raysubmit_Xyz", read_ray),
    "modelarts": JobKind("modelarts:FOLDER, with the logs of a ModelArts training job", read_model_arts),
}


def read_job(text: str, run: RunCommand = run_command) -> JobPlace:
    """The job that ``KIND:ID`` names.

    Raises: UsageError for another form; InputError (exit code 78) for a job that is not known.
    """
    kind, _, name = text.partition(":")
    forms = {kind: JOB_KINDS[kind]} if kind in JOB_KINDS else JOB_KINDS
    if kind in JOB_KINDS:
        try:
            return JOB_KINDS[kind].read(name, run)
        except ValueError:
            pass
    expected = joined("; ", (row.form for row in forms.values()))
    raise UsageError(filled("--job {0}: expected {1}", f"{printable(text, 60)!r}", expected))


def read_live_job(text: str, run: RunCommand = run_command) -> JobPlace:
    """The same, of a job that runs. Raises: also InputError where no host is known."""
    job = read_job(text, run)
    if not job.hosts:
        raise InputError(filled("--job {0}: no host of it is known; expected a job that runs", printable(text, 200)))
    return job
