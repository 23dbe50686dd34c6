"""Made-up reports: a fleet of 64 hosts in all the states that a report must show."""

from __future__ import annotations

from ipaddress import IPv4Address

import msgspec

from doctor.engine.check import Check, check
from doctor.engine.result import ERROR, WARNING, Finding, Outcome, Reason, Report, Severity, Waived
from doctor.engine.smoke_summary import CollectiveSpeed, LayoutResult, RankEnvironment, SmokeSummary, StageTime
from doctor.engine.texts import filled
from doctor.smoke.model import Failure

HOSTS = tuple(f"node{number:03d}" for number in range(1, 65))
DEAD = "node009"


def make(name: str, severity: Severity, area: str, doc: str) -> Check:
    def function():  # type: ignore[no-untyped-def]
        return iter(())

    function.__name__ = name.replace("-", "_")
    function.__doc__ = doc
    return Check(check(severity=severity, area=area)(function))


CHECKS = {
    entry.name: entry
    for entry in (
        make(
            "host-unreachable",
            ERROR,
            "connectivity",
            """Every host can be reached, and answers.

    ## Why it matters
    A host that cannot be reached cannot be judged, and very likely cannot take part in the job.
    Everything else is unknown on it; this finding stands for all of that.

    ## What to do
    {hint}
    Try it by hand: `ssh -v {host} true`.
    """,
        ),
        make("python3-missing", ERROR, "connectivity", "Every host has a python3 that can look at it."),
        make(
            "ip-forward-off",
            WARNING,
            "kernel",
            """Every host forwards packets for its containers.

    ## Why it matters
    Without it, a container on a bridge network reaches nobody.

    ## What to do
    Switch it on until the next boot: `sysctl -w net.ipv4.ip_forward=1`.

    - For good: put `net.ipv4.ip_forward = 1` into /etc/sysctl.d/90-forward.conf, which is read at every boot, and
      load it with `sysctl --system`.
    - Or leave it off, and run the job with host networking.
    """,
        ),
        make("somaxconn-low", WARNING, "kernel", "Every host queues enough connections for the whole fleet."),
        make("pid-limit-low", ERROR, "kernel", "Every host can start enough processes."),
        make(
            "device-ip-conflict",
            ERROR,
            "addresses",
            """Every NPU in the fleet has a device IP of its own.

    ## Why it matters
    Two NPUs that answer to one address take each other's traffic: HCCL hangs at link setup, or one rank times out
    while the rest look healthy.

    ## What to do
    Give one of them a free address: `hccn_tool -i {npu} -ip -s address ADDRESS netmask MASK`.
    """,
        ),
        make(
            "link-down",
            ERROR,
            "links",
            """The link of every NPU is up.

    ## Why it matters
    HCCL waits for a link that is down until its timeout, on every rank.

    ## What to do
    Look at the port and the optical module: `hccn_tool -i {npu} -link -g` on {host}.
    """,
        ),
        make(
            "driver-differs",
            ERROR,
            "versions",
            """All hosts have one driver version.

    ## Why it matters
    Ranks with different drivers may fail at the first collective.

    ## What to do
    Install the driver {expected} on {host}.
    """,
        ),
        make("cann-differs", WARNING, "versions", "All hosts have one CANN version."),
        make("rank-table-hole", ERROR, "ranks", "The rank table names every rank once."),
        make("rank-table-ports-wrong", ERROR, "ranks", "Every port of the rank table can be used."),
    )
}


SMOKE = {
    entry.name: entry
    for entry in (
        make(
            "rank-blocked",
            ERROR,
            "smoke",
            """No rank sleeps or waits outside of the collectives while others wait for it.

    ## Why it matters
    All other ranks wait for it until a timeout of half an hour, and none of them can tell whom they wait for.

    ## What to do
    Look at the stack of rank {rank} on {host}, which names the line that it waits in.
    """,
        ),
        make("reference-differs", ERROR, "smoke", "Every layout has the losses of one process alone."),
        make("rank-slow", WARNING, "smoke", "No rank computes slower than the others."),
    )
}
PAGES = CHECKS | SMOKE
"""All made-up checks by name; those of a smoke run are not in the reports without one."""


def outcome(name: str, *findings: Finding, **more: object) -> Outcome:
    page = PAGES[name]
    more.setdefault("evaluated_hosts", HOSTS)
    more.setdefault("complete", True)
    return Outcome(page.name, page.severity, page.area, page.claim, findings, **more)  # type: ignore[arg-type]


