"""What can still be learnt of a trouble while its ranks are there: their stacks, their sockets, the links."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from doctor.analysis.collectives.waits import ONE_WAY
from doctor.engine.sanitize import rank_names, strip_control_chars
from doctor.engine.texts import beginning, filled, joined
from doctor.facts.smoke.collectives import CollectiveWrong
from doctor.smoke.hang import network_evidence
from doctor.smoke.hang.host_pressure import (
    full_tables,
    idle_cpu_sentences,
    of_own_ranks,
    quota_use,
    sentences_by_host,
    starved_ranks,
)
from doctor.smoke.hang.standstill import (
    blame,
    busy_elsewhere,
    callers_stack,
    explain_foreign_call,
    explain_standstill,
    explain_wrong_size,
    held_by_files,
)
from doctor.smoke.model import Failure, QuotaUse, SmokePlan
from doctor.smoke.numerics.collective_values import without_part
from doctor.smoke.programs.secondary_errors import gave_up_waiting, is_secondary, peer_addresses
from doctor.smoke.protocol import AgentMessage, DumpStacks, HostPressure, ListSockets, Probe, ReportPressure
from doctor.smoke.run.channels import Channels
from doctor.smoke.run.progress import StageProgress
from doctor.smoke.run.silence import ANSWER, PROBE
from doctor.smoke.run.unlike_ranks import compared_by_torch, crashed_by_unlike, ranks_of, unlike, with_unlike

LATE_ANSWER = 5.0
"""Seconds for them to do so after a complete run: a host that is held back, which is the one in question, is late.
And for ranks that wait for a CPU to write their stacks."""
MOST_STACKS = 64
MAX_TEXTS = 8
PRESSED = ("blocked", "busy", "input", "network", "budget", "never-joined")
"""Failures that may come of a rank that may not run."""
MAX_ERROR_STACKS = 4
"""Tracebacks of different errors."""


class ObservedRun(NamedTuple):
    """A run that is under way, and the agents that can be asked about it."""

    plan: SmokePlan
    channels: Channels
    progress: StageProgress
    addresses: network_evidence.AddressOwners
    finished: Sequence[int] = ()
    """Ranks that are out of the collective which a failure is about that others are in."""
    occupied: Mapping[int, str] = MappingProxyType({})
    """By rank that is in it: what its main thread does, as `occupations` has it."""


def add_evidence(failure: Failure, run: ObservedRun) -> Failure:
    """The failure with all evidence that the hosts have for it."""
    plan, progress, finished, pressure = run.plan, run.progress, run.finished, dict[str, HostPressure]()
    if (
        (progress.imports or failure.kind == "not-started")
        and failure.kind not in ("silent", "unobserved")
        and not failure.stacks
    ):
        failure = _with_stacks(failure, run.channels)
    if failure.kind == "dead":
        error = next(
            (progress.errors[key] for key in progress.keys(failure.culprit_ranks) if key in progress.errors), ""
        )
        members = next((ranks for name, ranks in progress.groups.values() if name == failure.group), ())
        failure = crashed_by_unlike(explain_wrong_size(failure, finished, error, members), plan, progress)
        failure = compared_by_torch(failure, progress)
    # An error that the rank itself or the kernel gave, such as a port that is taken, comes at any load.
    if failure.kind in PRESSED and (failure.kind, failure.certainty) != ("never-joined", "certain"):
        pressure = of_own_ranks(read_pressure(run.channels), plan)
        failure = _with_pressure(failure, pressure, len(plan.ranks_by_host))
    if failure.kind == "never-joined":
        failure = _with_taken_address(failure, run) or _with_full_host(failure, run)
    if failure.kind == "network":
        wrong = [event for host in progress.events.values() for event in host if isinstance(event, CollectiveWrong)]
        absent = {} if failure.links else without_part(wrong, progress.groups, plan.world)
        failure = explain_foreign_call(failure, run.occupied if plan.backend == "gloo" else {}, absent)
    if failure.kind == "network":
        failure = _with_named_peers(failure, run)
        failure = _with_links(failure, run, finished)
        failure = with_unlike(failure, plan, progress)
    if failure.kind in ("network", "budget") and not failure.parts:
        failure = _with_delays(failure, run)
    return _with_logs(_with_full_tables(failure, full_tables(pressure), plan), progress)


def may_still_pass(failure: Failure, run: ObservedRun) -> bool:
    """Whether no socket and no new connection shows a broken link. Ranks get no signal, which may end a sleep."""
    return failure.may_pass and _with_links(failure, run, ()).may_pass


def read_pressure(channels: Channels, seconds: float = ANSWER) -> dict[str, HostPressure]:
    """What kept the ranks of each host from running, of the agents that answer: a launcher may start several a host."""
    answers = channels.query("pressure", {name: ReportPressure() for name in channels.endpoints}, seconds)
    hosts: dict[str, HostPressure] = {}
    for name, line in answers.items():
        if line.pressure:
            host = channels.endpoints[name].host
            before, by_rank = hosts.get(host, line.pressure), ("ranks", "idle", "spins")
            joined = {name: {**getattr(before, name), **getattr(line.pressure, name)} for name in by_rank}
            hosts[host] = msgspec.structs.replace(before, **joined)
    return hosts


def _explain_late(failure: Failure, run: ObservedRun) -> Failure | None:
    """A failure of ranks that are late to join, with who causes it; None where nothing shows that.

    A host that holds back what it sends, or a link where new connections get no answer, twice, and ranks that `unlike`
    names.
    """
    if (held_back := _with_delays(failure, run)) is not failure:
        return held_back
    if lasting := _lasting_links(run, {}):
        return _because_of_links(failure, run.plan, lasting)
    ranks, sentence = unlike(run.plan, run.progress)
    text = joined(": ", (failure.text, sentence))
    return blame(failure, failure.kind, ranks, text) if ranks else None


def _lasting_links(run: ObservedRun, by_ranks: Mapping[str, Sequence[network_evidence.Probe]]) -> _LinkEvidence | None:
    """What new connections between the hosts say, and those ``by_ranks``, where two attempts fail alike; else None."""
    first = _link_evidence(run, by_ranks)
    if not first.failed:
        return None
    again = _link_evidence(run, by_ranks)
    return again if set(first.failed) & set(again.failed) else None


def _because_of_links(failure: Failure, plan: SmokePlan, links: _LinkEvidence) -> Failure:
    sentences = links.sentences()
    ranks = ranks_of(plan, links.cut)
    text = joined(": ", (failure.text, joined("; ", sentences[-len(links.cut) or None :][:3])))
    failure = failure.blaming(ranks, certainty="evidence", text=text, evidence=failure.evidence + sentences)
    return msgspec.structs.replace(failure, links=links.between_hosts, parts=links.parts)


def _with_taken_address(failure: Failure, run: ObservedRun) -> Failure | None:
    """Ranks that did not reach the master: another host that has the master's address as well may have answered them.

    The controller reached the master by that address, and the other host by another one, as in `duplicate-address`.
    """
    plan, master = run.plan, run.plan.host_of(0)
    problems = {attempt.problem for attempt in run.progress.join_attempts.values()}
    holder = run.addresses.other_holder(plan.master_addr, master)
    if not holder or not problems - {"name"} or not failure.culprit_ranks:
        return None
    text = filled("{0} has {1} as well, the address of {2}: {3}", holder, plan.master_addr, master, failure.text)
    return failure.blaming(plan.ranks_by_host[holder], certainty="evidence", text=text, unreached=False)


def _with_full_host(failure: Failure, run: ObservedRun) -> Failure:
    """Ranks that got no answer at the master's address: where its host answers no other host now either, it is the one.

    Its connection table may be full, so that only the first hosts got in. In a fleet that is cut, no host is named.
    """
    plan, addresses = run.plan, run.addresses
    attempts = {rank: run.progress.join_attempts.get(rank) for rank in failure.culprit_ranks}
    unanswered = {plan.host_of(rank) for rank, attempt in attempts.items() if attempt and attempt.problem == "dropped"}
    master = plan.host_of(0)
    by_ranks = {
        host: [(address, 0, "dropped", 0.0)] for host in unanswered for address in addresses.addresses(master)[:1]
    }
    links = _lasting_links(run, by_ranks) if by_ranks else None
    if links is None or not (
        links.parts or (links.cut and set(links.failed) > {(host, master) for host in unanswered})
    ):
        return failure
    unreached = links.cut == (master,)
    return msgspec.structs.replace(_because_of_links(failure, plan, links), unreached=unreached)


def describe_pressure(
    channels: Channels, plan: SmokePlan
) -> tuple[dict[str, tuple[str, ...]], dict[int, QuotaUse], list[str]]:
    """By host: sentences on what kept its ranks from running, where something did. By rank: what its CPU quota took.

    The third are sentences that a healthy run shows as well.
    """
    hosts = of_own_ranks(read_pressure(channels, LATE_ANSWER), plan)
    texts_by_host = sentences_by_host(hosts, len(plan.ranks_by_host))
    notes = [text for host, pressure in hosts.items() for text in idle_cpu_sentences(host, pressure)]
    return {host: texts for host, texts in texts_by_host.items() if texts}, quota_use(hosts), notes


def _with_pressure(failure: Failure, hosts: Mapping[str, HostPressure], host_count: int) -> Failure:
    """With what the kernels of the hosts count; a spent budget is laid at ranks that a quota kept from running."""
    texts = tuple(dict.fromkeys(text for each in sentences_by_host(hosts, host_count).values() for text in each))[
        :MAX_TEXTS
    ]
    starved = starved_ranks(hosts) if failure.kind == "budget" else {}
    if starved:
        text = filled("{0}: {1}", failure.text, beginning(" ".join(starved.values()), 300))
        failure = blame(failure, failure.kind, starved, text)
    return msgspec.structs.replace(failure, evidence=(*failure.evidence, *texts))


def _with_full_tables(failure: Failure, full: Mapping[str, str], plan: SmokePlan) -> Failure:
    """Laid at the hosts whose table of neighbours had no room, where it is about one of them, or names no host: all
    containers of a machine share its table, so that where most hosts say so, it is none of theirs.
    """
    ends = {*(host for link in failure.links for host in link), *map(plan.host_of, failure.culprit_ranks)}
    if failure.kind not in ("network", "never-joined", "budget") or not full or (ends and ends.isdisjoint(full)):
        return failure
    ranks = ranks_of(plan, full) if 2 * len(full) <= len(plan.ranks_by_host) else ()
    text = next(iter(full.values()))
    return blame(msgspec.structs.replace(failure, links=(), parts=()), failure.kind, ranks, text)


def _with_delays(failure: Failure, run: ObservedRun) -> Failure:
    """Laid at the hosts whose queueing discipline, firewall or window holds back what they send, or are sent."""
    endpoints, hellos = run.channels.endpoints, run.channels.hellos
    orders = {name: ListSockets() for name in endpoints}
    answers = run.channels.query("sockets", orders, LATE_ANSWER)
    delays = {endpoints[name].host: answers.get(name, hello).delays for name, hello in hellos.items()}
    texts = network_evidence.held_back(delays, len(run.plan.ranks_by_host), failure.links)
    if not texts and (texts := _halted_by(run, answers)[0]):
        again, _ = _halted_by(run, run.channels.query("sockets", orders, ANSWER))
        texts = {host: text for host, text in texts.items() if host in again}
    culprits = {run.plan.host_of(rank) for rank in failure.culprit_ranks}
    if not texts or (failure.text and not failure.links and culprits == texts.keys()):
        return failure
    ranks = ranks_of(run.plan, texts)
    text = joined(": ", filter(None, (failure.text, joined("; ", sorted(texts.values())[:4]))))
    return blame(msgspec.structs.replace(failure, links=()), failure.kind, ranks, text)


def _halted_by(run: ObservedRun, answers: Mapping[str, AgentMessage]) -> network_evidence.Halted:
    reports = [(run.channels.endpoints[name].host, line.halted, line.unread) for name, line in answers.items()]
    return network_evidence.halted_by(reports, run.addresses, len(run.plan.ranks_by_host))


def _with_stacks(failure: Failure, channels: Channels) -> Failure:
    answers = channels.query("stacks", {name: DumpStacks() for name in channels.endpoints}, ANSWER)
    end = time.monotonic() + LATE_ANSWER
    while (due := [name for name, line in answers.items() if line.due]) and time.monotonic() < end:
        answers = {**answers, **channels.query("stacks", dict.fromkeys(due, DumpStacks()), ANSWER)}
    texts = {rank: text for line in answers.values() for rank, text in (line.stacks or {}).items()}
    ranks = list(dict.fromkeys([*failure.culprit_ranks, *failure.waiting_ranks, *sorted(texts)]))[:MOST_STACKS]
    limits = [
        filled("On {0}: {1}", channels.endpoints[name].host, strip_control_chars(sentence, 300))
        for name, line in answers.items()
        for sentence in line.limits[:4]
    ]
    waits = [(channels.endpoints[name].host, line.files) for name, line in answers.items()]
    failure = msgspec.structs.replace(
        failure,
        stacks={rank: callers_stack(texts[rank]) for rank in ranks if texts.get(rank)},
        evidence=(*failure.evidence, *list(dict.fromkeys(limits))[:8]),
    )
    return held_by_files(failure, waits)


def _with_named_peers(failure: Failure, run: ObservedRun) -> Failure:
    """Ranks whose errors follow from another one: who they name, and who has no error of its own, is the cause.

    Two hosts have to name one, as no host's word decides about another. Of more than two hosts, the two that each say
    of the other alone that it closed their connection are where it broke first: neither had lost another one before.
    """
    plan, progress, addresses = run.plan, run.progress, run.addresses
    errors = {rank: error for rank, error in progress.errors.items() if rank >= 0 and is_secondary(error)}
    named, closed = dict[str, set[str]](), dict[str, set[str]]()
    for rank, error in errors.items():
        host_of_rank = plan.host_of(rank)
        for address in peer_addresses(error):
            if (host := addresses.host(address, host_of_rank)) != host_of_rank:
                named.setdefault(host, set()).add(host_of_rank)
                closed.setdefault(host_of_rank, set()).add("" if gave_up_waiting(error) else host)
    culprits = {
        host: [rank for rank in plan.ranks_by_host[host] if rank not in progress.errors]
        for host in named
        if host in plan.ranks_by_host
    }
    silent = [host for host, ranks in culprits.items() if ranks and len(named[host]) > 1]
    if failure.culprit_ranks or len(silent) != 1:
        ends = [host for host, peers in sorted(closed.items()) if closed.get(min(peers)) == {host} and len(peers) == 1]
        if failure.culprit_ranks or len(ends) != 2 or len(plan.ranks_by_host) < 3:
            return failure
        text = "{0} and {1} each say that the other one closed their connection, before any other was lost."
        evidence = (*failure.evidence, filled(text, *ends))
        return msgspec.structs.replace(failure, links=((ends[0], ends[1]),), evidence=evidence)
    (host,) = silent
    why = filled(
        "The errors of {0} hosts name {1}, whose {2} has none.", len(named[host]), host, rank_names(culprits[host])
    )
    return blame(
        msgspec.structs.replace(failure, evidence=(*failure.evidence, why)), "network", culprits[host], failure.text
    )


def late_failure(own_time: Mapping[int, float], run: ObservedRun) -> Failure | None:
    """Ranks that are late to join, where something shows why or where runs without the job's variables may show it."""
    late = run.progress.late_to_join(own_time)
    if late is None:
        return None
    late = _with_stacks(late, run.channels)
    if elsewhere := busy_elsewhere(late, run.occupied):  # it may be late as long as any rank
        return elsewhere if run.progress.looks * late.limit >= run.plan.patience else None
    explained = _explain_late(late, run)
    if explained or not run.progress.is_for_a_trial:
        return explained
    text = filled(
        "{0} had not joined after {1} s in which each could run", rank_names(late.waiting_ranks), f"{late.limit:g}"
    )
    return msgspec.structs.replace(late, kind="budget", text=text)


