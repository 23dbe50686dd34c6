from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled, joined
from doctor.engine.fact import Unreadable
from doctor.job.variables import MASTER_PORT
from doctor.smoke.model import OWN_CHOICE, SmokeRun
from doctor.smoke.results.to_facts import unreached_reason


@check(severity=ERROR, area="smoke")
def smoke_environment_fails(run: SmokeRun) -> Iterator[Finding]:
    """The job's environment lets its ranks communicate.

    ## Why it matters
    Variables such as GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME or HCCL_SOCKET_IFNAME choose the interface of all ranks.
    One that names a bridge (docker0), or none at all on a host whose own name stands for 127.0.1.1, gives the ranks
    addresses that no other host reaches. The job hangs in its first collective and reports a timeout.

    ## What to do
    {remedy} Then run `doctor smoke` again in the same shell. `doctor smoke --env clean` leaves the job's variables out.

    ## Source
    A run with the job's variables failed; the same run without them, on the interface that leads to the master, did
    not. Halving the variables names the one that makes it fail. Where none is set, the host is named whose ranks fail
    before they turn to another rank, or which alone has no rank that fails to connect to another one. This verdict can
    be wrong where the first failure was transient: a network that recovered between the runs.
    """
    trial = run.environment_trial
    if run.ended == "complete":
        return
    if trial is None:
        raise Unreadable(*unreached_reason(run, "teardown"))
    if trial.untried:
        raise Unreadable(trial.untried, unreached_reason(run, "teardown")[1])
    if not trial.passes:
        raise Unreadable("the run fails without the job's variables, too", unreached_reason(run, "teardown")[1])
    variable = f"{run.plan.backend.upper()}_SOCKET_IFNAME"
    settings = [f"{name}={trial.values.get(name, '')}" for name in trial.culprits if name != OWN_CHOICE]
    own = OWN_CHOICE in trial.culprits
    if own and not settings:
        cause = filled("{0} is not set, and the addresses that the ranks choose do not reach each other", variable)
        if trial.hosts:
            cause = filled(
                "{0} is not set, and the address that the library chooses on the host is not usable: {1}",
                variable,
                run.failures[0].text,
            )
        remedy = filled(
            "`export {0}=<interface>`, the interface by which the hosts reach each other (`ip route get <address>` "
            "names it), and let the host's own name stand for that address in /etc/hosts, not for 127.0.1.1.",
            variable,
        )
    else:
        named = joined(" and ", settings)
        cause = joined("", (filled("it fails with {0}", named), filled(" or without {0}", variable) * own))
        unset = [name for name in trial.culprits if name not in (OWN_CHOICE, MASTER_PORT)]
        remedy = filled("`unset {0}` in the job's script, or set the right value.", " ".join(unset)) if unset else ""
        if MASTER_PORT in trial.culprits:
            port = " Open that port in the firewall of rank 0's host or end what listens there, or choose another one."
            remedy = joined("", (remedy, port))
    yield Finding(
        "the run fails in the job's environment and passes without: {cause}",
        hosts=trial.hosts,
        cause=cause,
        remedy=remedy.strip(),
        variables=list(trial.culprits),
        runs=trial.runs,
    )