def report(*outcomes: Outcome, hosts: tuple[str, ...] = HOSTS, **more: object) -> Report:
    settled = {
        "started": "2026-11-20T10:15:02Z",
        "seconds": 4.12,
        "source": filled("{0} hosts from {1}", len(hosts), "SLURM_JOB_NODELIST"),
    }
    return Report(hosts=hosts, outcomes=outcomes, **{**settled, **more})  # type: ignore[arg-type]


def healthy() -> Report:
    no_table = {"evaluated_hosts": (), "complete": False, "skipped": {"": "no RankTable was given"}}
    names = [name for name in CHECKS if not name.startswith("rank")]
    passed = [outcome(name) for name in names]
    return report(*passed, outcome("rank-table-hole", **no_table), outcome("rank-table-ports-wrong", **no_table))


def small() -> Report:
    """One check on four hosts."""
    return report(outcome("device-ip-conflict", evaluated_hosts=HOSTS[:4]), hosts=HOSTS[:4])


def folded() -> Report:
    """Two failures on 64 hosts, one of them with values that differ."""
    off = [
        Finding("net.ipv4.ip_forward is off", hosts=(host,), observed=0, expected=1) for host in (HOSTS[6], HOSTS[22])
    ]
    versions = {"node003": "23.0.1", "node011": "23.0.1", "node012": "23.0.1", "node040": "24.1.rc2"}
    drivers = [
        Finding("the driver is not the fleet's", hosts=(host,), observed=version, expected="24.1.0")
        for host, version in versions.items()
    ]
    mixed = [
        Finding(
            "CANN is {observed}, and {expected} elsewhere", hosts=(host,), observed=f"8.0.{number}", expected="8.0.0"
        )
        for number, host in enumerate(HOSTS[1:21], 1)
    ]
    return report(
        outcome("host-unreachable"),
        outcome("python3-missing"),
        outcome("ip-forward-off", *off),
        outcome("somaxconn-low"),
        outcome("pid-limit-low"),
        outcome("driver-differs", *drivers),
        outcome("cann-differs", *mixed),
    )


def dead_host() -> Report:
    """A host that cannot be reached, and what follows from it."""
    rest = tuple(host for host in HOSTS if host != DEAD)
    blind = {DEAD: Reason("not reached: connection refused", "host-unreachable")}
    finding = Finding(
        "{text}", hosts=(DEAD,), text="connection refused on port 22", trouble="refused", hint="Start sshd there."
    )
    names = [name for name in CHECKS if name not in ("host-unreachable", "python3-missing") and "rank" not in name]
    return report(
        outcome("host-unreachable", finding),
        outcome("python3-missing"),
        *(outcome(name, evaluated_hosts=rest, unknown=blind) for name in names),
    )


def unknown() -> Report:
    """sudo that wants a password, a tool that does not answer, a link that is down elsewhere."""
    locked = Reason("sudo -n: a password is required")
    three = dict.fromkeys(HOSTS[:3], locked)
    remaining = HOSTS[3:]
    silent = {"node020": Reason("NPU 3: no answer in 10 s; NPU 4: no answer in 10 s")}
    down = [Finding("the link of NPU {npu} is down", hosts=("node030",), npu=npu) for npu in (0, 1, 2, 3, 6)]
    return report(
        outcome("ip-forward-off", unknown=three, evaluated_hosts=remaining),
        outcome("somaxconn-low", unknown=three, evaluated_hosts=remaining),
        outcome("pid-limit-low", unknown=three, evaluated_hosts=remaining),
        outcome("device-ip-conflict", unknown=silent),
        outcome("link-down", *down, unknown=silent),
        notes=("The budget of 20 s ended before 2 hosts had answered.",),
    )


def waived() -> Report:
    """Small hosts, and two drivers, that the site has waived; a third driver that it has not."""
    small = [
        Finding("{observed} processes may run", hosts=(host,), observed=4096, expected=32768) for host in HOSTS[:4]
    ]
    old = [
        Finding("the driver is {observed}", hosts=(host,), observed="23.0.1", expected="24.1.0") for host in HOSTS[9:13]
    ]
    spring = "replaced in spring, order 2026-0815"
    return report(
        outcome("host-unreachable"),
        outcome("python3-missing"),
        outcome("pid-limit-low", waived=tuple(Waived(finding, "small by design", "2026-12-31") for finding in small)),
        outcome("somaxconn-low"),
        outcome("driver-differs", *old[3:], waived=tuple(Waived(finding, spring, "2027-03-31") for finding in old[:3])),
        notes=("settings: doctor.toml: 2 waivers",),
    )


