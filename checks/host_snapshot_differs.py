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
    Decide for each value whether it matters, and give {host} that of the others.

    - sysctl: `sysctl -w {name}="{wanted}"`, and the same in a file of /etc/sysctl.d.
    - packages: `apt install {name}={wanted}`, or `dnf install {name}-{wanted}`.
    - environment: `export {name}="{wanted}"` in the file of the host that sets it, such as ~/.bashrc.
    - firmware: the package of the host's or the card's maker; {name} is to be {wanted}.
    - modules: install the driver {name} {wanted}, then `reboot`.
    - Only here: remove {name}, or accept it with a waiver.

    ## Source
    `doctor check --compare all` runs it, and `--select host-snapshot-differs`; else it is left out. A value that more
    than half of the hosts have is the norm; where no value has a majority, nothing is said. Values that change by
    themselves, or name the host, are not compared.
    """
    if len(snapshots) < 3:
        raise Skip("fewer than three hosts cannot be compared")
    for category in CATEGORIES:
        differences: dict[str, dict[str, str]] = defaultdict(dict)
        norms: dict[str, str] = {}
        names = sorted({name for own in snapshots.values() for name in own.values[category]})
        for name in names:
            values = {host: own.values[category].get(name, ABSENT) for host, own in snapshots.items()}
            norm, count = Counter(values.values()).most_common(1)[0]
            if count <= len(values) / 2:
                continue
            norms[name] = norm
            for host, value in values.items():
                if value != norm:
                    differences[host][name] = filled("{0} in place of {1}", value or "empty", norm or "empty")
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
                observed=shown
                | ({"...": filled("{0} more", len(differing) - SHOWN)} if len(differing) > SHOWN else {}),
            )
