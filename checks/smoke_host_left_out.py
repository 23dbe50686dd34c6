from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.smoke.model import SmokeRun


@check(severity=ERROR, area="smoke")
def smoke_host_left_out(run: SmokeRun) -> Iterator[Finding]:
    """Every host of a large fleet passes its screening.

    ## Why it matters
    One host that fails ends a job of any size. A fleet of hundreds often has several such hosts, and a run that ends
    with the first one finds the second one tomorrow.

    ## What to do
    `doctor smoke {host},{healthy}` shows the failure in full, with stacks and advice. Leave {host} out of the job until
    it passes.

    ## Source
    More than 32 hosts (or than `--cells N`) first run in cells of 16 hosts (or N), all at the same time; each cell is
    a smoke run of its own. A cell that fails runs again without the host that its failure names. Where it names no
    host, the cell is divided into halves (group testing, Dorfman 1943, https://doi.org/10.1214/aoms/1177731363), and
    the last two hosts run with a healthy host each: who fails again is left out, and where both pass, the report notes
    what lies between the two. Then the hosts run in other cells, so that each runs with hosts of every part of the
    fleet, and in the end all healthy hosts run together. Cells that ran out of time leave out no host. This verdict
    can be wrong where a failure that comes and goes strikes while its two last suspects are tried apart.
    """
    names = {left_out.host for left_out in run.left_out}
    for left_out in run.left_out:
        yield Finding(
            "left out in round {round} of the screening: {why}",
            hosts=[left_out.host],
            round=left_out.round,
            why=left_out.why,
            check=left_out.check,
            healthy=next((host for host in run.plan.ranks_by_host if host not in names), ""),
        )