def all_waived() -> Report:
    """Nothing is left that fails, and nothing that passed."""
    outlier = Finding("rank {rank} is odd", rank=3)
    return report(
        outcome("rank-table-hole", evaluated_hosts=(), waived=(Waived(outlier, "a test table", "2026-12-31"),)),
        hosts=(),
        source="no host was checked",
    )


TRACE = """Traceback (most recent call last):
  File "/site/checks/cann_differs.py", line 31, in cann_differs
    for version in seen[host]:
KeyError: 'node007'
"""


def crashed() -> Report:
    return report(
        outcome("driver-differs"),
        outcome("cann-differs", evaluated_hosts=(), complete=False, crashed={"": TRACE}),
        outcome("pid-limit-low", crashed={"node001": TRACE, "node002": TRACE}),
    )


EVIL = (
    "\x1b[31mred\x1b]0;title\x07 [bold red]markup[/bold red] \u202egnp.exe\u2069 \x9b2J \ud800"
    " `rm -rf /`\r\nok      all is well"
)


def hostile() -> Report:
    """What a host might print to fool the reader."""
    conflict = Finding(
        "{ip} belongs to {owners}",
        hosts=("node001", "node002"),
        ip=IPv4Address("10.0.0.1"),
        owners=[EVIL, "x"],
        npu="0; reboot",
    )
    strangers = ("a[1-3]", "fe80::1", "@all", "$(reboot)", "node[", EVIL)
    return report(
        outcome("device-ip-conflict", conflict),
        outcome("link-down", Finding("{" + "what} is {evil} {", hosts=strangers, evil=EVIL, npu=EVIL)),
        outcome("driver-differs", Finding("driver {observed}", hosts=(HOSTS[5],), observed="x" * 5000, expected=EVIL)),
        outcome("cann-differs", evaluated_hosts=(), complete=False, unknown={"node004": Reason(EVIL)}),
        outcome("somaxconn-low", evaluated_hosts=(), complete=False, skipped={"node004": EVIL}),
        outcome("pid-limit-low", evaluated_hosts=(), complete=False, crashed={"node004": EVIL}),
        source=EVIL,
        notes=(EVIL,),
        started=EVIL,
    )


def intent_alone() -> Report:
    """No host at all: the rank table is judged by itself."""
    hole = Finding("ranks {ranks} are missing", ranks=[4, 5])
    return report(
        outcome("rank-table-hole", hole, evaluated_hosts=()),
        outcome("rank-table-ports-wrong", evaluated_hosts=()),
        hosts=(),
        source="no host was checked",
    )


def nothing() -> Report:
    no_table = {"evaluated_hosts": (), "complete": False, "skipped": {"": "no RankTable was given"}}
    return report(outcome("rank-table-hole", **no_table), outcome("rank-table-ports-wrong", **no_table))


STAGES = {"start": 1.31, "rendezvous": 0.042, "collectives": 0.61, "pairs": 0.3}
LATER = {"training": 2.04, "learning": 0.55, "loader": 0.4, "pace": 0.2, "teardown": 0.01}
LAYOUTS = {"dp8": 2.1e-7, "tp8": 1.3e-7, "pp2 dp2 tp2 zero1": 3.2e-7}
PAIR = HOSTS[:2]


def figures() -> tuple[CollectiveSpeed, ...]:
    seconds = {4: 0.00031, 65536: 0.0021, 4 << 20: 0.0121}
    world = [
        CollectiveSpeed("all_reduce", "world", 8, size, s, size / s, size / s * 1.75) for size, s in seconds.items()
    ]
    return (
        *world,
        CollectiveSpeed("all_reduce", "dp2", 2, 4096, 0.0004, 1.024e7, 1.024e7),
        CollectiveSpeed("barrier", "world", 8, 0, 0.0003, 0, 0),
    )


