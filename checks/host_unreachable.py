from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.engine.fact import not_reached
from doctor.facts.visit import Reachability

CAUSES: dict[str, tuple[str, ...]] = {"duplicate-address": (), "peer-unreachable": ()}
OF_SSH = ("refused", "no-route", "dropped", "silent", "not-ssh", "auth", "jump", "key-unknown", "key-changed")
"""Failures that SSH alone has."""


@check(severity=ERROR, area="connectivity", follows_from=CAUSES)
def host_unreachable(reach: Reachability) -> Iterator[Finding]:
    """Every host can be reached, and answers.

    ## Why it matters
    A host that cannot be reached cannot be checked, and very likely cannot take part in the job. Checks that have no
    result for it are not listed one by one.

    ## What to do
    {hint}
    - Name: correct the name, or give it an address here, as root: `echo '<address> {host}' >> /etc/hosts`.
      `getent hosts {host}` must print one.
    - SSH: try it: `ssh -v {host} true`.
    - By hand: try it. Over SSH: `ssh -v {host} true`. In a job of Slurm: `srun --overlap -N1 -n1 -w {host} hostname`. A
      pod, in its namespace: `kubectl exec {host} -- true`.
    """
    if reach.failure in ("budget", "no-file"):
        raise not_reached(reach.failure, reach.text)
    if reach.failure and reach.failure != "no-python":
        case = "Name" if reach.failure == "name" else "SSH" if reach.failure in OF_SSH else "By hand"
        yield Finding("{text}", text=reach.text, trouble=reach.failure, hint=reach.hint, case=case)
