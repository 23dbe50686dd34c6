from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.facts.limits import ADVISED_FILES, NEEDS, NO_LIMIT, OTHERS, ResourceLimits, low_limit, needed_files
from doctor.job import LaunchConfig


@check(severity=ERROR, area="training")
def launch_limit_low(launch: LaunchConfig, hosts: PerHost[ResourceLimits] | None) -> Iterator[Finding]:
    """The limits that a job script sets leave its ranks what they need.

    ## Why it matters
    `ulimit` in a script holds for all that the script starts: a rank ends with "Too many open files", "MemoryError" or
    SIGXCPU on hosts that have no such limit themselves.

    ## What to do
    Delete `{command}` from the script, or write `ulimit -{letter} {advised}`.

    ## Source
    bash(1), "ulimit". How much a rank needs: `doctor explain open-files-limit-low`, `address-space-limit-low`,
    `file-size-limit-low` and `cpu-time-limit-low`, which judge it where hosts are read.
    """
    if hosts:
        raise Skip("the limits of the hosts are judged with those of the script")
    if not launch.limits:
        raise Skip("no job script sets a limit")
    limits = ResourceLimits(nofile=NO_LIMIT, memlock=NO_LIMIT, nproc=NO_LIMIT).of_job(launch)
    least, enough = needed_files(launch.world_size or 0)
    if not limits.nofile.allows(enough):
        yield _finding(
            launch, "n", filled("{0} open files", limits.nofile.soft or 0), str(enough), str(ADVISED_FILES)
        ).as_warning(limits.nofile.allows(least))
    for name in NEEDS:
        if low := low_limit(name, limits.others[name]):
            is_doubtful, values = low
            yield _finding(launch, OTHERS[name][0], values["observed"], "no limit", "unlimited").as_warning(is_doubtful)


def _finding(launch: LaunchConfig, letter: str, observed: str, expected: str, advised: str) -> Finding:
    return Finding(
        "the script sets `{command}`, which gives each process {observed}; expected {expected}",
        command=f"ulimit -{letter} {launch.limits[letter]}",
        letter=letter,
        advised=advised,
        observed=observed,
        expected=expected,
    )
