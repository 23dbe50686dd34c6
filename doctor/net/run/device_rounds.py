"""The pairs of the schedule try their accelerators' own network, round by round: no host is in two pairs at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from doctor.engine.texts import filled
from doctor.net.device_trials import (
    RDMA_PROGRAMS,
    RETRIED,
    TrialResult,
    answered_pings,
    ping_calls,
    rdma_command,
    read_ping,
    read_rdma,
    rping_command,
)
from doctor.net.plan import NetPlan
from doctor.net.run.busy_hosts import HostTrial
from doctor.net.run.sessions import Probers

ANSWER_SECONDS = 5.0
PING_SECONDS = 20.0
"""For all NPUs of a host to those of one other."""
RDMA_SECONDS = 8.0
FIRST_ORDER = 1_000_000
FIRST_TCP_PORT, TCP_PORTS = 18515, 1024
"""perftest's own port, and those behind it."""
Reader = Callable[[str], tuple[TrialResult, str, float]]


def try_devices(
    plan: NetPlan, results: Mapping[str, HostTrial], probers: Probers, end: float, *, load: bool
) -> list[str]:
    """Pings between NPUs, and, where ``load`` is allowed, writes between RDMA adapters. Returns notes on coverage."""
    rounds = _DeviceRounds(plan, results, probers, end)
    every = [endpoint.devices for endpoint in plan.endpoints]
    untried = sum(len(devices.untried) for devices in every)
    text = "RDMA adapters of EFA or iWARP: {0} not tried, since the programs cannot"
    notes = [filled(text, untried)] if untried and load else []
    if sum(bool(devices.npus or devices.rdma) for devices in every) < 2:
        return notes
    rounds.list_programs()
    return [*rounds.ping(), *(rounds.write() if load else ()), *notes]


