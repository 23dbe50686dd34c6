"""What can still be learnt of a trouble while its ranks are there: their stacks, their sockets, the links."""

from __future__ import annotations

import msgspec

from doctor.engine.sanitize import plain
from doctor.smoke.hang import network_evidence
from doctor.smoke.model import Plan, Trouble
from doctor.smoke.run.channels import Channels
from doctor.smoke.run.progress import Progress

ANSWER = 0.7
"""Seconds for agents to answer."""
PROBE = 0.6
"""Seconds for a new connection."""
MOST_STACKS = 64
LONGEST_STACK = 4000


def inquire(
    trouble: Trouble, plan: Plan, channels: Channels, progress: Progress, addresses: network_evidence.Addresses
) -> Trouble:
    """The trouble with all that the hosts have to say of it."""
    if progress.imports and trouble.kind != "silent":
        trouble = _with_stacks(trouble, channels)
    if trouble.kind == "network":
        trouble = _with_links(trouble, plan, channels, addresses)
    return _with_words(trouble, progress)


def _with_stacks(trouble: Trouble, channels: Channels) -> Trouble:
    answers = channels.ask("stacks", {name: {"do": "stacks"} for name in channels.parties}, ANSWER)
    texts = {rank: text for line in answers.values() for rank, text in (line.stacks or {}).items()}
    wanted = list(dict.fromkeys([*trouble.guilty, *trouble.victims, *sorted(texts)]))[:MOST_STACKS]
    return msgspec.structs.replace(trouble, stacks={rank: stack(texts[rank]) for rank in wanted if texts.get(rank)})


def _with_links(trouble: Trouble, plan: Plan, channels: Channels, addresses: network_evidence.Addresses) -> Trouble:
    """Which link, or which host: by what the sockets wait for, then by new connections between all hosts."""
    hosts = {name: party.host for name, party in channels.parties.items()}
    answers = channels.ask("sockets", {name: {"do": "sockets"} for name in hosts}, ANSWER)
    rows, doors = network_evidence.by_host(
        hosts, {name: (line.sockets or (), line.listening) for name, line in answers.items()}
    )
    stuck = network_evidence.stuck_links(rows, addresses)
    ends = [end for link in stuck for end in link] or list(rows)
    aims = network_evidence.targets(doors, addresses, list(dict.fromkeys(ends)))
    askers = {host: name for name, host in reversed(hosts.items())}
    orders = {askers[host]: {"do": "probe", "targets": aim, "seconds": PROBE} for host, aim in aims.items() if aim}
    probes = channels.ask("probes", orders, PROBE + ANSWER) if orders else {}
    tried = {hosts[name]: line.probes or () for name, line in probes.items()}
    failed, cut = network_evidence.failed_links(tried, addresses)
    guilty = tuple(place.rank for place in plan.places if place.host in cut) or trouble.guilty
    return msgspec.structs.replace(
        trouble,
        guilty=guilty,
        victims=tuple(rank for rank in sorted({*trouble.victims, *trouble.guilty}) if rank not in guilty),
        links=failed or tuple(sorted(stuck)) or trouble.links,
        evidence=trouble.evidence + network_evidence.sentences(stuck, failed, cut, bool(tried)),
    )


def _with_words(trouble: Trouble, progress: Progress) -> Trouble:
    """The layout, the kernel's log, and what the guilty ranks printed last."""
    # Who left may be in another layout by now.
    ranks = (*trouble.victims, *trouble.guilty) if trouble.kind == "left" else (*trouble.guilty, *trouble.victims)
    layout = trouble.layout or (progress.in_layout(ranks) if trouble.stage == "training" else "")
    logs = [progress.logs[rank] for rank in trouble.guilty if rank in progress.logs]
    said = [progress.errors[rank] for rank in trouble.guilty if rank in progress.errors]
    last = [f"its last words: {words}" for words in dict.fromkeys(said) if not _told(words, trouble)]
    return msgspec.structs.replace(trouble, layout=layout, evidence=(*trouble.evidence, *logs[:4], *last[:3]))


def _told(words: str, trouble: Trouble) -> bool:
    """Whether the trouble says the same, if without the error's class."""
    return words in trouble.text or words.partition(": ")[2] in trouble.text


def stack(text: str) -> str:
    """The main thread's part of what faulthandler wrote, and of its loader workers' too.

    >>> stack("Thread 0x1 (most recent call first):\\n  A\\n\\nCurrent thread 0x2 (most recent call first):\\n  B\\n")
    'Current thread 0x2 (most recent call first):\\n  B'
    """
    own, *workers = text.split("\nloader worker ")
    shown = [_main(own)]
    for worker in workers:
        head, _, body = worker.partition("\n")
        shown.append(f"loader worker {head}\n{_main(body)}")
    lines = [line[: len(line) - len(line.lstrip(" "))][:8] + plain(line) for line in "\n".join(shown).splitlines()]
    return "\n".join(lines)[:LONGEST_STACK]


def _main(text: str) -> str:
    parts = [part.strip() for part in text.split("\n\n")]
    return next((part for part in parts if part.startswith("Current thread")), parts[-1])
