from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, joined
from doctor.engine.sanitize import strip_control_chars
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.facts.smoke.further_stages import DeviceMiscomputed, SmokeDevices
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import describe_ranks
from doctor.smoke.speed.device_speeds import other_fingerprints

TEMPLATES = {
    "exact": "{wrong} of {compared} products of whole numbers are not the exact product: row {row}, column {column} is "
    "{observed}; expected {expected} ({elements} wrong elements in this row)",
    "repeat": "{wrong} of {compared} repeats of the same product differ from its first result; expected equal bits",
    "copy": "{wrong} of {compared} copies differ from what was copied; expected equal bytes",
}


@check(severity=ERROR, area="smoke")
def smoke_device_miscomputes(
    run: SmokeRun, devices: PerHost[SmokeDevices], started: PerHost[SmokeStart] | None
) -> Iterator[Finding]:
    """Every device computes exact products, repeats them bit by bit, and copies without a change.

    ## Why it matters
    A device that multiplies or stores wrongly now and then raises no error and no ECC count. The loss diverges or
    stalls days later, on all ranks, as gradients are shared. Meta reports that six of 419 interruptions of the training
    of Llama 3 were such silent corruptions.

    ## What to do
    Take the device of {who} on {host} out of the job. Test it with the vendor's tools: `ascend-dmi --dg -i aicore` and
    `for i in $(seq 0 7); do npu-smi info -t ecc -i $i; done`, or `dcgmi diag -r 3` and `nvidia-smi -q -d ECC`; a CPU
    with `rasdaemon` or `mcelog`, and a memory test. If it is wrong again, replace it. Where only the checksum of a
    product differs from that of the other devices, compare driver, CANN and CUDA libraries with the other hosts first.
    Another library may add in another order, which is no fault.

    ## Source
    The device test (`doctor smoke --device-test`) multiplies matrices of whole numbers, chosen so that every sum is
    held exactly by the type, in any order of adding (TF32 and HF32, too), and compares with the exact product by
    Freivalds' method: product x vector against left x (right x vector), in float64 on the host's CPU. Then it repeats a
    product of random real numbers, with PyTorch's deterministic algorithms switched on
    (https://docs.pytorch.org/docs/stable/notes/randomness.html), and compares bits; and copies random bits. Where most
    devices of one model with one torch have one checksum of that product, another one is a warning. Llama 3:
    https://arxiv.org/abs/2407.21783, table 5.
    """
    miscomputed: dict[tuple[str, str, str], list[DeviceMiscomputed]] = {}
    for host, fact in devices.items():
        for event in fact.wrong:
            miscomputed.setdefault((host, event.test, event.comparison), []).append(event)
    accused = {event.rank for events in miscomputed.values() for event in events}
    for (host, test, comparison), events in sorted(miscomputed.items()):
        first = events[0]
        yield Finding(
            joined("", ("{who}, {test}: ", TEMPLATES[comparison])),
            hosts=[host],
            who=describe_ranks(run, sorted(event.rank for event in events)),
            ranks=sorted(event.rank for event in events),
            test=strip_control_chars(test, 40),
            wrong=first.wrong,
            compared=first.compared,
            row=first.row,
            column=first.column,
            elements=first.elements,
            observed=strip_control_chars(first.got, 40),
            expected=first.expected,
        )
    versions = {event.rank: event.torch for fact in (started or {}).values() for event in fact.joined}
    by_host: dict[str, dict[int, list[str]]] = {}
    for test, ranks in other_fingerprints(devices, versions).items():
        for rank in set(ranks) - accused:
            by_host.setdefault(run.plan.host_of(rank), {}).setdefault(rank, []).append(strip_control_chars(test, 40))
    for host, tests in sorted(by_host.items()):
        yield Finding(
            "{who}: another result than most devices of the same model with the same torch: {tests}; each repeats it",
            hosts=[host],
            who=describe_ranks(run, sorted(tests)),
            ranks=sorted(tests),
            tests=sorted({test for names in tests.values() for test in names}),
        ).as_warning()
