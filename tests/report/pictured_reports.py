"""Made-up reports with all that only a page can draw, and with texts that try to become markup or script."""

from __future__ import annotations

import itertools
import math
import random

import msgspec

from doctor.engine.report_parts import NetSummary
from doctor.engine.result import Finding, Outcome, Reason, Report, Severity, Waived
from doctor.engine.smoke_summary import Failure, LayoutResult, PairSpeed
from tests.report import reports

MARKUP = "<script>window.broken=1</script></script><img src=x onerror=window.broken=2>"
ATTRIBUTE = '" onmouseover="window.broken=3" x="\' onfocus=\'window.broken=4'
LINK = "javascript:window.broken=5 <a href=javascript:window.broken=6>x</a> </style><style>*{display:none}</style>"
ESCAPES = "\x1b[31mred\x1b]0;title\x07\x9b2J \u202egnp.exe\u2069 \ud800 \x00 {{ 7 * 7 }} {% raw %} <!-- ]]> \u2028"
HUGE = "A" * 300_000
EVIL = f"{MARKUP} {ATTRIBUTE} {LINK} {ESCAPES} `{MARKUP}` -->"


def tested_network(hosts: int = 64, ports: int = 34, speeds: bool = True) -> NetSummary:
    """One host drops what comes to one port, one link is cut, one direction was not tried; one host is slow."""
    rows = []
    for port in range(ports):
        letters = [["o"] * hosts for _ in range(hosts)]
        for source in range(hosts):
            letters[source][source] = "-"
            if port == 3 and source != 7:
                letters[source][7] = "d"
        if hosts > 20:
            letters[12][20], letters[20][12], letters[5][6] = "r", "?", "."
        rows.append(tuple("".join(row) for row in letters))
    measured: list[dict[str, float | None]] = []
    chance = random.Random(1)
    for source in range(hosts if speeds else 0):
        for target in range(hosts):
            if source != target:
                slow = 8.0 if 9 in (source, target) else 1.0
                measured.append(
                    {
                        "source": source,
                        "target": target,
                        "latency_median": 25e-6 * slow * chance.uniform(0.9, 1.1),
                        "latency_p99": 90e-6 * slow * chance.uniform(0.9, 1.1),
                        "throughput_single": 2.1e9 / slow * chance.uniform(0.9, 1.1),
                        "throughput_multi": 11.8e9 / slow * chance.uniform(0.9, 1.1),
                        "retransmissions": 40 if slow > 1 else 0,
                        "bytes": 1 << 26,
                    }
                )
    purposes = (("master", 29500), *(("hccl", 60000 + number) for number in range(ports - 1)))
    return NetSummary(
        "full", tuple(range(hosts)), purposes, tuple(rows), f"{hosts * (hosts - 1) // 2} pairs", tuple(measured)
    )


def hang() -> Failure:
    """Rank 5 sleeps; eight ranks entered the collective at eight moments."""
    (first, _) = reports.smoke_hang().smoke.failures  # type: ignore[union-attr]
    ages = {0: 1.31, 1: 1.22, 2: 1.3, 3: 1.18, 4: 1.27, 5: 1.04, 6: 1.2, 7: 1.21}
    return msgspec.structs.replace(first, ages=ages, stacks={0: reports.STACK, 5: reports.STACK + "\n  nanosleep()"})


def pictured(hosts: int = 64) -> Report:
    """A network test and a smoke run with every figure, beside findings of every kind."""
    names = tuple(f"node{number:04d}" for number in range(hosts))
    ranks = 8
    chance = random.Random(2)
    pairs = tuple(
        PairSpeed(low, high, 4 << 20, 4e-4 * (5 if 3 in (low, high) else 1) * chance.uniform(0.9, 1.1))
        for low in range(ranks)
        for high in range(low + 1, ranks)
    )
    reference = tuple(4.2 * math.exp(-step / 6) for step in range(12))
    curves = {"dp8": 1.0, "tp8": 1.0000002, "pp2 dp2 tp2 zero1": 1.0}
    layouts = [
        LayoutResult(name, 12, 2e-7, tuple(loss * share for loss in reference)) for name, share in curves.items()
    ]
    wrong = (*reference[:4], *(loss * 1.4 for loss in reference[4:9]), None, None, 3.9)
    layouts.append(LayoutResult("dp4 tp2", 12, 0.4, wrong))
    smoke = msgspec.structs.replace(
        reports.smoke_hang().smoke or reports.summary(),
        failures=(hang(),),
        layouts=tuple(layouts),
        reference_losses=reference,
        learning_losses=tuple(4.1 - step / 10 for step in range(30)),
        pair_speeds=pairs,
        placements=tuple(f"{names[rank]}, NPU 0" for rank in range(ranks)),
    )
    down = [Finding("the link of NPU {npu} is down", hosts=(names[number],), npu=3) for number in (3, 4, 9)]
    blind = {names[11]: Reason("hccn_tool: no answer in 5 s")}
    return reports.report(
        reports.outcome("host-unreachable", evaluated_hosts=names),
        reports.outcome("link-down", *down, evaluated_hosts=names, unknown=blind),
        reports.outcome("ip-forward-off", Finding("it is off", hosts=names[:4]), evaluated_hosts=names),
        reports.outcome("cann-differs", evaluated_hosts=names),
        reports.outcome("rank-blocked", Finding("rank {rank} sleeps", hosts=names[:1], rank=5), evaluated_hosts=names),
        hosts=names,
        net=tested_network(hosts),
        smoke=smoke,
    )


