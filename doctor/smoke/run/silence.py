"""Hosts that no message comes from: whether they are lost, or only the connection of the controller to them is.

What decides is the training itself. Collectives that need a silent host's ranks and are completed all the same prove
that they run. Where they are not, the other hosts try to connect to it: a host that is lost gives no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from doctor.engine.texts import filled, joined
from doctor.job import limit_items
from doctor.smoke.hang.network_evidence import UNTRIED, AddressOwners, is_answer
from doctor.smoke.model import FailureKind, Snapshot
from doctor.smoke.protocol import ListSockets, Probe
from doctor.smoke.run.channels import Channels

SUSPECT = 0.7
"""Seconds without a message (agents send five a second) after which what is known of a host counts as old."""
UNANSWERED_LIMIT = 5.0
"""Seconds of silence after which a host is lost that others wait for, and that gives none of them an answer."""
LIMIT = 10.0
"""The same, for a host that no other host waits for."""
UNOBSERVED_LIMIT = 14.0
"""Seconds of silence after which the run ends though the host may be sound: its agent ends its ranks soon after. Where
others wait for its ranks, all of it may be stopped: it has as long as a rank."""
STANDSTILL = 4.5
"""Seconds without a completed collective after which training does not go on."""
WAITING = 1.0
"""Seconds in a collective after which a rank waits for its other members."""
ANSWER, PROBE = 0.7, 0.6
"""Seconds for agents to answer, and for a new connection."""
PROBE_INTERVAL = 1.5
"""Seconds between two attempts to connect to a silent host."""
MAX_PROBING = 8
"""Hosts that try to connect to a silent one."""


class SilentHosts(NamedTuple):
    """Agents whose silence ends the run, and what it means."""

    kind: FailureKind
    names: list[str]
    text: str
    limit: float


class _Silence:
    """One agent's silence: how far the others were in the groups that they share with its ranks."""

    answers: bool | None
    """Whether another host got an answer at the time ``probed``; None when none could try."""

    def __init__(self, now: float, entered: Mapping[int, int]) -> None:
        self.entered, self.progressed, self.training = dict(entered), now, False
        self.probed, self.answers = now - 2 * PROBE_INTERVAL, None

    def update(self, now: float, entered: Mapping[int, int]) -> None:
        """Who enters the second collective after those known has left the first, which needed the silent ranks."""
        for group, number in entered.items():
            if number >= self.entered.setdefault(group, number) + 2:
                self.entered[group] = number - 1
                self.progressed, self.training = now, True


