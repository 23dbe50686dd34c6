from collections.abc import Iterator, Mapping

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.engine.addresses import is_plain_address, means_own_host
from doctor.engine.fact import Unreadable
from doctor.facts.agreed_addresses import hosts_file_correction, hosts_file_lines
from doctor.facts.interfaces import Interfaces, only_usable, prefix_remedy, usable_addresses
from doctor.facts.master_address import MasterMeaning, master_meanings, rendezvous_faults, undecided_master
from doctor.facts.master_trial import MasterTrial
from doctor.facts.names import HostNames
from doctor.facts.network import HostAddresses
from doctor.facts.visit import Reachability
from doctor.job import LaunchConfig
from doctor.job.variables import AGENT_STORE

ONE_HOST = "only one host: the master is the host itself"
EACH = "each host that this finding is about"


def _not_on_one_host(settings: Mapping[type, object]) -> str:
    """Why one host is not judged; empty: its ranks meet at an address that may be another's."""
    launch = settings.get(LaunchConfig)
    if not isinstance(launch, LaunchConfig) or not launch.master_addr or means_own_host(launch.master_addr):
        return ONE_HOST
    is_ignored = launch.nodes == 1 and not launch.is_on_this_host(1)
    return ONE_HOST if launch.is_of_job_script or is_ignored else ""


SINGLE = _not_on_one_host
CAUSES = {"master-address-local": ("observed",), "interface-unreachable": ("fault",)}

BY_NAME = (
    "torchrun goes by the hosts' own names: `getent ahosts $(hostname)` must print the endpoint's address on its host, "
    "and an address on each other one. Correct /etc/hosts; or give that host `--rdzv-conf is_host=1`, all others "
    "`--rdzv-conf is_host=0`, and each its address with `--local-addr`."
)

SAME_EVERYWHERE = "`getent hosts {0}` must print the same address on all hosts: correct the line in /etc/hosts."


