from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.diagnose.lookup import fix_of
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.smoke.model import Failure, SmokeRun
from doctor.smoke.results.trouble_findings import DEVICE_MEMORY, HALTED, NO_ROOM, TAKEN, failure_findings

LOOPBACK = (
    r"([\w.-]{1,200}) \((127\.[\d.]+|::1)\)",
    (
        "The rank's host takes {0} for its own loopback address {1}. `getent ahosts {0}` on another host prints the "
        "right address; in `/etc/hosts` of the rank's host, replace {1} by it in the line of {0}, found by "
        "`grep -nw {0} /etc/hosts`."
    ),
)
"""Of a master on another host."""
REMEDIES = (
    DEVICE_MEMORY,
    (
        r"\b([A-Z][A-Z0-9_]{2,60}) is \S{1,60} on (\S{1,60}) and (?:not set|\S{1,60}) on ",
        (
            "`unset {0}` before the program in the job's script, or set it alike on all hosts; where the script does "
            "not set it, `grep -rs {0} /etc/environment /etc/profile.d ~/.bashrc` on {1} prints the file that does."
        ),
    ),
    (
        (
            r"\bdoes not resolve\b|\bname resolution\b|Name or service not known"
            r"|No address associated with hostname|\bgai error\b"
        ),
        (
            "Compare `getent hosts` of the master's name on the host and on the others, and put the right address into "
            "`/etc/hosts`."
        ),
    ),
    (
        r"\brefuses connections\b|connection refused|ECONNREFUSED",
        "Nothing listens at that address: check host and port, and on the master `ss -ltnp`.",
    ),
    (
        (
            r"\bdoes not answer\b|connection timed out|no route to host|network is unreachable|ETIMEDOUT|EHOSTUNREACH"
            r"|\btimed out after \d+ ?m?s while trying to connect\b"
        ),
        "A firewall or a missing route: `doctor check` names both.",
    ),
    (
        r"([\w.-]{1,200}): a connection to its own address gets no answer",
        (
            "On {0}, `ip link show lo`: where lo is down, `ip link set lo up` as root. Otherwise a rule of its own "
            "firewall drops what the host sends to itself: `nft list ruleset` and `iptables-save` print it."
        ),
    ),
    (
        r"\bcannot assign requested address\b",
        (
            "No local port is left on that host: `ss -s` there counts its sockets, and "
            '`sysctl -w net.ipv4.ip_local_port_range="32768 60999"` as root gives it the usual ports.'
        ),
    ),
    (
        r"\bworld size is \d+ here\b|\bis there twice\b|\bmade this process rank\b",
        "Give every rank the same WORLD_SIZE, and each rank number once.",
    ),
)
"""Whole phrases of the rank's own attempt to connect, of libc and of torch's store."""


@check(severity=ERROR, area="smoke")
def smoke_rank_never_joined(run: SmokeRun, started: PerHost[SmokeStart] | None) -> Iterator[Finding]:
    """Every rank completes the rendezvous.

    ## Why it matters
    `init_process_group` waits for every rank, 30 minutes by default. One rank delays all others when it resolves
    MASTER_ADDR wrongly, is refused, is dropped by a firewall, or has another world size. The other ranks report only
    that a rank is missing.

    ## What to do
    {remedy}

    A name that does not resolve, or to another address than elsewhere: compare `getent hosts` of the master's name on
    {host} and on the others; put it into `/etc/hosts`. Refused: nothing listens there, or it is the wrong host or port;
    something else may hold the port (`ss -ltnp`). No answer: a firewall, or no route (`doctor check` covers both).
    World size: every rank must be given the same WORLD_SIZE, and each rank number once.

    ## Source
    Before torch's own client connects, each rank resolves the master's address and connects to it with plain sockets,
    and reports the result; at the store it claims its number and the world's size. The ranks that report an error are
    named, once all of them have tried; the master's host, when all other hosts report the same error, or more than half
    of all hosts do, or when it answers no host any more, so that who came first got in; both of two. Where the hosts
    that got in reach each other, and are not more than half of all, nor are the others, no host is to blame: the
    finding names both parts. A host that has the address of the master's as well is named, as by `duplicate-address`.
    Of a job that a launcher has started, ranks that said nothing are named where they are fewer than half of all and
    can be of one host, or others of their host came. To be late is no error: when each rank that has not joined has had
    20 s in which it could run, the hosts try new connections to each other's ranks, twice, and a host that no other
    reaches is named, or a rank that is within a call which is neither torch's nor an import, or that alone sleeps in a
    function of the kernel which waits for no other rank (a name lookup that reads a pipe), or the hosts with
    another value than most of a variable that all ranks must have alike, such as TORCH_DISTRIBUTED_DEBUG=DETAIL. They
    are named as well where all others crash as they meet them, or one does where gloo is known to crash by it
    (TORCH_GLOO_LAZY_INIT); else, where some crash, or one of two hosts, both sides are. Where nothing is found, the run
    goes on until its budget ends (`smoke-budget-spent`). This verdict can be wrong where all hosts but the master's
    have the same fault of their own.
    """
    yield from failure_findings(
        run,
        _message,
        "never-joined",
        remedies=(NO_ROOM, TAKEN, HALTED, LOOPBACK, *REMEDIES)
        if len(run.hosts(tuple(range(run.plan.world)))) > 1
        else REMEDIES,
        fix_of=fix_of,
    )


def _message(failure: Failure) -> str:
    if failure.unreached:
        return "other ranks could not join {who}: {text}"
    return "{who} never joined: {text}" if failure.culprit_ranks else "not all ranks joined: {text}"
