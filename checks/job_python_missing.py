from collections.abc import Iterator
from pathlib import PurePosixPath

from doctor import ERROR, Finding, Skip, check
from doctor.facts.python_env import JobPython


@check(severity=ERROR, area="versions")
def job_python_missing(python: JobPython) -> Iterator[Finding]:
    """The job's interpreter exists on every host.

    ## Why it matters
    The launcher starts it by this name on every host; where it is missing, no rank starts, and the others wait.

    ## What to do
    On {host}, `command -v {expected}` must print the interpreter's path. Install the job's environment there at the
    same path, or mount the file system that holds it: `findmnt -T {expected}` on another host names it. Or copy it from
    a host that has it: `rsync -a --mkpath HOST:{folder}/ {folder}/`. If the job has another interpreter: `doctor check
    {all_hosts} --python <path>`; in a container of its own: `--within <container>`.

    ## Source
    The name given with --python, looked for as a shell would; else the path of the interpreter in the launch line.
    """
    if not python.asked:
        raise Skip("no interpreter was named with --python")
    if not python.path:
        folder = str(PurePosixPath(python.asked).parent.parent) if python.asked.count("/") > 2 else ""
        yield Finding(
            "the interpreter {expected} was not found",
            expected=python.asked,
            observed="no executable file",
            folder=folder,
        )
