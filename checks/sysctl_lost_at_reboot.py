import os
import re
import shlex
from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check, filled
from doctor.facts.container import HostContainer
from doctor.facts.gpu import GpuCards
from doctor.facts.kernel import (
    MAIN_FILE,
    RESERVED_PORTS,
    SOMAXCONN,
    SYN_BACKLOG,
    LiveSettings,
    SysctlFiles,
    expected_connections,
    may_be_default,
)
from doctor.facts.npu import NpuInventory
from doctor.facts.ports import faulty_settings, parse_ports
from doctor.facts.visit import Reachability
from doctor.job import LaunchConfig

OWN_FILE = "/etc/sysctl.d/99-zz-cluster.conf"
JOB = ("fleet", "npus", "gpus")


@check(severity=WARNING, area="kernel", advisory=JOB)
def sysctl_lost_at_reboot(
    live: LiveSettings,
    files: SysctlFiles,
    place: HostContainer | None,
    fleet: PerHost[Reachability],
    npus: PerHost[NpuInventory] | None,
    gpus: PerHost[GpuCards] | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """The kernel settings that a job needs are those that the host's files set at boot.

    ## Why it matters
    `sysctl -w` lasts until the next start. A cluster that was tuned by hand works until a host is restarted, and then
    fails on that host alone.

    ## What to do
    On {host}: `{remedy}`. Where something else sets it at each start (tuned, the kubelet, a container's runtime),
    nothing needs to be done.

    ## Source
    sysctl.conf(5), sysctl.d(5), `sysctl --system`: files are applied by the order of their names, a file hides those of
    its name in later folders, the last line wins. systemd does not read /etc/sysctl.conf by itself. Checked are
    somaxconn, tcp_max_syn_backlog, ip_local_reserved_ports (as a set) and ip_local_port_range. A value that no file
    sets is lost only if it is none that a kernel starts with. A value that another check finds too small for the job
    (listen-queue-short, syn-queue-short, local-ports-few) is never one to keep. A container does not have its host's
    files.
    """
    if place and place.engine:
        raise Skip(filled("in a container ({0}) the host's files cannot be read", place.engine))
    _, connections = expected_connections(launch, fleet, npus, gpus)
    faulty = faulty_settings(live.values, connections)
    for key, value in live.values.items():
        line = files.boot_setting(key)
        if key in faulty and (line is None or key in faulty_settings({**live.values, key: line.value}, connections)):
            continue  # the reboot mends it, or nothing does: the check that finds it too small says how
        if line is None and may_be_default(key, value):
            continue
        if line is not None and _same_value(key, value, line.value):
            continue
        unheeded = any(other.key == key for other in files.ignored)
        keeps = line is None or not (key in faulty or _is_lowered(key, value, line.value))
        kept = _keep_command(key, value, line.path if line else "")
        nobody = filled("only {0} sets it, which systemd does not read", MAIN_FILE) if unheeded else "no file sets it"
        yield Finding(
            "{key} is {live} now, but {boot}",
            key=key,
            live=value or "empty",
            boot=filled("{0} sets {1} at boot", line.path, line.value or "nothing") if line else nobody,
            remedy=kept if keeps or line is None else _restore_command(key, line.value, key in faulty),
            keep="yes" if keeps else "no",
            faulty="yes" if key in faulty else "no",
            target=line.value if line else value,
            observed=value or "none",
            expected=(line.value or "none") if line else "a file that sets it",
        )


def _keep_command(key: str, value: str, path: str) -> str:
    """Enters the value in a file of its own; in ``path``, which sets it at boot, where that file is read later."""
    if os.path.basename(path) <= os.path.basename(OWN_FILE) or not re.fullmatch(r"[\w ,-]+", value, re.ASCII):
        return " ".join(("echo", shlex.quote(f"{key} = {value}"), ">>", OWN_FILE))
    change = f"s|^[[:space:]]*-?{key.replace('.', '[./]')}[[:space:]]*=.*|{key} = {value}|"
    return " ".join(("sed -i.bak --follow-symlinks -E", shlex.quote(change), shlex.quote(path)))


def _restore_command(key: str, boot: str, frees: bool) -> str:
    """Sets the value of the files; of reserved ports those that are reserved now stay, unless they are too many."""
    if key == RESERVED_PORTS and not frees and re.fullmatch(r"[0-9,-]+", boot, re.ASCII):
        return f'sysctl -w {key}="$(sysctl -n {key}),{boot}"'
    return f"sysctl -w {shlex.quote(f'{key}={boot}')}"


def _is_lowered(key: str, live: str, boot: str) -> bool:
    """The value of now is worse for a job than that of the files: a shorter queue, fewer reserved ports."""
    if key in (SOMAXCONN, SYN_BACKLOG):
        return live.isdecimal() and boot.isdecimal() and int(live) < int(boot)
    if key == RESERVED_PORTS:
        try:
            reserved = parse_ports(live)
            return any(
                not any(span.first <= needed.first and needed.last <= span.last for span in reserved)
                for needed in parse_ports(boot)
            )
        except ValueError:
            return False
    return False


def _same_value(key: str, live: str, boot: str) -> bool:
    if key != RESERVED_PORTS:
        return live == boot
    try:
        return parse_ports(live) == parse_ports(boot)
    except ValueError:
        return False
