from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import failure_findings

REMEDIES = (
    (
        r"\bdoctor itself stood still\b",
        "Run `doctor smoke` again. Its process was stopped (Ctrl-Z, `kill -STOP`), or this machine was suspended.",
    ),
)


@check(severity=WARNING, area="smoke")
def smoke_host_unobserved(run: SmokeRun, started: PerHost[SmokeStart] | None) -> Iterator[Finding]:
    """The controller's connection to every host lasts as long as the run.

    ## Why it matters
    A job runs without the controller, so the job itself is not affected. But nothing is known of ranks that are not
    observed: the stages that the run did not reach are unknown.

    ## What to do
    {remedy}

    Check the path from the controller to {host}; the job may train over another network. Look for a jump host, a VPN, a
    firewall that forgets connections, an sshd or an agent that was stopped. `ping -c 20 {host}` and `ssh {host} uptime`
    from here; `journalctl -u ssh -u sshd -n 50` there. Then `doctor smoke {all_hosts}` again, from one of the hosts
    themselves if need be.

    ## Source
    No message of the host's agent for 14 s, while its ranks completed collectives with other hosts, or no host waited
    for them, or no other host was there to try. The agent ends its ranks after 15 s without a controller, so that the
    run cannot go on. On this host itself it has 60 s, as a rank that is stopped. Where doctor itself was stopped or
    suspended for so long, no host is named. This verdict can be wrong where a host crashes while no other rank waits
    for it.
    """
    yield from failure_findings(
        run,
        lambda failure: "no reports from {who} {where}: {text}" if failure.culprit_ranks else "{text}",
        "unobserved",
        remedies=REMEDIES,
    )
