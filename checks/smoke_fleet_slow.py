from collections.abc import Iterator, Mapping

from doctor import WARNING, Finding, PerHost, Skip, check, filled, seconds_text
from doctor.engine.fact import Unreadable
from doctor.engine.quantities import times_text
from doctor.facts.smoke.collectives import SmokeCollectives
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.facts.smoke.further_stages import SmokePairs
from doctor.smoke.model import Baseline, SmokeRun
from doctor.smoke.results.figures import collective_speeds, pair_speeds, rank_environments
from doctor.smoke.speed.baseline import compare, run_speeds
from doctor.smoke.speed.link_speeds import expected_rate, fastest_rate
from doctor.smoke.speed.rank_speeds import megabytes
from doctor.smoke.speed.soak_drift import BRIEFLY_SLOWER, FLEET_SLOWER, fleet_drift


@check(severity=WARNING, area="smoke")
def smoke_fleet_slow(
    run: SmokeRun,
    collectives: PerHost[SmokeCollectives],
    pairs: PerHost[SmokePairs] | None,
    started: PerHost[SmokeStart] | None,
) -> Iterator[Finding]:
    """The fleet as a whole is as fast as its network cards allow, and as in the runs of the baseline.

    ## Why it matters
    The other checks compare hosts with each other, so a fleet that is slow as a whole looks healthy to them. Causes are
    a switch that fell back to a lower speed, a library that took TCP instead of RDMA, or an update that changed an
    algorithm.

    ## What to do
    `doctor changes -- <launch line>` compares what changed since {baseline}: driver, firmware, libraries, environment
    variables. `doctor smoke {all_hosts} --env clean` leaves the job's variables out: where it is fast, unset them.
    `doctor net {all_hosts}` measures each way, `grep . /sys/class/net/*/speed` shows a port that fell back; ask those
    who run the switches for other jobs and errors on them. If the new speed is as it should be: `doctor smoke
    --save-baseline baseline.json` adds it.

    ## Source
    Bus bandwidth as nccl-tests define it, of each collective of all ranks from 64 KB on, and what the median pair of
    hosts exchanges, against the runs of `--baseline` with the same devices, backend, torch, size and number of ranks
    and hosts (pairs: any number). From five runs on the usual range comes of their median and spread: below it lies one
    healthy run in a thousand, and what is less than 15 % below the median never does; of fewer runs, what takes 1.5
    times as long. Half of what was compared has to be, in this run and in a second one on the same hosts. With `--for`,
    the quickest all_reduce of each minute of the last quarter against those of the first: from twice as long on in
    every one the fleet became slower, and from ten times on in a minute before the last. And over TCP the quickest
    exchange of any two hosts, against a quarter of the speed that the kernel reports for the slowest network card that
    has an address (/sys/class/net/NIC/speed: https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-net), and
    at most 100 MB/s, as one connection is bound by a CPU. Interfaces without hardware report no real speed: where one
    of them is up and has an address, no more is expected than 10 Mb/s; and nothing of RDMA, HCCS and PCIe, whose way is
    not known here. This verdict can be wrong where the hosts were busy: the report shows what kept ranks from running;
    and where a slower network between the switches is meant to be.
    """
    limited = [*below_line_rate(run, pairs or {}), *became_slower(run, collectives)]
    yield from limited
    if run.baseline is None:
        if not limited and not (known_line(run) and quickest_exchange(pairs or {})):
            raise Skip("no --baseline was given, and the speed of the hosts' network is not known")
        return
    yield from slower_than_before(run, run.baseline, collectives, pairs or {}, started or {})