def explain_gave_up(failure: Failure, run: ObservedRun) -> Failure:
    """Ranks that gave up waiting for others to join: with who causes it; undecided where nothing shows it.

    Any other failure is returned as it is.
    """
    if failure.kind != "never-joined" or failure.culprit_ranks:
        return failure
    waiting = tuple(sorted(set(range(run.plan.world)) - run.progress.joined))
    failure = msgspec.structs.replace(failure, waiting_ranks=waiting)
    if spinning := run.progress.spinning_at_start():
        return spinning
    failure = _with_stacks(failure, run.channels)
    undecided = failure.blaming((), kind="budget", evidence=(*failure.evidence, *run.progress.still_importing()))
    return busy_elsewhere(failure, run.occupied) or _explain_late(failure, run) or undecided


class _LinkEvidence(NamedTuple):
    """What the sockets of the ranks wait for, and what new connections between the hosts say."""

    stuck: Mapping[network_evidence.Link, tuple[int, int]]
    failed: tuple[network_evidence.Link, ...]
    cut: tuple[str, ...]
    parts: tuple[tuple[str, ...], ...]
    tried: Mapping[str, Sequence[network_evidence.Probe]]
    halted: network_evidence.Halted
    taken: tuple[tuple[str, str, str], ...]
    """Holder, address, owner: ends of these links whose address another host has since the run began."""
    refusing: Mapping[str, str]
    """By host whose own kernel sends nothing to another one, or not even to itself: what it says."""
    unread: frozenset[str]
    """Hosts to whose ranks bytes have come that they do not take: who sent them has done its part."""

    @property
    def between_hosts(self) -> tuple[network_evidence.Link, ...]:
        """Those of ``failed`` with two ends."""
        return tuple(link for link in self.failed if link[0] != link[1])

    def sentences(self) -> tuple[str, ...]:
        return network_evidence.sentences(self.stuck, self.failed, self.cut, bool(self.tried))