class SilenceWatch:
    """Decides what becomes of silent agents. `ranks`: those of each agent; `members`: those of a process group."""

    def __init__(
        self,
        channels: Channels,
        ranks: Mapping[str, Sequence[int]],
        members: Callable[[int], Sequence[int]],
        local: bool,
        patience: float,
    ) -> None:
        """``local``: the agents run on the controller's own machine, which no network lies between. ``patience``:
        seconds that what may go on has.
        """
        self.channels, self.ranks, self.members, self.local = channels, ranks, members, local
        self.patience = patience
        self._silences: dict[str, _Silence] = {}
        self._longest: dict[str, float] = {}

    def sentences(self) -> list[str]:
        """Of a complete run: for how long no message of agents came."""
        text = "No message of {0} came for {1} s, and then it went on."
        rows = [filled(text, name, f"{seconds:.0f}") for name, seconds in sorted(self._longest.items())]
        return limit_items(rows, MAX_PROBING)

    def silent_for(self, name: str) -> float:
        """Seconds, without those that the controller or an agent waited for a CPU."""
        return self.channels.silent_seconds.get(name, 0.0) - self.channels.cpu_wait

    @property
    def suspects(self) -> list[str]:
        """Agents whose last message is too old to rely on."""
        return [name for name in self.channels.endpoints if self.silent_for(name) > SUSPECT]

    def evaluate(
        self, now: float, snapshots: Mapping[int, Snapshot], addresses: AddressOwners, master: tuple[str, int]
    ) -> SilentHosts | None:
        """None while it may still be nothing."""
        suspects = self.suspects
        silent_ranks = {rank for name in suspects for rank in self.ranks[name]}
        observed = [snap for rank, snap in snapshots.items() if rank not in silent_ranks]
        self._silences = {name: silence for name, silence in self._silences.items() if name in suspects}
        for name in suspects:
            entered = self._entered_with(set(self.ranks[name]), observed)
            silence = self._silences.setdefault(name, _Silence(now, entered))
            silence.update(now, entered)
        overdue = [name for name in suspects if self.silent_for(name) > UNANSWERED_LIMIT]
        if not overdue:
            return None
        self._longest.update({name: max(self._longest.get(name, 0.0), self.silent_for(name)) for name in overdue})
        return self._judge(now, overdue, observed, addresses, master)

    def _entered_with(self, ranks: set[int], observed: Iterable[Snapshot]) -> dict[int, int]:
        """How many collectives the observed ranks have entered, by the groups that one of ``ranks`` belongs to."""
        entered: dict[int, int] = {}
        for snap in observed:
            for group, number in snap.entered.items():
                if number > entered.get(group, 0) and ranks.intersection(self.members(group)):
                    entered[group] = number
        return entered

    def _judge(
        self,
        now: float,
        overdue: Sequence[str],
        observed: Sequence[Snapshot],
        addresses: AddressOwners,
        master: tuple[str, int],
    ) -> SilentHosts | None:
        if self.local:  # this machine runs, and nothing is known of the ranks that its agent observes
            return self._unobserved(overdue, self.patience)
        standing = [name for name in overdue if now - self._silences[name].progressed >= STANDSTILL]
        awaited = [name for name in standing if self._is_awaited(name, observed)]
        lost = [name for name in standing if self._is_lost(name, now, name in awaited, addresses, master)]
        if lost:
            return self._lost(lost)
        return self._unobserved([name for name in overdue if name not in awaited], UNOBSERVED_LIMIT)

    def _is_awaited(self, name: str, observed: Iterable[Snapshot]) -> bool:
        """Whether ranks of other hosts wait for the host's."""
        inside = [snap for snap in observed if snap.state == "collective" and snap.age > WAITING]
        return any(set(self.ranks[name]).intersection(self.members(snap.group)) for snap in inside)

    def _is_lost(
        self, name: str, now: float, is_awaited: bool, addresses: AddressOwners, master: tuple[str, int]
    ) -> bool:
        silence, seconds = self._silences[name], self.silent_for(name)
        if not is_awaited and seconds <= LIMIT:
            return False
        if now - silence.probed > PROBE_INTERVAL:
            silence.answers, silence.probed = self._answers(name, addresses, master), now
        return silence.answers is False or (is_awaited and seconds > self.patience)

    def _lost(self, names: list[str]) -> SilentHosts:
        answers = [self._silences[name].answers for name in names]
        limits = (self.patience, LIMIT, UNANSWERED_LIMIT)
        limit = next(each for each in limits if each == limits[-1] or min(map(self.silent_for, names)) > each)
        text = filled("no data from {0} for {1} s", ", ".join(limit_items(names, 4)), f"{limit:g}")
        if all(answer is False for answer in answers):
            text = joined("", (text, ", and no other host gets an answer from it"))
        elif any(answers):
            text = joined(
                "", (text, "; its kernel answers new connections, while its ranks do nothing that the others wait for")
            )
        return SilentHosts("silent", names, text, limit)

    def _unobserved(self, overdue: Sequence[str], limit: float) -> SilentHosts | None:
        if not any(self.silent_for(name) > limit for name in overdue):
            return None
        names = [name for name in overdue if self.silent_for(name) > 0.8 * limit]
        text = filled("no message from {0} for {1} s", ", ".join(limit_items(names, 4)), f"{limit:g}")
        if any(self._silences[name].training for name in names):
            text = joined("", (text, ", while its ranks completed collectives with the other hosts"))
        return SilentHosts("unobserved", names, text, limit)

    def _answers(self, name: str, addresses: AddressOwners, master: tuple[str, int]) -> bool | None:
        """Whether any other host gets an answer from the silent one; None when none can try."""
        channels, host = self.channels, self.channels.endpoints[name].host
        hosts = {other: endpoint.host for other, endpoint in channels.endpoints.items()}
        prober_by_host: dict[str, str] = {}
        for other, its_host in hosts.items():
            if its_host != host and self.silent_for(other) <= SUSPECT:
                prober_by_host.setdefault(its_host, other)
        names = list(prober_by_host.values())[:MAX_PROBING]
        replies = channels.query("sockets", {other: ListSockets() for other in names}, ANSWER)
        orders: dict[str, Probe] = {}
        for other in names:
            rows = replies[other].sockets or () if other in replies else ()
            ends = {(peer, port) for _, peer, port, _, _ in rows if addresses.host(peer, hosts[other]) == host}
            targets = sorted(ends)[:2] or [(address, master[1] or 1) for address in addresses.addresses(host)[:2]]
            if targets:
                orders[other] = Probe(targets, PROBE)
        probes = channels.query("probes", orders, PROBE + ANSWER) if orders else {}
        results = [result for reply in probes.values() for _, _, result, _ in reply.probes or () if result != UNTRIED]
        return any(is_answer(result) for result in results) if results else None
