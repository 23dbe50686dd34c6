import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.engine.fact import Unreadable
from doctor.facts.launcher_logins import (
    BAD_CONFIGURATION,
    CHANGED_KEY,
    NO_ANSWER,
    NO_KEY,
    NO_SHELL,
    PASSWORD,
    UNFINISHED,
    UNKNOWN_KEY,
    UNRESOLVED,
    LauncherLogins,
    LoginAttempt,
    last_words,
    login_problem,
)

ONE_HOST = "only one host is checked: logins are tried from one checked host to another"
_OF_THE_SOURCE = (UNKNOWN_KEY, CHANGED_KEY, UNRESOLVED, BAD_CONFIGURATION)
"""Problems that are mended on the host that logs in."""
_LATE = (NO_ANSWER, UNFINISHED)


@check(severity=ERROR, area="connectivity", single_host=ONE_HOST)
def launcher_login_fails(logins: PerHost[LauncherLogins]) -> Iterator[Finding]:
    """The launcher of the launch line logs in to every other host over SSH without a question.

    ## Why it matters
    mpirun, deepspeed, horovodrun and pdsh start their processes on other hosts by ssh. An unknown host key or a
    password is a question without an answer: the launch stops, or hangs, before the first rank. That doctor itself gets
    in shows nothing of this: it comes from another host, with other keys.

    ## What to do
    {remedy} Then `ssh {target} true` on {source}, as the user of the job, must end at once and ask nothing.

    ## Source
    The launch line after `--` says whether its launcher uses SSH: mpirun of Open MPI and MPICH outside of Slurm, PBS
    and LSF, deepspeed with a hostfile (pdsh), horovodrun, pdsh. Then the host that doctor runs on, if it is one of the
    job's, else the first of them, runs `ssh HOST` to the others, with BatchMode and without agent forwarding, with the
    user's own configuration and the launcher's arguments (`plm_rsh_args`, `--ssh_port`); of more than 65 hosts, Open
    MPI's daemons do it in turn, 64 hosts each (`orte/mca/routed/radix`). No host key is written down: where
    `StrictHostKeyChecking` lets ssh do so, it gets a copy of the file. Tried beside Open MPI 4.1.4. Where doctor
    runs on none of the hosts, the launch may start on another one than the first: then up to 8 others log in to the
    first as well, and what fails on that way alone is a warning. This verdict can be wrong where the launch starts as
    another user, or where an SSH agent of that shell has the key.
    """
    tried = {host: own for host, own in logins.items() if own.program}
    if not tried:
        raise Skip("the launch line has no launcher that logs in over SSH")
    late: list[tuple[str, LoginAttempt]] = []
    failed = False
    forward = {host: own for host, own in tried.items() if not own.is_back}
    for source, own in forward.items():
        if own.problem:
            failed = True
            yield _finding(source, own, [source], "", own.problem, own.problem)
            continue
        by_problem: dict[str, list[LoginAttempt]] = defaultdict(list)
        for attempt in own.results:
            if problem := login_problem(attempt):
                by_problem[problem].append(attempt)
        for problem, attempts in sorted(by_problem.items()):
            if problem in _LATE and not _is_certain(attempts):
                late += [(source, attempt) for attempt in attempts]
                continue
            at_source = problem in _OF_THE_SOURCE or (len(attempts) > 1 and len(attempts) == len(own.results))
            hosts = [source] if at_source else [attempt.target for attempt in attempts]
            observed = last_words(attempts[0]) or problem
            failed = True
            yield _finding(source, own, hosts, attempts[0].target, problem, observed, len(attempts))
    if failed:
        return
    if late:
        source, attempt = late[0]
        raise Unreadable(filled("the login from {0} to {1} had not ended in time", source, attempt.target))
    if skipped := sum(own.skipped for own in forward.values()):
        raise Unreadable(filled("{0} logins were not tried: the time for them had ended", skipped))
    yield from _back(tried)


def _is_certain(attempts: list[LoginAttempt]) -> bool:
    """Whether ssh itself gave up, which no slow host brings about."""
    return all(attempt.code is not None for attempt in attempts)


def _finding(
    source: str, own: LauncherLogins, hosts: list[str], target: str, problem: str, observed: str, count: int = 0
) -> Finding:
    whom = target if count == 1 else filled("{0} of {1} hosts", count, len(own.results))
    return Finding(
        "{program} on {source} cannot log in to {whom} over SSH: {problem}",
        whom=whom,
        hosts=hosts,
        program=own.program,
        source=source,
        count=count,
        tried=len(own.results),
        problem=problem,
        target=target,
        observed=observed,
        expected="a login without a question",
        remedy=_remedy(problem, source, target),
    )


def _back(tried: Mapping[str, LauncherLogins]) -> Iterator[Finding]:
    """Of hosts on which the launch may start: they must get to the first as well."""
    back = [(source, attempt) for source, own in tried.items() if own.is_back for attempt in own.results]
    for source, attempt in back:
        problem = login_problem(attempt)
        if problem and problem not in _LATE:
            hosts = [source] if problem in _OF_THE_SOURCE else [attempt.target]
            yield _finding(
                source, tried[source], hosts, attempt.target, problem, last_words(attempt) or problem, 1
            ).as_warning()


def _remedy(problem: str, source: str, target: str) -> str:
    name = shlex.quote(target)
    if problem in (UNKNOWN_KEY, CHANGED_KEY):
        return filled(
            "`ssh-keyscan {0} | ssh-keygen -lf -` on {1} must print a key that `for key in "
            "/etc/ssh/ssh_host_*_key.pub; do ssh-keygen -lf $key; done` prints on {2}. If so, keep it on {1}: "
            "{3}`ssh-keyscan {0} >> ~/.ssh/known_hosts`.",
            name,
            source,
            target,
            filled("`ssh-keygen -R {0}`, ", name) if problem == CHANGED_KEY else "",
        )
    if problem in (NO_KEY, PASSWORD):
        return filled("On {1}, give {2} a key that it accepts: `ssh-copy-id {0}`.", name, source, target)
    if problem == NO_SHELL:
        return "Let ~/.bashrc of the other host end at once where the shell is not interactive."
    if problem == UNRESOLVED:
        return "Put the name into DNS or into its /etc/hosts, or write a name in the launch line that it can resolve."
    return ""