def _link_evidence(run: ObservedRun, by_ranks: Mapping[str, Sequence[network_evidence.Probe]]) -> _LinkEvidence:
    channels, addresses = run.channels, run.addresses
    hosts = {name: endpoint.host for name, endpoint in channels.endpoints.items()}
    answers = channels.query("sockets", {name: ListSockets() for name in hosts}, ANSWER)
    rows, ports = network_evidence.by_host(
        hosts, {name: (line.sockets or (), line.listening) for name, line in answers.items()}
    )
    stuck = network_evidence.stuck_links(rows, addresses)
    ends = [end for link in stuck for end in link] or list(rows)
    aims = network_evidence.targets(ports, addresses, list(dict.fromkeys(ends)))
    askers = {host: name for name, host in reversed(hosts.items())}
    orders = {askers[host]: Probe(aim, PROBE) for host, aim in aims.items() if aim}
    probes = channels.query("probes", orders, PROBE + ANSWER) if orders else {}
    tried = {hosts[name]: line.probes or () for name, line in probes.items()}
    tried = {host: (*tried.get(host, ()), *by_ranks.get(host, ())) for host in (*tried, *by_ranks)}
    failed, cut, parts = network_evidence.failed_links(tried, addresses)
    now = network_evidence.AddressOwners({hosts[name]: line.addresses for name, line in answers.items()})
    concerned = {end for link in (*stuck, *failed) for end in link}
    taken = tuple(row for row in addresses.taken(now) if row[2] in concerned)
    # gloo always reads what comes; a host that does not answer may keep others from it
    unread = frozenset(hosts[name] for name, line in answers.items() if line.unread and len(answers) == len(hosts))
    refusing = network_evidence.refusing_hosts(tried, rows, addresses)
    refusing = refusing or (network_evidence.stuck_within(rows, addresses, stuck) if stuck and not cut else {})
    return _LinkEvidence(stuck, failed, cut, parts, tried, _halted_by(run, answers), taken, refusing, unread)