def summary(**more: object) -> SmokeSummary:
    places = tuple(f"{host}, NPU {npu}" for host in PAIR for npu in range(4))
    settled = {
        "backend": "hccl",
        "hosts": dict.fromkeys(PAIR, 4),
        "ended": "complete",
        "seconds": 6.21,
        "import_seconds": 1.12,
        "stages": tuple(StageTime(name, seconds) for name, seconds in {**STAGES, **LATER}.items()),
        "layouts": tuple(LayoutResult(name, 4, error) for name, error in LAYOUTS.items()),
        "environments": (
            RankEnvironment("2.9.0", "1.26.4", "3.11.7", "Ascend910B2", (0, 1, 2, 3, 4, 5, 7)),
            RankEnvironment("2.9.1", "", "3.11.7", "Ascend910B2", (6,)),
        ),
        "collective_speeds": figures(),
        "placements": places,
        "notes": ("native was not asked for",),
    }
    return SmokeSummary(**{**settled, **more})  # type: ignore[arg-type]


STACK = "Current thread 0x00007f6466c13b80 (most recent call first):\n" + "\n".join(
    f'  File "train.py", line {40 + number} in step_{number}' for number in range(20)
)


def smoke_fine() -> Report:
    """A smoke run without a fault on two hosts."""
    passed = [outcome(name, evaluated_hosts=PAIR) for name in ("host-unreachable", *SMOKE)]
    return report(*passed, hosts=PAIR, smoke=summary())


def smoke_hang() -> Report:
    """A rank that sleeps, and seven that wait for it."""
    trouble = Failure(
        "blocked",
        culprit_ranks=(5,),
        waiting_ranks=(0, 1, 2, 3, 4, 6, 7),
        certainty="timeout",
        stage="training",
        layout="pp2 dp2 tp2",
        step=2,
        group="dp2",
        seq=7,
        op="all_reduce",
        numel=128,
        dtype="float32",
        text="sleeping in hrtimer_nanosleep",
        calls={
            **dict.fromkeys((0, 2, 4), "all_reduce #7 (128 x float32, group dp2)"),
            **dict.fromkeys((1, 3, 6, 7), "recv #3 (256 x float32, group p2p 4>6)"),
            5: "compute, after all_reduce #6 (128 x float32, group dp2)",
        },
        states={5: "compute"},
        limit=1.0,
        seconds=1.04,
        stacks={0: STACK, 5: STACK},
        evidence=("rank 5 used 0.00 s of CPU in 1.04 s",),
    )
    later = Failure("dead", culprit_ranks=(5,), text="signal 9")
    finding = Finding(
        "rank {rank} sleeps outside of a collective for {seconds} s", hosts=PAIR[1:], rank=5, seconds=1.04
    )
    reason = dict.fromkeys(PAIR, Reason("not reached: rank 5 stopped the run", "rank-blocked"))
    run = summary(
        ended="trouble",
        seconds=4.4,
        stages=tuple(StageTime(name, seconds) for name, seconds in STAGES.items()),
        unfinished_stages=tuple(LATER),
        layouts=(LayoutResult("dp8", 4, 2.1e-7), LayoutResult("pp2 dp2 tp2", 0, None)),
        failures=(trouble, later),
        notes=(),
    )
    return report(
        outcome("host-unreachable", evaluated_hosts=PAIR),
        outcome("rank-blocked", finding, evaluated_hosts=PAIR),
        outcome("reference-differs", evaluated_hosts=(), complete=False, unknown=reason),
        outcome("rank-slow", evaluated_hosts=(), complete=False, unknown=reason),
        hosts=PAIR,
        smoke=run,
    )


def smoke_hostile() -> Report:
    """What a rank might say to fool the reader."""
    trouble = Failure(
        "network",
        culprit_ranks=(0, 99),
        waiting_ranks=(1,),
        links=((EVIL, "node002"),),
        layout="dp8",
        text=EVIL,
        calls={0: EVIL, 1: EVIL},
        states={0: EVIL},
        stacks={0: EVIL * 200},
        evidence=(EVIL,),
    )
    seat = RankEnvironment(EVIL, EVIL, EVIL, EVIL, (0,))
    run = summary(ended="trouble", environments=(seat,), failures=(trouble,), placements=(EVIL,) * 8, notes=(EVIL,))
    outlier = msgspec.structs.replace(
        run, layouts=(LayoutResult("dp8", 4, float("nan")), LayoutResult("tp8", 4, float("inf")))
    )
    return report(outcome("rank-blocked", evaluated_hosts=PAIR), hosts=PAIR, smoke=outlier)


ALL = {
    created.__name__: created
    for created in (
        *(healthy, small, folded, dead_host, unknown, crashed, hostile, intent_alone, nothing),
        *(waived, all_waived),
        *(smoke_fine, smoke_hang, smoke_hostile),
    )
}
