from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.analysis.outliers.own_past import pace_findings, undecided
from doctor.engine.fact import Unreadable
from doctor.engine.watch_summary import WatchResult


@check(severity=WARNING, area="loss")
def training_slowed_down(watch: WatchResult) -> Iterator[Finding]:
    """A step of this job takes as long as in its earlier runs.

    ## Why it matters
    A job that takes three times as long ends by no error, and its ranks wait for each other, so that all of them look
    equally slow. It is seen when the time is spent.

    ## What to do
    `doctor changes -- <launch line>` tells what has changed since the job last worked. Input: the file system of the
    data set (`doctor check --select mount-missing`), `num_workers`, other jobs that read there. Compute of one host:
    its clocks, temperature and other programs (`doctor smoke`), and the CPU quota of its container
    (`cat /sys/fs/cgroup/cpu.max`). Compute of all ranks: the code, its settings, the version of torch. Network: the
    card and the links of the host that is named (`doctor net`).

    ## Source
    `doctor watch` measures what each step of each rank consists of, and keeps the usual ones of a run in the user's
    state folder. They are compared with up to 16 earlier runs of the same launch line and number of ranks: with five
    runs or more a step is longer where it leaves their range, as one healthy run in a thousand does, and 15 % at least;
    with two to four it must take half as long again. Where these runs differ so much that a step twice as long as
    any before is in their range, it is slow if the wait for input or the computing has left its own range and explains
    half of it, else unknown. That can be wrong where what a step does depends on something
    that the launch line does not tell, such as a variable or a file of settings. What its ranks waited for a CPU more
    than before is taken off, but for what a CPU quota of their own made of it; then a step must take three times as
    long, and where it takes less it is unknown whether the job is slower, as it is where these waits are half of a
    step. `doctor explain watch` says more.
    """
    if watch.pace is None or not watch.pace.runs:
        raise Skip("doctor watched fewer than two earlier runs of this launch line to their end")
    if reason := undecided(watch.pace):
        raise Unreadable(reason)
    yield from pace_findings(watch.pace)
