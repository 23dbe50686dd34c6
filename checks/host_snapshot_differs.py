from collections import Counter, defaultdict
from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check, filled
from doctor.engine.grouping import lists_by_key
from doctor.engine.pairwise_blame import folded
from doctor.facts.snapshot import CATEGORIES, HostSnapshot

SHOWN = 12
ABSENT = "not there"


@check(severity=WARNING, area="kernel")
def host_snapshot_differs(snapshots: PerHost[HostSnapshot]) -> Iterator[Finding]:
    """All hosts have the same sysctls, packages, environment, firmware and versions of kernel modules.

    ## Why it matters
    What fails or is slow on one host alone is often explained by something that only this host has.

    ## What to do
    Decide for each value whether it matters, and give {host} that of the others.

    - sysctl: `sysctl -w {name}="{wanted}"`, and the same in a file of /etc/sysctl.d.
    - packages: `apt install {name}={wanted}`, or `dnf install {name}-{wanted}`.
    - environment: `export {name}="{wanted}"` in the file of the host that sets it, such as ~/.bashrc.
    - firmware: the package of the host's or the card's maker; {name} is to be {wanted}.
    - modules: install the driver {name} {wanted}, then `reboot`.
    - Only here: remove {name}, or accept it with a waiver.

    ## Source
    `doctor check --compare all` runs it, and `--select host-snapshot-differs`; else it is left out. A value that more
    than half of the hosts have is the norm. Where none is, and each value is that of several hosts, the difference is
    named, and no host. Values that change by themselves, or name the host, are not compared.
    """
    if len(snapshots) < 3:
        raise Skip("fewer than three hosts cannot be compared")
    for category in CATEGORIES:
        differences: dict[str, dict[str, str]] = defaultdict(dict)
        norms: dict[str, str] = {}
        divided: dict[str, str] = {}
        names = sorted({name for own in snapshots.values() for name in own.values[category]})
        for name in names:
            values = {host: own.values[category].get(name, ABSENT) for host, own in snapshots.items()}
            norm, count = Counter(values.values()).most_common(1)[0]
            if count <= len(values) / 2:
                groups = lists_by_key((value, host) for host, value in values.items())
                if min(map(len, groups.values())) > 1:  # else the value is that of a host: each has its own
                    divided[name] = "; ".join(
                        filled("{0} ({1})", value or "empty", folded(hosts)) for value, hosts in sorted(groups.items())
                    )
                continue
            norms[name] = norm
            for host, value in values.items():
                if value != norm:
                    differences[host][name] = filled("{0} in place of {1}", value or "empty", norm or "empty")
        if divided:
            yield Finding(
                "{category}: {count} values on which the hosts differ, and none has a majority: {observed}",
                hosts=list(snapshots),
                category=category,
                case=category,
                name=next(iter(divided)),
                wanted=None,
                count=len(divided),
                observed=_shown(divided),
                tie=True,
            )
        for host, differing in differences.items():
            shown = dict(sorted(differing.items())[:SHOWN])
            first = next((name for name in shown if norms[name] != ABSENT), "")
            yield Finding(
                "{category}: {count} values unlike those of most hosts: {observed}",
                hosts=[host],
                category=category,
                case=category if first else "Only here",
                name=first or next(iter(shown)),
                wanted=norms.get(first),
                count=len(differing),
                observed=_shown(differing),
            )


def _shown(values: dict[str, str]) -> dict[str, str]:
    """The first of them by name, and how many more there are."""
    more = {"...": filled("{0} more", len(values) - SHOWN)} if len(values) > SHOWN else {}
    return dict(sorted(values.items())[:SHOWN]) | more
