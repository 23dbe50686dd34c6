"""What changed between two runs in words, and as a document; with the command that sets a value back. Pure."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from doctor import __version__
from doctor.engine.language import localized, localized_filled, phrase
from doctor.facts.settings import UNREAD
from doctor.report.diff.rank_changes import FINDINGS, REASONS, RankedChange
from doctor.report.diff.render import category_name, change_line
from doctor.report.diff.values import RunValues, UnreadCategories, ValueChange
from doctor.report.formats.json import document_text
from doctor.report.layout.formatting import count_noun, format_time
from doctor.report.layout.host_names import Fleet

SCHEMA = "doctor.changes/1"
MAX_SHOWN = 30
"""Changes in the text; the document has all."""
MAX_ALIKE = 8
"""Of one category, in the text, that nothing found now speaks for: an upgrade of packages hides nothing else."""
MAX_CHECKS = 4
"""Checks that are named for one change."""


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,80}")
_NAME, _PATH = r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,80}", r"/[A-Za-z0-9_.+/-]{1,120}"
_VALUE = re.compile(r"[A-Za-z0-9_./:,%@+= -]{0,160}")
"""A value that a command repeats: of hosts, so without what a shell or a terminal reads as anything else."""


def way_back(change: ValueChange, peer: str = "") -> str:
    """The command, or the empty string: what a host printed and a shell might read otherwise is in none.

    ``peer``: a host of the run that did not change.

    >>> way_back(ValueChange("sysctl", "net.ipv4.tcp_retries2", "15", "7", ("n1",)))
    'sysctl -w net.ipv4.tcp_retries2=15'
    >>> way_back(ValueChange("environment", "NCCL_IB_DISABLE", None, "1", ("n1",)))
    'unset NCCL_IB_DISABLE'
    >>> way_back(ValueChange("packages", "libc6", "2.36-9", "$(id)", ("n1",)))
    'apt-get install libc6=2.36-9 || dnf install libc6-2.36-9'
    >>> way_back(ValueChange("files", "/etc/nccl.conf", None, "19 bytes", ("n1",)))
    'mv --backup=numbered /etc/nccl.conf /root/'
    >>> way_back(ValueChange("mounts", "/data", None, "n9:/data nfs4 rw", ("n1",)))
    'umount /data'
    >>> way_back(ValueChange("firewall", "nft inet jobs input", None, "policy drop", ("n1",)))
    'nft delete chain inet jobs input'
    >>> way_back(ValueChange("python", "transformers", None, "4.57.1", ("n1",)))
    'python3 -m pip uninstall -y transformers'
    >>> way_back(ValueChange("libraries", "libnccl.so", "libnccl.so.2 de79ef7d3988", "libnccl.so.2 a", ("n2",)), "n1")
    'f=$(find /usr /opt -name libnccl.so.2 | head -n 1) && scp -p n1:$f $f'
    >>> way_back(ValueChange("cards", "eth0 gro", "on", "off", ("n1",)))
    'ethtool -K eth0 gro on'
    >>> way_back(ValueChange("cards", "eth0 gro;id", "on", "off", ("n1",)))
    ''
    >>> way_back(ValueChange("sysctl", "kernel.core_pattern", "|/bin/x", "core", ("n1",)))
    ''
    """
    name, before = change.name, change.before
    if before is not None and not _VALUE.fullmatch(before):
        return ""
    if change.category in ("environment", "shell") and _VARIABLE.fullmatch(name):
        return f"unset {name}" if before is None else f"export {name}={shlex.quote(before)}"
    text = name if before is None else f"{name} {before}"
    for category, pattern, command in _TAKE_AWAY if before is None else _SET_AGAIN:
        setting = re.fullmatch(pattern, text, re.ASCII) if category == change.category else None
        if setting and ("{peer}" not in command or re.fullmatch(_NAME, peer)):
            return command.format(*map(shlex.quote, setting.groups()), peer=peer)
    return ""


_WORD = f"({_NAME})"
_TAKE_AWAY: Sequence[tuple[str, str, str]] = (
    ("files", f"({_PATH})", "mv --backup=numbered {0} /root/"),
    ("mounts", f"({_PATH})", "umount {0}"),
    ("firewall", rf"nft (ip|ip6|inet|arp|bridge|netdev) {_WORD} {_WORD}", "nft delete chain {0} {1} {2}"),
    ("packages", _WORD, "apt-get remove {0} || dnf remove {0}"),
    ("python", _WORD, "python3 -m pip uninstall -y {0}"),
)
"""By category: the pattern of a name that was not there before, and the command that takes it away."""
_SET_AGAIN: Sequence[tuple[str, str, str]] = (
    ("sysctl", r"([a-z0-9][a-z0-9_./-]{1,120}) (.*)", "sysctl -w {0}={1}"),
    ("packages", rf"{_WORD} ([A-Za-z0-9][A-Za-z0-9_.:+-]{{0,80}})", "apt-get install {0}={1} || dnf install {0}-{1}"),
    ("python", f"{_WORD} {_WORD}", "python3 -m pip install {0}=={1}"),
    (
        *("libraries", r".* ([A-Za-z0-9][A-Za-z0-9_.+-]{0,80}\.so[0-9.]{0,20}) [0-9a-f]{8,64}"),
        "f=$(find /usr /opt -name {0} | head -n 1) && scp -p {peer}:$f $f",
    ),
    ("interfaces", rf"{_WORD} mtu (\d{{1,6}})\b.*", "ip link set {0} mtu {1}"),
    ("cards", rf"{_WORD} (rx|tx|tso|gso|gro) (on|off)", "ethtool -K {0} {1} {2}"),
    ("cards", rf"{_WORD} (qdisc) (fq|fq_codel|mq|pfifo|pfifo_fast|noqueue)", "tc qdisc replace dev {0} root {2}"),
    ("cards", rf"{_WORD} ring (\d{{1,9}})", "ethtool -G {0} rx {1}"),
    ("cards", rf"{_WORD} (txqueuelen) (\d{{1,9}})", "ip link set {0} {1} {2}"),
    (
        *("system", r"transparent huge pages (always|madvise|never)"),
        "echo {0} > /sys/kernel/mm/transparent_hugepage/enabled",
    ),
)
"""By category: the pattern of a setting's name and what it was, and the command that sets it so again."""


