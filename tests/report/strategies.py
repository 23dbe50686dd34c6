"""Any report that a judge could make, and some that it could not."""

from __future__ import annotations

import enum
from ipaddress import IPv4Address, IPv6Interface

from hypothesis import strategies as st

from doctor.engine.check_files import AREAS
from doctor.engine.result import Finding, Outcome, Reason, Report, Severity, Waived


class Colour(enum.Enum):
    RED = "red"


NASTY = st.sampled_from(
    ["\x1b[31m", "\x1b]0;x\x07", "\u202e", "\u2069", "\x9b2J", "\ud800", "[bold]", "\r\n", "`", "{0}", "{", "}", "\x00"]
)
texts = st.text(max_size=30) | st.lists(NASTY | st.text(max_size=5), max_size=5).map("".join)
host_names = st.sampled_from([f"node{number:02d}" for number in range(12)]) | texts.filter(bool)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | texts
    | st.binary(max_size=8)
    | st.sampled_from([Colour.RED, Severity.ERROR, IPv4Address("10.0.0.1"), IPv6Interface("fe80::1/64")])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(texts | st.integers() | st.sampled_from(list(Colour)), inner, max_size=3)
        | st.frozensets(st.integers() | texts, max_size=3)
    ),
    max_leaves=6,
)
names = st.sampled_from(["observed", "expected", "npu", "ip", "host", "text"])
templates = st.sampled_from(
    ["{ip} is {observed}", "NPU {npu} is down", "{text}", "{", "{0} {nothing!r}", "{observed.x} {observed[0]}"]
)
NAMES = [f"check-{number}" for number in range(6)]


@st.composite
def findings(draw: st.DrawFn, hosts: tuple[str, ...]) -> Finding:
    blamed = st.lists(st.sampled_from(hosts), max_size=4) if hosts else st.just([])
    strangers = draw(st.lists(host_names, max_size=1))
    return Finding(
        draw(templates | texts), hosts=[*draw(blamed), *strangers], **draw(st.dictionaries(names, values, max_size=4))
    )


@st.composite
def outcomes(draw: st.DrawFn, name: str, hosts: tuple[str, ...]) -> Outcome:
    places = st.sampled_from(("", *hosts))
    reasons = st.builds(Reason, texts, st.sampled_from(["", "nowhere", *NAMES]))
    observed = draw(st.sets(st.sampled_from(hosts))) if hosts else set()
    return Outcome(
        name,
        draw(st.sampled_from(Severity)),
        draw(st.sampled_from((*AREAS, "ours"))),
        draw(texts),
        tuple(draw(st.lists(findings(hosts), max_size=4))),
        tuple(host for host in hosts if host in observed),
        draw(st.dictionaries(places, reasons, max_size=3)),
        draw(st.dictionaries(places, texts, max_size=3)),
        draw(st.dictionaries(places, texts, max_size=2)),
        draw(st.booleans()),
        tuple(draw(st.lists(st.builds(Waived, findings(hosts), texts, texts), max_size=2))),
    )


@st.composite
def reports(draw: st.DrawFn) -> Report:
    hosts = tuple(draw(st.lists(host_names, max_size=8, unique=True)))
    names = draw(st.lists(st.sampled_from(NAMES), max_size=6, unique=True))
    return Report(
        draw(texts),
        hosts,
        tuple(draw(outcomes(name, hosts)) for name in names),
        draw(texts | st.just("2026-11-20T10:15:02Z")),
        draw(st.floats(min_value=0, max_value=1e12)),
        tuple(draw(st.lists(texts, max_size=2))),
    )
