"""The kinds of jobs that ``--job KIND:ID`` names: one row for each."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import msgspec

from doctor.diagnose.fetch.collect import glob_quoted
from doctor.diagnose.job import JobPlace
from doctor.diagnose.job.ray import read_ray
from doctor.diagnose.job.slurm import read_slurm
from doctor.engine.errors import InputError, UsageError
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled, joined
from doctor.environment.host_list import RunCommand, run_command
from doctor.hosts.selection import JobOfPods

_LOG = re.compile(
    r"modelarts-job-(?P<job>[A-Za-z0-9-]{1,80}?)(?:-(?:ma-platform-init-)?(?P<task>worker-\d{1,6})"
    r"(?:-[\d.]{7,15}-[0-9a-f]{1,16})?\.log|-proc-rank-\d{1,6}-device-\d{1,4}\.txt)?\Z"
)
"""A node's output, the output of a process, or the folder with CANN's logs ("Training Log Details")."""
MAX_FILES = 100_000


def read_model_arts(name: str, _run: RunCommand) -> JobPlace:
    """Raises: ValueError for no folder; InputError for one without such logs, or with those of several jobs."""
    folder = os.path.abspath(os.path.expanduser(name))
    if not name:
        raise ValueError(name)
    jobs: dict[str, set[str]] = {}
    try:
        for number, (place, folders, files) in enumerate(os.walk(folder)):
            names = [*files, os.path.basename(place)] if "ascend" in folders else files
            for match in filter(None, map(_LOG.match, names)):
                jobs.setdefault(match["job"], set()).add(match["task"] or "")
            if number > MAX_FILES:
                break
    except OSError as error:
        raise InputError(filled("{0}: {1}", printable(folder, 200), error.strerror)) from None
    if not jobs:
        raise InputError(
            filled("{0}: expected a folder with files such as modelarts-job-ID-worker-0.log", printable(folder, 200))
        )
    if len(jobs) > 1:
        text = "{0}: it has the logs of {1} jobs ({2}); expected those of one"
        raise InputError(filled(text, printable(folder, 200), len(jobs), ", ".join(sorted(jobs)[:3])))
    job, tasks = next(iter(jobs.items()))
    return JobPlace(
        title=filled("ModelArts job {0}", job), number=job, outputs=[glob_quoted(folder)], notes=_gaps(tasks)
    )


def _gaps(tasks: set[str]) -> list[str]:
    """Of the nodes 0 to the highest, those without a log: one that is missing may be the one that failed."""
    numbers = {int(task.rpartition("-")[2]) for task in tasks if task}
    absent = [f"worker-{number}" for number in range(min(max(numbers, default=0), 10_000)) if number not in numbers]
    return [filled("no log of {0}", ", ".join(absent[:8]))] if absent else []


class JobKind(msgspec.Struct, frozen=True):
    """One kind."""

    form: str
    """How it is written."""
    read: Callable[[str, RunCommand], JobPlace] | None = None
    """From what stands behind the colon. Raises: ValueError for another form; InputError for an unknown job. None: its
    hosts are pods, which ``--transport kubernetes`` finds (`pods_of_kind`)."""


JOB_KINDS = {
    "slurm": JobKind("slurm:ID, such as slurm:1234 or slurm:1234_7", read_slurm),
    "ray": JobKind("ray:ADDRESS/ID, such as ray:head:8265/raysubmit_Xyz", read_ray),
    "k8s": JobKind("k8s:NAMESPACE/NAME or k8s:NAMESPACE/KIND/NAME, such as k8s:train/pytorchjob/llama"),
    "modelarts": JobKind("modelarts:FOLDER, with the logs of a ModelArts training job", read_model_arts),
}


def read_job(text: str, run: RunCommand = run_command) -> JobPlace:
    """The job that ``KIND:ID`` names.

    Raises: UsageError for another form; InputError (exit code 78) for a job that is not known.
    """
    kind, _, name = text.partition(":")
    read = JOB_KINDS[kind].read if kind in JOB_KINDS else None
    if read:
        try:
            return read(name, run)
        except ValueError:
            pass
    raise _another_form(text)


def pods_of_kind(text: str) -> JobOfPods | None:
    """The job that ``k8s:NAMESPACE/[KIND/]NAME`` names; None of other kinds. Raises: UsageError for another form."""
    kind, _, name = text.partition(":")
    if kind != "k8s":
        return None
    namespace, _, job = name.partition("/")
    if not namespace or not all(job.split("/")) or job.count("/") > 1:
        raise _another_form(text)
    return JobOfPods(namespace, job)


def _another_form(text: str) -> UsageError:
    kind = text.partition(":")[0]
    rows = [JOB_KINDS[kind]] if kind in JOB_KINDS else JOB_KINDS.values()
    expected = joined("; ", (row.form for row in rows))
    return UsageError(filled("--job {0}: expected {1}", f"{printable(text, 60)!r}", expected))


def read_live_job(text: str, run: RunCommand = run_command) -> JobPlace:
    """The same, of a job that runs. Raises: also InputError where it has ended, or no host is known."""
    job = read_job(text, run)
    if job.ended or not job.hosts:
        why = filled("it has ended ({0})", job.state) if job.ended else "no host of it is known"
        raise InputError(filled("--job {0}: {1}; expected a job that runs", printable(text, 200), why))
    return job
