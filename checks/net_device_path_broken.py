from collections import defaultdict
from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.engine.fact import Unreadable
from doctor.engine.pairwise_blame import blame, hosts_to_name, partners
from doctor.facts.network_test import NetworkAnswer
from doctor.net.device_trials import DeviceTrial, device_trials

ONE_HOST = "only one host: there is no other to connect to"
READ_ON_HOSTS: dict[str, tuple[str, ...]] = {"device-unreachable": (), "device-link-down": (), "rdma-gid-wrong": ()}


@check(severity=ERROR, area="network", single_host=ONE_HOST, explained_by=READ_ON_HOSTS)
def net_device_path_broken(answers: PerHost[NetworkAnswer]) -> Iterator[Finding]:
    """Every NPU and RDMA adapter reaches that of the same name on the other hosts.

    ## Why it matters
    Gradients move from NPU to NPU, or between RDMA adapters, and not over the hosts' own network. One path that does
    not carry data stalls the first collective until a timeout of minutes; the message names the ranks that waited.

    ## What to do
    - NPU: `hccn_tool -i {number} -link -g`, `hccn_tool -i {number} -ip -g` and `hccn_tool -i {number} -gateway -g` on
      {first} and the others, then the switch port and its VLAN.
    - RDMA: `ibv_devinfo -v`, `show_gids`, the switch port, its MTU, PFC and VLAN; on Ethernet both ends need an address
      of one RoCE version in one network.

    Try {device} again from {first}: `doctor net {all_hosts} --select net-device-path-broken`.

    ## Source
    In mode full, all pairs: `hccn_tool -ping` from each NPU to that of the same number, unless the pings of
    device-unreachable were answered in full; `ib_write_bw` of perftest, or `ibv_rc_pingpong`, or `rping`, where both
    hosts have it, one adapter of each pair at a time, both ways. Not beside a job, nor with --no-speeds: it loads the
    network. A program that could not start, or whose own TCP connection failed, says nothing. Messages of the programs:
    linux-rdma/perftest issues 132, 228, 262 and 393; rdma-core, librdmacm/examples/rping.c.
    Where no part that hangs together holds more than half of the hosts, look at the switches between the parts.
    """
    by_device: dict[str, list[DeviceTrial]] = defaultdict(list)
    every = list(device_trials(answers))
    if not every:
        raise Skip("no NPU or RDMA adapter was tried; doctor net --net full tries them")
    for trial in every:
        if trial.result != "unknown":
            by_device[trial.device].append(trial)
    for device, trials in sorted(by_device.items()):
        pairs = [((trial.source,), (trial.target,), trial.result == "worked") for trial in trials]
        tried = partners(pairs)
        suspects, cuts = blame(pairs)
        for (host,), others in sorted(suspects.items()):
            peers = [other for (other,) in others]
            details = [
                trial.detail
                for trial in trials
                if trial.result == "failed" and host in (trial.source, trial.target) and trial.detail
            ]
            yield Finding(
                "{device} fails with {failed} of {tried} hosts: {peers} ({detail})",
                **hosts_to_name(host, peers),
                device=device,
                accelerator="NPU" if device.startswith("NPU") else "RDMA",
                number=device.rpartition(" ")[2],
                place=filled("from {0} to {1}", host, peers[0]),
                failed=len(peers),
                tried=len(tried[host,]),
                peers=peers,
                detail=details[0] if details else "no data passes",
                first=peers[0],
            )
        for cut in cuts:
            (source,), (target,) = cut.failed[0]
            yield Finding(
                "{device} fails between {between}; none of them holds more than half of {count} hosts",
                hosts=cut.hosts,
                **cut.values,
                device=device,
                accelerator="NPU" if device.startswith("NPU") else "RDMA",
                number=device.rpartition(" ")[2],
                place=filled("from {0} to {1}", source, target),
                first=source,
            )
    undecided = [trial for trial in every if trial.result == "unknown"]
    if undecided:
        first = undecided[0]
        raise Unreadable(
            filled(
                "{0} of {1} attempts say nothing, such as {2} of {3} to {4}: {5}",
                len(undecided),
                len(every),
                first.device,
                first.source,
                first.target,
                first.detail,
            )
        )