def _with_links(failure: Failure, run: ObservedRun, finished: Sequence[int]) -> Failure:
    """Which link, or which host: by what the sockets wait for, then by new connections between all hosts."""
    links = _link_evidence(run, {})
    halting, roomless = links.halted
    stuck = {*links.stuck, *roomless}
    if failure.certainty == "timeout" and not (stuck or links.failed or links.cut or halting or failure.links):
        unread = links.unread & _link_evidence(run, {}).unread if links.unread else links.unread
        if unread and run.plan.backend == "gloo" and 2 * len(unread) <= len(run.plan.ranks_by_host):
            text = filled("bytes have come to {0} that its ranks do not read", ", ".join(sorted(unread)))
            return failure.blaming(ranks_of(run.plan, unread), text=text)
        has_sent = links.unread and failure.op in ONE_WAY
        return explain_standstill(failure, () if has_sent else finished, bool(links.tried))
    if links.taken:
        holder, address, owner = links.taken[0]
        text = filled("{0} has {1} as well, the address of {2}", holder, address, owner)
        failure = msgspec.structs.replace(failure, links=(), evidence=(*failure.evidence, *links.sentences()))
        return blame(failure, "network", run.plan.ranks_by_host[holder], text)
    if links.refusing and not links.parts:
        ranks = ranks_of(run.plan, links.refusing)
        text = joined("; ", list(links.refusing.values())[:4])
        failure = msgspec.structs.replace(failure, links=(), evidence=(*failure.evidence, *links.sentences()))
        return blame(failure, "network", ranks, text)
    culprits = tuple(ranks_of(run.plan, links.cut)) or failure.culprit_ranks
    return failure.blaming(
        () if links.parts else culprits,
        links=links.between_hosts or tuple(sorted(stuck)) or failure.links,
        parts=links.parts,
        evidence=(*failure.evidence, *links.sentences(), *roomless.values()),
    )


