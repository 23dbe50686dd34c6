from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check, filled
from doctor.engine.sanitize import strip_control_chars
from doctor.facts.smoke.further_stages import SmokeDevices
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import ACCELERATORS, describe_ranks, pressure_note
from doctor.smoke.speed.device_speeds import amounts, describe_rate, slow_devices
from doctor.smoke.speed.rank_speeds import percent

MAX_TESTS = 4


@check(severity=WARNING, area="smoke")
def smoke_device_slow(run: SmokeRun, devices: PerHost[SmokeDevices]) -> Iterator[Finding]:
    """No device multiplies or copies more slowly than the others of its model.

    ## Why it matters
    Every step waits for the slowest device. One slow device slows all the others: it is throttled by heat or power, has
    half its PCIe lanes, or shares its CPU with another program. In a profile this looks like slow communication.

    ## What to do
    On {host}, for copies between host and device: `lspci -vv | grep -E 'LnkCap|LnkSta'` for the PCIe lanes, and the
    NUMA node.
    - NPU: `npu-smi info`, `for i in $(seq 0 7); do npu-smi info -t ecc -i $i; done`, `npu-smi info -t topo`; then the
      vendor's test, `ascend-dmi --dg -i bandwidth,aiflops`.
    - GPU: `nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,POWER,ECC,ROW_REMAPPER`, `nvidia-smi topo -m`; then the
      vendor's test, `dcgmi diag -r 3`.
    - CPU: its quota (`cat /sys/fs/cgroup/cpu.stat`, throttled_usec) and its governor.

    Leave the host out until it is as quick as the others.

    ## Source
    All devices do the same products (bfloat16, float16, float32, int8) and copies at the same time. A device is slow
    when its usual time and that of its quickest tenth are both 10 % over those of the median device of its model, and
    more than the noise of these times makes likely (a confidence of 99.99 %, or of 99.9 % from 17 % on): these limits
    are our own, as for `smoke-rank-slow`. Time in which other programs had the CPU does not count; time in
    which the host's own CPU quota was used up does. Copies of a CPU are judged from 50 % on, and not at all where other
    programs had the CPU for longer than they took: these had its caches and memory, too. Where a device looks slow, all
    ranks do that work again, up to three times within two seconds or as soon as the last one is done, and it has to be
    slow each time: what another program slows for a moment is no slow device.
    """
    slow = slow_devices(devices)
    by_host: dict[str, list[int]] = {}
    for rank in slow:
        by_host.setdefault(run.plan.host_of(rank), []).append(rank)
    amount = amounts(devices)
    for host, ranks in by_host.items():
        worst = {
            test: max((slow[rank][test] for rank in ranks if test in slow[rank]), key=lambda straggler: straggler.ratio)
            for test in dict.fromkeys(test for rank in ranks for test in slow[rank])
        }
        texts = [
            filled(
                "{0} {1} times ({2} against {3})",
                strip_control_chars(test, 40),
                f"{straggler.ratio:.2f}",
                describe_rate(amount[test], straggler.seconds, test),
                describe_rate(amount[test], straggler.peer_seconds, test),
            )
            for test, straggler in sorted(worst.items(), key=lambda item: -item[1].ratio)
        ]
        yield Finding(
            "{who}: slower than the median device of the same model: {work} (confidence {confidence}){pressure}",
            accelerator=ACCELERATORS[run.plan.backend],
            hosts=[host],
            who=describe_ranks(run, ranks),
            ranks=ranks,
            work=[
                *texts[:MAX_TESTS],
                *([filled("{0} more", len(texts) - MAX_TESTS)] if len(texts) > MAX_TESTS else []),
            ],
            ratio=round(max(straggler.ratio for straggler in worst.values()), 2),
            tests=sorted(strip_control_chars(test, 40) for test in worst),
            confidence=percent(min(straggler.confidence for straggler in worst.values())),
            pressure=pressure_note(run, [host]),
        )
