"""The logs of a ModelArts training job, in the folder to which the platform has written them.

Source: ModelArts, "Common Logs" (support.huaweicloud.com/intl/en-us/develop-modelarts/develop-modelarts-0095.html):
each node of a job has one file ``modelarts-job-[job id]-[task id].log``, as ``...-worker-0.log``. What else lies beside
it is read by its content.
"""

from __future__ import annotations

import os
import re

from doctor.diagnose.fetch.collect import glob_quoted
from doctor.diagnose.job import JobPlace
from doctor.engine.errors import InputError
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.environment.commands import RunCommand

_LOG = re.compile(r"modelarts-job-(?P<job>[A-Za-z0-9-]{1,80}?)-(?P<task>worker-\d{1,6})\.log\Z")
MAX_FILES = 100_000


def read_model_arts(name: str, _run: RunCommand) -> JobPlace:
    """Raises: ValueError for no folder; InputError for one without such logs, or with those of several jobs."""
    folder = os.path.abspath(os.path.expanduser(name))
    if not name:
        raise ValueError(name)
    jobs: dict[str, set[str]] = {}
    try:
        for number, (_, _, files) in enumerate(os.walk(folder)):
            for match in filter(None, map(_LOG.match, files)):
                jobs.setdefault(match["job"], set()).add(match["task"])
            if number > MAX_FILES:
                break
    except OSError as error:
        raise InputError(filled("{0}: {1}", printable(folder, 200), error.strerror)) from None
    if not jobs:
        raise InputError(
            filled("{0}: expected a folder with files such as modelarts-job-ID-worker-0.log", printable(folder, 200))
        )
    if len(jobs) > 1:
        names = ", ".join(sorted(jobs)[:3])
        raise InputError(
            filled(
                "{0}: it has the logs of {1} jobs ({2}); expected those of one",
                printable(folder, 200),
                len(jobs),
                names,
            )
        )
    job, tasks = next(iter(jobs.items()))
    return JobPlace(
        title=filled("ModelArts job {0}", job),
        number=job,
        outputs=[glob_quoted(folder)],
        notes=_gaps(tasks),
    )


def _gaps(tasks: set[str]) -> list[str]:
    """Of the nodes 0 to the highest, those without a log: one that is missing may be the one that failed."""
    numbers = {int(task.rpartition("-")[2]) for task in tasks}
    absent = [f"worker-{number}" for number in range(min(max(numbers), 10_000)) if number not in numbers]
    return [filled("no log of {0}", ", ".join(absent[:8]))] if absent else []
