from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.environments import interpreter_of, lacking_numpy

ONE_HOST = "only one host: nothing to compare"


@check(severity=ERROR, area="smoke", single_host=ONE_HOST)
def smoke_numpy_missing(run: SmokeRun, started: PerHost[SmokeStart]) -> Iterator[Finding]:
    """The interpreters of all ranks have NumPy, or none has.

    ## Why it matters
    torch works without NumPy until something converts a tensor: a data loader, a metric, a checkpoint. A job whose
    program uses NumPy dies on this host alone. One that draws its masks with it where it is there, and without it
    elsewhere, trains on different masks, without an error.

    ## What to do
    `{python} -m pip install numpy` on {host}, in the version that the other hosts have. If another interpreter was
    meant, name it with `--python`. A job that never imports NumPy is not affected: waive the check.

    ## Source
    Each interpreter imports NumPy after torch, and reports its version, or none where the import fails. A NumPy that
    is installed but broken cannot be distinguished from a missing one.
    """
    if len(started) < 2:
        raise Skip(ONE_HOST)
    hosts = lacking_numpy(started)
    if hosts:
        yield Finding(
            "NumPy cannot be imported; {count} of {total} hosts have it",
            hosts=hosts,
            count=len(started) - len(hosts),
            total=len(started),
            python=interpreter_of(run, started[hosts[0]]),
        )