def crowded(hosts: int = 1000, checks: int = 94) -> Report:
    """Every check fails on a third of the hosts, with another message on each, and is unknown on a fifth."""
    names = tuple(f"node{number:04d}" for number in range(hosts))
    chance = random.Random(3)
    outcomes = []
    for number, name in zip(range(checks), itertools.cycle(reports.CHECKS), strict=False):
        blamed = [host for host in names if chance.random() < 0.3]
        findings = [Finding("it is {observed}", hosts=(host,), observed=chance.randrange(10**6)) for host in blamed]
        blind = {
            host: Reason(f"no answer in {chance.randrange(99)} s")
            for host in names
            if number % 5 == 0 and chance.random() < 0.2
        }
        outcome = reports.outcome(name, *findings, evaluated_hosts=names, unknown=blind)
        outcomes.append(msgspec.structs.replace(outcome, check=f"{name}-{number}"))
    return reports.report(*outcomes, hosts=names)


def evil() -> Report:
    """What hosts, ranks and files could print to run in the reader's browser, at every place of a report."""
    failure = Failure(
        "blocked",
        culprit_ranks=(0,),
        waiting_ranks=(1,),
        links=((EVIL, EVIL),),
        layout=EVIL,
        group=EVIL,
        text=EVIL,
        calls={0: EVIL, 1: EVIL},
        states={0: EVIL},
        stacks={0: f"{EVIL}\n  {HUGE}", 1: EVIL},
        evidence=(EVIL,),
        ages={0: math.nan, 1: 1e300, 2: -5.0},
    )
    smoke = msgspec.structs.replace(
        reports.summary(),
        hosts={EVIL: 2},
        failures=(failure,),
        layouts=(LayoutResult(EVIL, 2, math.inf, (math.nan, None, 1e308, -1e308)),),
        reference_losses=(math.inf, None, 2.0),
        pair_speeds=(PairSpeed(0, 1, 10**400, 1.0), PairSpeed(0, 1, 8, math.nan), PairSpeed(0, 999, 8, 1e-300)),
        placements=(EVIL, EVIL),
        notes=(EVIL,),
        unfinished_stages=(EVIL,),
    )
    rows = (("-<", "\u202e-"),)
    figures: tuple[dict[str, float | None], ...] = (
        {"source": 0, "target": 1, "latency_median": math.nan},
        {"source": 0.5, "throughput_multi": 1e9},
    )
    net = NetSummary(EVIL, (0, 1), ((EVIL, 0),), rows, EVIL, figures)
    finding = Finding("{a} {b}" + EVIL, hosts=(EVIL, "node001"), a=EVIL, b=HUGE, observed=EVIL, expected=HUGE, npu=EVIL)
    finding.values["<b>"] = EVIL
    removed = Outcome(EVIL, Severity.ERROR, EVIL, EVIL, (Finding(EVIL),), skipped={"node002": EVIL}, crashed={"": EVIL})
    return reports.report(
        reports.outcome("device-ip-conflict", finding),
        reports.outcome("link-down", finding, unknown={EVIL: Reason(EVIL)}),
        reports.outcome("cann-differs", evaluated_hosts=(), complete=False, skipped={"": EVIL}),
        reports.outcome("driver-differs", waived=(Waived(finding, EVIL, EVIL),)),
        removed,
        hosts=(EVIL, *reports.HOSTS[:3]),
        source=EVIL,
        started=EVIL,
        notes=(EVIL, HUGE),
        hosts_unknown=EVIL,
        smoke=smoke,
        net=net,
    )
