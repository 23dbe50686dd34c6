from collections import Counter, defaultdict
from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check, filled
from doctor.facts.snapshot import CATEGORIES, HostSnapshot

SHOWN = 12
ABSENT = "not there"


@check(severity=WARNING, area="kernel")
def host_snapshot_differs(snapshots: PerHost[HostSnapshot]) -> Iterator[Finding]:
    """All hosts have the same sysctls, packages, environment, firmware and versions of kernel modules.

    ## Why it matters
    What fails or is slow on one host alone is often explained by something that only this host has.

    ## What to do
    Decide for each value whether it matters, and give {host} the value of the others where it is set: a file in
    /etc/sysctl.d, the package manager, the environment's files, the vendor's tool for firmware.

    ## Source
    `doctor check --compare all` runs it, and `--select host-snapshot-differs`; else it is left out. A value that more
    than half of the hosts have is the norm; where no value has a majority, nothing is said. Values that change by
    themselves, or name the host, are not compared.
    """
    if len(snapshots) < 3:
        raise Skip("fewer than three hosts cannot be compared")
    for category in CATEGORIES:
        differences: dict[str, dict[str, str]] = defaultdict(dict)
        names = sorted({name for own in snapshots.values() for name in own.values[category]})
        for name in names:
            values = {host: own.values[category].get(name, ABSENT) for host, own in snapshots.items()}
            norm, count = Counter(values.values()).most_common(1)[0]
            if count <= len(values) / 2:
                continue
            for host, value in values.items():
                if value != norm:
                    differences[host][name] = filled("{0} in place of {1}", value or "empty", norm or "empty")
        for host, differing in differences.items():
            shown = dict(sorted(differing.items())[:SHOWN])
            yield Finding(
                "{category}: {count} values unlike those of most hosts: {observed}",
                hosts=[host],
                category=category,
                count=len(differing),
                observed=shown
                | ({"...": filled("{0} more", len(differing) - SHOWN)} if len(differing) > SHOWN else {}),
            )