class ChangesPage(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page shows."""

    before: RunValues
    now: RunValues
    worked: bool
    """The earlier run worked, as far as is known."""
    same_since: str = ""
    """See `doctor.history.baseline.Baseline`."""
    changes: tuple[RankedChange, ...]
    uncompared: dict[UnreadCategories, tuple[str, ...]] = {}
    """What one of the two runs did not read, by hosts."""
    notes: tuple[str, ...] = ()
    pace: tuple[str, ...] = ()
    """What the last watched run of the job was slower by than those before it."""


def render(page: ChangesPage, code: int) -> str:
    """In plain lines: a head, the changes with the likeliest first, then what was not compared."""
    fleet = Fleet(page.now.hosts, 400)
    lines = [_head(page)]
    if page.same_since:
        ends = {"before": format_time(page.before.started), "after": format_time(page.same_since)}
        lines.append(phrase("the changes came between {before} and {after}; nothing has changed since", **ends))
    lines += [localized_filled(line) for line in page.pace]
    displayed = _displayed(page.changes)
    for number, ranked in enumerate(displayed, 1):
        lines += ["", *(_change_lines(number, ranked, fleet))]
    if len(page.changes) > len(displayed):
        lines += ["", phrase("... and {count} more (--json has all)", count=len(page.changes) - len(displayed))]
    gaps = list(_gaps(page, fleet))
    lines += ["", *gaps] if gaps else []
    return "\n".join(lines) + "\n"


def _displayed(changes: Sequence[RankedChange]) -> list[RankedChange]:
    counts = Counter[str]()
    displayed: list[RankedChange] = []
    for ranked in changes:
        counts[ranked.change.category] += 1
        if counts[ranked.change.category] <= MAX_ALIKE or REASONS.index(ranked.reason) < FINDINGS:
            displayed.append(ranked)
    return displayed[:MAX_SHOWN]


def _head(page: ChangesPage) -> str:
    kind = localized("the last run that worked") if page.worked else localized("an earlier run")
    when = format_time(page.before.started)
    if not page.changes:
        if page.uncompared or page.before.hosts.keys() != page.now.hosts.keys():
            return phrase("nothing that was compared has changed since {when}, {kind}", when=when, kind=kind)
        return phrase("nothing has changed since {when}, {kind}", when=when, kind=kind)
    changes = count_noun(len(page.changes), "change")
    return phrase(
        "{changes} since {when}, {kind}; the likeliest cause of a failure first", changes=changes, when=when, kind=kind
    )


def _change_lines(number: int, ranked: RankedChange, fleet: Fleet) -> Iterator[str]:
    yield f"{number:>3}. {change_line(ranked.change, fleet)}"
    why = _reason(ranked)
    if why:
        yield f"     {why}"
    peer = next((host for host in fleet.hosts if host not in ranked.change.hosts), "")
    command = way_back(ranked.change, peer)
    if command and ranked.change.hosts:
        yield "     " + phrase(
            "if it is not intended, set it back, as root on {where}: `{command}`",
            where=fleet.where(ranked.change.hosts),
            command=command,
        )
    elif command:
        yield "     " + phrase("if it is not intended, set it back: `{command}`", command=command)


def _reason(ranked: RankedChange) -> str:
    more = len(ranked.checks) - MAX_CHECKS
    names = ", ".join(ranked.checks[:MAX_CHECKS]) + (", ..." if more > 0 else "")
    messages = count_noun(ranked.messages, "known message of a log", "known messages of logs")
    if ranked.reason == "failing":
        return phrase("read by {names}, which found something now", names=names)
    if ranked.reason == "cause":
        return phrase("read by {names}, a possible cause of what was found now", names=names)
    if ranked.reason == "message":
        return phrase("read by {names}, which explains {messages}", names=names, messages=messages)
    return phrase("read by {names}", names=names) if names else ""


def _gaps(page: ChangesPage, fleet: Fleet) -> Iterator[str]:
    for gap, hosts in page.uncompared.items():
        fields = {"listed": localized(", ").join(map(category_name, gap.categories)), "where": fleet.where(hosts)}
        if gap.run == "before":
            fields["run"] = page.before.command
            yield phrase("not compared in full: {listed}, on {where}; doctor {run} did not read all then", **fields)
        elif gap.reason:
            fields["reason"] = localized_filled(gap.reason)
            yield phrase("not compared in full: {listed}, on {where}; unreadable now: {reason}", **fields)
        else:
            yield phrase("not compared in full: {listed}, on {where}; not read now", **fields)
    absent = [host for host in page.before.hosts if host not in page.now.hosts]
    if absent:
        yield phrase("not compared: {where}, in the earlier run alone", where=fleet.fold(absent))
    added = [host for host in page.now.hosts if host not in page.before.hosts]
    if added:
        yield phrase("not compared: {where}, in this run alone", where=fleet.fold(added))
    for category in sorted(page.before.job.keys() ^ page.now.job.keys()):
        yield phrase("not compared: {listed}, known of one of the two runs", listed=category_name(category))
    if UNREAD in {**page.before.job.get("code", {}), **page.now.job.get("code", {})}:
        yield phrase("not compared: sources in the program's folder, too many to be read")
    yield from page.notes


def render_json(page: ChangesPage, code: int) -> str:
    """As a document of ``doctor.changes/1``."""
    document = {
        "schema": SCHEMA,
        "version": __version__,
        "exit": int(code),
        "before": {"started": page.before.started, "command": page.before.command, "worked": page.worked},
        "now": {"started": page.now.started, "verdict": page.now.verdict},
        "same_since": page.same_since,
        "changes": [
            {
                **msgspec.structs.asdict(ranked.change),
                "reason": ranked.reason,
                "checks": ranked.checks,
                "messages": ranked.messages,
            }
            for ranked in page.changes
        ],
        "uncompared": [{**gap._asdict(), "hosts": hosts} for gap, hosts in page.uncompared.items()],
        "notes": page.notes,
        "pace": page.pace,
    }
    return document_text(document)
