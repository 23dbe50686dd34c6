from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check
from doctor.facts.python_env import JobPython


@check(severity=ERROR, area="versions")
def job_python_missing(python: JobPython) -> Iterator[Finding]:
    """The job's interpreter exists on every host.

    ## Why it matters
    The launcher starts it by this name on every host; where it is missing, no rank starts, and the others wait.

    ## What to do
    Install the environment at the same path on {host}, mount the file system that holds it, or correct --python. Where
    the job runs in a container, name it with --within.

    ## Source
    The name given with --python, looked for as a shell would.
    """
    if not python.asked:
        raise Skip("no interpreter was named with --python")
    if not python.path:
        yield Finding("the interpreter {expected} was not found", expected=python.asked, observed="no executable file")
