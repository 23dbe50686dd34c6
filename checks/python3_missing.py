from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.engine.fact import not_reached
from doctor.facts.visit import Reachability


@check(severity=ERROR, area="connectivity")
def python3_missing(reach: Reachability) -> Iterator[Finding]:
    """Every host has a python3 that can run doctor's collector.

    ## Why it matters
    One short Python program reads everything on a host. It is sent over stdin and never written to disk. Without an
    interpreter nothing can be read, and the job's own Python is in doubt too.

    ## What to do
    Install Python 3.6 or later, as root: `apt install python3` or `dnf install python3`. A non-interactive shell must
    find it: `ssh {host} command -v python3`. Where it is elsewhere, name it: `--python /opt/conda/bin/python3`. Or
    point `--within` to the container that the job runs in.
    """
    if reach.failure and reach.failure != "no-python":
        raise not_reached(reach.failure, reach.text)
    if reach.failure:
        yield Finding("{text}", text=reach.text, expected="Python 3.6 or later")