def _with_logs(failure: Failure, progress: StageProgress) -> Failure:
    """The layout, the kernel's log, and what the guilty ranks printed last."""
    # Who left may be in another layout by now.
    parts = failure.culprit_ranks, failure.waiting_ranks
    ranks = tuple(rank for part in (parts[::-1] if failure.kind == "left" else parts) for rank in part)
    layout = failure.layout or (progress.layout_name(ranks) if failure.stage == "training" else "")
    keys = progress.keys(failure.culprit_ranks)
    logs = list(dict.fromkeys(progress.kernel_logs[key] for key in keys if key in progress.kernel_logs))
    last = [
        filled("its last error output: {0}", error_text)
        for error_text in dict.fromkeys(progress.errors[key] for key in keys if key in progress.errors)
        if error_text.split(": ", 1)[-1] not in failure.text  # which may be the same but for the class of the error
    ]
    return msgspec.structs.replace(
        failure,
        layout=layout,
        stacks=failure.stacks | _error_stacks(failure, progress),
        evidence=(*failure.evidence, *logs[:4], *last[:3]),
    )


def _error_stacks(failure: Failure, progress: StageProgress) -> dict[int, str]:
    """By culprit rank: the traceback of the error that ended it, or the process that it comes from; each once."""
    stacks: dict[int, str] = {}
    for rank in failure.culprit_ranks:
        stack = next((progress.stacks[key] for key in progress.keys([rank]) if progress.stacks.get(key)), "")
        if stack and stack not in stacks.values() and not failure.stacks.get(rank):
            stacks[rank] = stack
    return dict(list(stacks.items())[:MAX_ERROR_STACKS])