@check(severity=ERROR, area="connectivity", single_host=SINGLE, follows_from=CAUSES)
def master_address_wrong(
    names: PerHost[HostNames],
    interfaces: PerHost[Interfaces],
    addresses: PerHost[HostAddresses] | None,
    fleet: PerHost[Reachability],
    trials: PerHost[MasterTrial] | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """MASTER_ADDR leads every host to one and the same host of the fleet.

    ## Why it matters
    Rank 0 waits at MASTER_ADDR for all others. Where the address is loopback, every host connects to itself; where it
    belongs to no host, or to another one, no rank answers. The job ends after minutes: "Timed out waiting for clients.
    1/4 clients joined", or "The client socket has timed out".

    ## What to do
    {remedy}

    Give the launch {expected}: {option}. torchrun ignores the variable MASTER_ADDR, and takes 127.0.0.1 where its line
    gives no address. {by_name} With `--rdzv-backend c10d` torchrun goes by the hosts' own names: `getent ahosts
    $(hostname)` must print an address on each host, and on that of the endpoint the endpoint's. Otherwise give that
    host `--rdzv-conf is_host=1` and all others `--rdzv-conf is_host=0`, and each host its address with `--local-addr`.

    ## Source
    PyTorch, environment variable initialization (MASTER_ADDR: "address of rank 0 node"), torchrun's `--master-addr` and
    `--rdzv-endpoint`, and torch/distributed/elastic/rendezvous (`_matches_machine_hostname`; measured with 2.13); for
    MindSpore it is MS_SCHED_HOST, for NCCL alone NCCL_COMM_ID. The host of rank 0 itself may resolve the name to
    loopback, or have localhost as its own value. An address that none of the hosts has may be translated on the way:
    for 6 s each host listens at MASTER_PORT and connects to the address, and what answers proves which host it is. This
    verdict can be wrong where only a part of the job's hosts was given and the master is none of them, and where a load
    balancer lets connections pass only after rank 0 has listened for longer; names of Kubernetes services (`.svc`) are
    not judged. One host alone must have the address where rank 0 runs on it:
    torchrun or msrun for one host, `--node-rank 0`, RANK=0, or mpirun and deepspeed that were given no other host;
    there, loopback is right. Else the address must answer it, by a connection or a refusal; where it does not, this
    is unknown, as that host may not run yet. accelerate ignores the address where there is one machine.
    """
    if reason := launch.unresolved_master():
        raise Unreadable(filled("{0}; --master-addr gives it", reason))
    if not launch.master_addr:
        raise Skip("MASTER_ADDR is not given")
    if ".svc" in launch.master_addr:
        raise Skip("MASTER_ADDR is a service of Kubernetes")
    meanings = master_meanings(names, interfaces, launch, trials)
    is_here, is_alone = launch.is_on_this_host(len(interfaces)), len(interfaces) < 2
    if undecided := undecided_master(meanings, trials or {}, is_elsewhere=is_alone and not is_here):
        meanings = {host: meaning for host, meaning in meanings.items() if meaning.owners or meaning.is_loopback}
    if is_here or is_alone:
        meanings = {host: meaning for host, meaning in meanings.items() if not meaning.is_loopback}
    yield from _rank_zero_elsewhere(meanings, launch)
    wrong = MasterMeaning.wrong(meanings, is_alone and not is_here)
    by_name: set[tuple[str, str]] = set()
    if not is_alone:
        by_name = set(rendezvous_faults(names, meanings, launch))
        for host, reason in sorted(by_name):
            wrong.setdefault((reason, launch.master_addr), []).append(host)
    usual = MasterMeaning.usual_owner(meanings)
    example = usual if usual in interfaces else next(iter(interfaces))
    only = only_usable(interfaces[example])
    for (reason, master), hosts in wrong.items():
        meaning = meanings.get(hosts[0])
        no_route = bool(meaning and usual in meaning.owners and not meaning.has_route)
        remedy = BY_NAME if (hosts[0], reason) in by_name else prefix_remedy(hosts[0], interfaces) if no_route else ""
        if not (remedy or no_route) and usual and (lines := hosts_file_lines([master], names, addresses or {}, fleet)):
            correction = hosts_file_correction(master, lines)
            remedy = filled("As root on {0}: `{1}`.", ", ".join(hosts) if len(hosts) <= 8 else EACH, correction)
        yield Finding(
            "MASTER_ADDR {master} {reason}",
            hosts=hosts,
            master=master,
            reason=reason,
            fault="route" if no_route else "",
            observed=master,
            expected=filled(
                "an address of the host with rank 0, such as {0} of {1}",
                usable_addresses(interfaces[example]),
                example,
            ),
            option=launch.master_option(only.address if only else ""),
            by_name="" if is_plain_address(master) else filled(SAME_EVERYWHERE, master),
            remedy=remedy,
        )
    if undecided:
        raise Unreadable(undecided)


def _rank_zero_elsewhere(meanings: Mapping[str, MasterMeaning], launch: LaunchConfig) -> Iterator[Finding]:
    """Rank 0 opens the store on its own host: MASTER_ADDR must be that one, where the hosts' ranks are known."""
    ranks = {host: environ.get("RANK") or environ.get("NODE_RANK", "") for host, environ in launch.env_by_host.items()}
    first = [host for host, rank in ranks.items() if rank == "0"] or [launch.first_task_host]
    owners = {host: meaning.owners for host, meaning in meanings.items() if not meaning.is_loopback}
    masters = set().union(*owners.values())
    if first[1:] or len(masters) != 1 or first[0] in ("", *masters) or AGENT_STORE in launch.env:
        return
    if first[0] not in meanings:  # it has another name here
        return
    yield Finding(
        "MASTER_ADDR {master} is the address of {owner}, and rank 0 is on {first}",
        hosts=first,
        master=launch.master_of(first[0]),
        owner=next(iter(masters)),
        first=first[0],
        observed=next(iter(masters)),
        expected=filled("an address of {0}", first[0]),
        option=launch.master_option(first[0]),
        by_name="",
        remedy="",
    )
