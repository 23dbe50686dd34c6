from collections import defaultdict
from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check, filled, joined
from doctor.engine.fact import Unreadable
from doctor.engine.pairwise_blame import folded
from doctor.engine.sanitize import strip_control_chars
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import DEVICES


@check(severity=ERROR, area="smoke")
def smoke_device_wrong(run: SmokeRun, started: PerHost[SmokeStart]) -> Iterator[Finding]:
    """Every rank has its planned device, and shares it with no other rank.

    ## Why it matters
    Two ranks on one NPU or GPU share its memory and wait for each other; NCCL and HCCL refuse such a job, or hang. A
    rank on another device than the rank table states is connected to the wrong neighbours.

    ## What to do
    On {host}: `unset ASCEND_RT_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES` in the job's script, so that the launcher counts.
    `grep -rn 'set_device' --include='*.py' .` in the folder of the program finds where it chooses. That call must come
    before the first tensor, with the local rank. In containers compare the devices that are mounted with those that the
    rank table names.

    ## Source
    Each rank takes its device and reports the number and the identity (UUID or PCI address) that the driver gives it.
    The number counts the devices that the rank's environment shows, from 0. Where it hides all that a host has, the
    ranks run on CPUs, and what the job would meet is unknown: on an H200 with CUDA_VISIBLE_DEVICES=-1, empty, or 7 it
    ended with "no GPUs found". A job on CPUs is tested with `--backend gloo`, or is one that Slurm has allocated no GPU
    to: CUDA_VISIBLE_DEVICES and SLURM_JOB_GPUS are "NoDevFiles" then.
    """
    kind = DEVICES[run.plan.backend]
    if not kind and not run.unused_devices:
        raise Skip("the ranks run on CPUs")
    if not kind:
        text = "the ranks ran on CPUs, as the environment hides every {0} of {1}; with `--backend gloo` CPUs are meant"
        raise Unreadable(
            filled(text, joined(" and ", sorted(set(run.unused_devices.values()))), folded(run.unused_devices))
        )
    for host, fact in started.items():
        holders: dict[str, dict[int, int]] = defaultdict(dict)
        for event in fact.joined:
            place = run.plan.places[event.rank]
            expected_device = place.ordinal if place.ordinal >= 0 else place.device
            if event.device.index == expected_device:
                # A plan may give one device to several ranks.
                holders[strip_control_chars(str(event.device.id or event.device.index), 80)].setdefault(
                    expected_device, event.rank
                )
            else:
                yield Finding(
                    "rank {rank} has {kind} {observed}; expected {kind} {expected}",
                    hosts=[host],
                    rank=event.rank,
                    kind=kind,
                    observed=event.device.index,
                    expected=expected_device,
                )
        for device, ranks in sorted(holders.items()):
            if len(ranks) > 1:
                yield Finding(
                    "ranks {ranks} are all on {kind} {device}; expected one rank on each",
                    hosts=[host],
                    ranks=sorted(ranks.values()),
                    kind=kind,
                    device=device,
                )