class _DeviceRounds:
    def __init__(self, plan: NetPlan, results: Mapping[str, HostTrial], probers: Probers, end: float) -> None:
        self.plan, self.results, self.probers, self.end = plan, results, probers, end
        self.order = FIRST_ORDER

    def list_programs(self) -> None:
        for host in self.plan.hosts:
            self.probers.send(host, {"do": "programs"})
        self._wait(set(self.plan.hosts), lambda result: result.programs is not None, ANSWER_SECONDS)

    def _wait(self, hosts: set[str], ready: Callable[[HostTrial], bool], seconds: float) -> None:
        self.probers.wait(
            lambda: all(ready(self.results[host]) or host in self.probers.lost for host in hosts),
            min(time.monotonic() + seconds, self.end),
        )

    def _programs(self, number: int) -> list[str]:
        host = self.plan.hosts[number]
        return [] if host in self.probers.lost else self.results[host].programs or []

    def _keep(self, source: int, target: int, order: int, read: Reader, labels: Iterable[str]) -> int:
        """Reads what the programs of an order have printed. Returns how many say something.

        ``labels``: of those that were to print.
        """
        decided, unanswered = 0, {*labels}
        for label, text, _ in self.results[self.plan.hosts[source]].called.pop(order, ()):
            result, detail, gigabits = read(text)
            decided += result != "unknown"
            unanswered.discard(label)
            self._enter(source, target, label, result, detail, gigabits)
        for label in sorted(unanswered):
            self._enter(source, target, label, "unknown", "the time budget ended before")
        return decided

    def _enter(
        self, source: int, target: int, label: str, result: TrialResult, detail: str = "", gigabits: float = 0.0
    ) -> None:
        entry = {"target": target, "device": label, "result": result, "detail": detail, "gigabits": gigabits}
        self.results[self.plan.hosts[source]].devices.append(entry)

    def ping(self) -> list[str]:
        """Every NPU pings that of the same number of the partner; of NPUs the lower host's begin.

        What the second round's pings had answered is taken from there; what they had not is tried again.
        """
        tried = every = 0
        for number in range(self.plan.schedule.rounds):
            self.order += 1
            planned: dict[tuple[int, int], list[str]] = {}
            running: list[tuple[int, int]] = []
            for source, target in self.plan.schedule.pairs(number):
                ends = self.plan.endpoints[source].devices, self.plan.endpoints[target].devices
                for npu in answered_pings(*ends):
                    self._enter(source, target, f"NPU {npu}", "worked")
                    every, tried = every + 1, tried + 1
                calls = ping_calls(*ends)
                if not calls or "hccn_tool" not in self._programs(source):
                    continue
                planned[source, target] = [label for label, _ in calls]
                every += len(calls)
                if time.monotonic() + PING_SECONDS / 2 < self.end:
                    self._call(source, calls, PING_SECONDS)
                    running.append((source, target))
            self._wait_for_calls(running, PING_SECONDS)
            tried += sum(self._keep(*pair, self.order, read_ping, labels) for pair, labels in planned.items())
        return [filled("NPU pings between all pairs: {0} of {1} decided", tried, every)] if every else []

    def _call(self, source: int, calls: list[tuple[str, list[str]]], seconds: float) -> None:
        order = {"do": "call", "number": self.order, "calls": calls, "seconds": seconds, "again": RETRIED}
        self.probers.send(self.plan.hosts[source], order)

    def _wait_for_calls(self, pairs: list[tuple[int, int]], seconds: float) -> None:
        order = self.order
        callers = {self.plan.hosts[source] for source, _ in pairs}
        self._wait(callers, lambda result: order in result.called, seconds + ANSWER_SECONDS)

    def write(self) -> list[str]:
        """Each adapter that both hosts of a pair have, in both directions; the next one when all pairs had a turn."""
        tried = every = 0
        turns = max((len(endpoint.devices.rdma) for endpoint in self.plan.endpoints), default=0)
        for turn in range(turns):
            for number in range(self.plan.schedule.rounds):
                pairs = self.plan.schedule.pairs(number)
                for ordered in (pairs, [(target, source) for source, target in pairs]):
                    done, count = self._write_pairs(number, turn, ordered)
                    tried, every = tried + done, every + count
        return [filled("RDMA writes between all pairs: {0} of {1} decided", tried, every)] if every else []

    def _write_pairs(self, number: int, turn: int, pairs: list[tuple[int, int]]) -> tuple[int, int]:
        """How many attempts say something, and how many there were to make."""
        self.order += 1
        planned, chosen = dict[tuple[int, int], list[str]](), dict[tuple[int, int], tuple[str, str]]()
        for source, target in pairs:
            common = sorted(self._rdma(source).keys() & self._rdma(target).keys())
            programs_of_target = self._programs(target)
            if turn >= len(common):
                continue
            device = common[(number + turn) % len(common)]
            programs = [
                name for name in RDMA_PROGRAMS
                if name in self._programs(source) and name in programs_of_target
                and (name != "rping" or device in self._addresses(source).keys() & self._addresses(target).keys())
            ]  # fmt: skip
            if programs:
                planned[source, target] = [device]
                if time.monotonic() + RDMA_SECONDS + ANSWER_SECONDS < self.end:
                    chosen[source, target] = (programs[0], device)
        tcp_port = FIRST_TCP_PORT + self.order % TCP_PORTS
        for (_, target), (program, device) in chosen.items():
            if program == "rping":
                argv = rping_command(tcp_port, self._addresses(target)[device])
            else:
                argv = rdma_command(program, device, self._rdma(target)[device], tcp_port)
            order = {"do": "serve", "number": self.order, "argv": argv, "seconds": RDMA_SECONDS + ANSWER_SECONDS}
            self.probers.send(self.plan.hosts[target], order)
        servers = {self.plan.hosts[target] for _, target in chosen}
        number_of_order = self.order
        self._wait(servers, lambda result: number_of_order in result.serving, ANSWER_SECONDS)
        for (source, target), (program, device) in chosen.items():
            if program == "rping":
                argv = rping_command(tcp_port, self._addresses(target)[device], self._addresses(source)[device])
            else:
                address = next(iter(self.plan.endpoints[target].addresses.values()))
                argv = rdma_command(program, device, self._rdma(source)[device], tcp_port, address)
            self._call(source, [(device, argv)], RDMA_SECONDS)
        self._wait_for_calls(list(chosen), RDMA_SECONDS)
        for host in servers:
            self.probers.send(host, {"do": "served"})
        return sum(self._keep(*pair, self.order, read_rdma, labels) for pair, labels in planned.items()), len(planned)

    def _addresses(self, number: int) -> Mapping[str, str]:
        return self.plan.endpoints[number].devices.rdma_addresses

    def _rdma(self, number: int) -> Mapping[str, int | None]:
        return self.plan.endpoints[number].devices.rdma
