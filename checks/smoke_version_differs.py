from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check
from doctor.analysis.majority import differing
from doctor.facts.pip_commands import UNDECIDED, install_command
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.environments import NOT_INSTALLED, interpreter_of, versions_by_host

ONE_HOST = "only one host: nothing to compare"


@check(severity=WARNING, area="smoke", single_host=ONE_HOST)
def smoke_version_differs(run: SmokeRun, started: PerHost[SmokeStart]) -> Iterator[Finding]:
    """The interpreters of all ranks have the same versions of torch, NumPy and Python.

    ## Why it matters
    Ranks with different versions of torch may disagree on the wire: a rendezvous that never completes, a collective
    whose bytes never arrive. With different versions of NumPy or Python they may draw other random numbers from the
    same seed, or fail to unpickle what another rank sent.

    ## What to do
    - Package: install {package} {expected} for the job's interpreter on {host}: `{pip}`.
    - Python: on {host}, `{path} -V` prints it. If that interpreter is the right one, install Python {expected}.

    If another interpreter was meant, name it with `--python`. Where the smoke run completed, its collectives and its
    training work with these versions as they are; what your program uses besides may still differ.

    ## Source
    Each interpreter reports its versions once it has imported torch. The build ("+cpu") and patch releases of NumPy and
    Python are not compared. The majority of hosts is the norm, and need not be right. Only a warning: torch documents
    no compatibility of its wire formats between versions (https://pytorch.org/docs/stable/distributed.html), so the run
    itself decides. Where it dies of the difference, smoke-network-silent or smoke-rank-never-joined is an error and
    names the versions; where numbers differ, the checks of the training are.
    """
    if len(started) < 2:
        raise Skip(ONE_HOST)
    for package, hosts in versions_by_host(started).items():
        known = {host: version for host, version in hosts.items() if NOT_INSTALLED not in version}
        if len(known) > 1:
            for finding in differing(
                known, "{package} {observed}; {count} of {total} hosts have {expected}", package=package
            ):
                python, expected = interpreter_of(run, started[finding.hosts[0]]), finding.values.get("expected")
                finding.values["path"] = run.plan.python or "python3"
                finding.values["pip"] = install_command(python, package, expected or UNDECIDED)
                finding.values["case"] = "Python" if package == "Python" else "Package"
                yield finding
