from collections.abc import Iterator
from pathlib import PurePosixPath

from doctor import ERROR, Finding, PerHost, Skip, check
from doctor.facts.python_env import JobPython

SHARED = {"/", "/usr", "/usr/local", "/opt", "/home"}  # they hold more than one environment: never copied as a whole


@check(severity=ERROR, area="versions")
def job_python_missing(python: PerHost[JobPython]) -> Iterator[Finding]:
    """The job's interpreter exists on every host.

    ## Why it matters
    The launcher starts it by this name on every host; where it is missing, no rank starts, and the others wait.

    ## What to do
    On {host}, `command -v {expected}` must print the interpreter's path. Install the job's environment there at the
    same path, mount the file system that holds it (`findmnt -T {expected}` on another host names it), or copy the
    environment: `ssh {source} tar -cPf - {folder} | ssh {host} tar -xPf -`. If the job has another interpreter: `doctor
    check {all_hosts} --python <path>`; in a container of its own: `--within <container>`.

    ## Source
    The name given with --python, looked for as a shell would; else the path of the interpreter in the launch line.
    """
    if not any(found.asked for found in python.values()):
        raise Skip("no interpreter was named with --python")
    source = next((name for name, found in python.items() if found.path), "")
    for host, asked in ((host, found.asked) for host, found in python.items() if found.asked and not found.path):
        folder = str(PurePosixPath(asked).parent.parent) if asked.startswith("/") else "/"
        values = {"expected": asked, "observed": "no executable file", "source": source}
        template = "the interpreter {expected} was not found"
        yield Finding(template, hosts=(host,), folder="" if folder in SHARED else folder, **values)
