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
    On {host}, doctor asked `{path} -V`. If the job has another interpreter, name it by its full path: `doctor check
    {all_hosts} --python <path>`. If it is the right one, install Python {expected} on {host}: `conda install
    python={expected}` in the job's environment, else `apt install python{expected}` or `dnf install python{expected}`.

    ## Source
    The version that the interpreter itself reports, major and minor number; the majority is the norm.
    """
    values = {host: host_python.minor_version for host, host_python in python.items()}
    for finding in differing(values, "Python {observed}; {count} of {total} hosts have {expected}"):
        finding.values["path"] = python[finding.hosts[0]].path
        yield finding
