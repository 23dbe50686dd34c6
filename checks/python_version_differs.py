from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.facts.python_env import PythonEnv

ONE_HOST = "only one host: nothing to compare"


@check(severity=WARNING, area="versions", single_host=ONE_HOST)
def python_version_differs(python: PerHost[PythonEnv]) -> Iterator[Finding]:
    """The job's interpreter has the same Python version on all hosts.

    ## Why it matters
    Packages are installed separately for each version, so one host may run other code; objects that are sent between
    ranks with pickle may not load.

    ## What to do
    Name the job's interpreter with --python, by its full path; install Python {expected} on {host}.

    ## Source
    The version that the interpreter itself reports, major and minor number; the majority is the norm.
    """
    values = {host: host_python.minor_version for host, host_python in python.items()}
    yield from differing(values, "Python {observed}; {count} of {total} hosts have {expected}")