def slower_than_before(
    run: SmokeRun,
    baseline: Baseline,
    collectives: Mapping[str, SmokeCollectives],
    pairs: Mapping[str, SmokePairs],
    started: Mapping[str, SmokeStart],
) -> Iterator[Finding]:
    """A finding if the run, and the second one on the same hosts, are below the usual range of earlier runs.

    Raises: Skip where no earlier run was of this kind and size; Unreadable where there was no second run.
    """
    environments = rank_environments(started.values())
    exchanges = pair_speeds(pairs, run.plan.world)
    measured = collective_speeds(run, collectives)
    speeds = run_speeds(run.plan.backend, len(run.plan.ranks_by_host), environments, measured, exchanges)
    first = compare(baseline, speeds)
    if first.why_not:
        raise Skip(first.why_not)
    if not first.is_slow:
        return
    if run.speeds_again is None:
        raise Unreadable("it was slower than the baseline, and could not be measured again")
    best = {key: max(value, run.speeds_again.get(key.size_text, 0.0)) for key, value in speeds.items()}
    both = compare(baseline, best)
    if not both.is_slow:
        return
    worst = both.slow[0]
    yield Finding(
        "{count} of {compared} speeds are below what earlier runs had, measured twice: {op} of {size} runs at "
        "{observed}/s, expected {expected}/s at least ({median}/s is the median of {runs} runs){pressure}",
        count=len(both.slow),
        compared=both.compared,
        op=worst.key.op,
        size=megabytes(worst.key.bytes),
        observed=megabytes(round(worst.value)),
        expected=megabytes(round(worst.usual.lowest)),
        median=megabytes(round(worst.usual.median)),
        runs=worst.usual.count,
        ratio=times_text(worst.ratio),
        baseline="the baseline",
        pressure=pressure_text(run),
    )


def known_line(run: SmokeRun) -> int:
    """Mb/s of the slowest network card of the run's hosts, over TCP; 0 where that of one host is not known."""
    hosts = run.plan.ranks_by_host.keys()
    is_known = run.plan.backend == "gloo" and len(hosts) > 1 and hosts <= set(run.line_speeds)
    return min(run.line_speeds[host] for host in hosts) if is_known else 0


def quickest_exchange(pairs: Mapping[str, SmokePairs]) -> float:
    """Bytes a second each way of any two hosts; 0 where none was measured."""
    return fastest_rate(exchange for fact in pairs.values() for exchange in fact.pairs if not exchange.after)


def below_line_rate(run: SmokeRun, pairs: Mapping[str, SmokePairs]) -> Iterator[Finding]:
    """A finding if not even the quickest exchange comes near what the network cards allow."""
    line = known_line(run)
    expected = expected_rate(run.plan.backend, line) if len(run.plan.ranks_by_host) > 1 else 0.0
    rate = quickest_exchange(pairs)
    if 0 < rate < expected:
        yield Finding(
            "the quickest exchange of any two hosts runs at {observed}/s each way, expected {expected}/s at least: the "
            "slowest network card has {line} Mb/s{pressure}"
            if line
            else "the quickest exchange of any two hosts runs at {observed}/s each way, expected {expected}/s at least "
            "of any network{pressure}",
            observed=megabytes(round(rate)),
            expected=megabytes(round(expected)),
            line=line,
            baseline="the installation",
            pressure=pressure_text(run),
        )


def became_slower(run: SmokeRun, collectives: Mapping[str, SmokeCollectives]) -> Iterator[Finding]:
    """A finding if the collective of all ranks became slower while it was repeated."""
    if drift := fleet_drift(collectives):
        yield Finding(
            "all_reduce of {size} over all ranks was {ratio} times as slow for a while: {observed} from {start} to "
            "{end} of the repetition, {expected} at first; expected less than {limit} times{pressure}"
            if drift.end
            else "all_reduce of {size} over all ranks became {ratio} times as slow while it was repeated: {observed} "
            "from {start} on, {expected} at first; expected less than {limit} times{pressure}",
            size=megabytes(drift.bytes),
            ratio=times_text(drift.ratio),
            observed=seconds_text(drift.seconds),
            start=f"{drift.start:.0f} s",
            end=f"{drift.end:.0f} s",
            expected=seconds_text(drift.first_seconds),
            limit=BRIEFLY_SLOWER if drift.end else FLEET_SLOWER,
            baseline="the beginning",
            pressure=pressure_text(run),
        )


def pressure_text(run: SmokeRun) -> str:
    """What kept ranks from running, as the end of a sentence; the empty string where nothing did."""
    texts = " ".join(dict.fromkeys(text for texts in run.pressure.values() for text in texts[:1]))
    return filled(". {0}", texts) if texts else ""
