"""The round of a network test: from the facts of the first round to answers in the hosts' records, as raw outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from itertools import islice
from typing import Any

import msgspec

from doctor.engine.addresses import plain_address
from doctor.engine.evaluate import FactCache
from doctor.engine.fact import Output, PerHost
from doctor.engine.record import HostRecord
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.secrets import hide_secrets
from doctor.engine.texts import filled
from doctor.facts.interfaces import same_address
from doctor.facts.network_test import NetworkAnswer
from doctor.facts.peer_connections import NO_ROOM
from doctor.job import LaunchConfig
from doctor.net.assemble import LARGE_LOST_BACK, LARGE_LOST_THERE, NO_ROUTE, assemble_matrix, schedule_of
from doctor.net.findings import localized
from doctor.net.localize import MOST_CAUSES
from doctor.net.matrix import ARP_ANSWERED, ARP_SILENT, ARRIVED, LETTERS, AttemptOutcome, Matrix
from doctor.net.plan import NetOptions, NetPlan, plan_network_test
from doctor.net.prober.listener import NOT_TRIED
from doctor.net.run.busy_hosts import DECIDED, GAVE_UP, UNANSWERED, Cell, HostTrial, undecided
from doctor.net.run.conduct import Conductor, NetTest, PhaseCallback
from doctor.net.run.flow_trial import FlowTrial, flow_trials, has_arrived, is_open, lossy_flows, undecided_flows
from doctor.net.run.repeats import speed_values
from doctor.net.run.sessions import AttemptReport, ListenerReport
from doctor.transport import Transport, TransportError
from doctor.transport.program import visit_hosts

_LETTERS = {
    "open": "o",
    "refused": "r",
    "dropped": "d",
    "no-route": "u",
    "unreachable": "u",
    "stranger": "s",
    "other-port": "s",
    "silent": "d",  # nothing was received: no sign of another program
    "cut": "s",
    "other-host": "w",
    "some-flows": "f",
    "sends-stall": "h",
    "receives-stall": "h",
    "local": "?",
    "untried": "?",
}
"""`doctor.net.matrix.LETTERS` by the prober's word."""
_DETAILS = {
    "no-route": NO_ROUTE + " ({detail})",
    "other-port": "answered as port {detail}",
    "silent": "connection accepted, no data received",
    "cut": "the connection is closed before a word is said",
    "sends-stall": LARGE_LOST_THERE,
    "receives-stall": LARGE_LOST_BACK,
}
_NEIGHBOURS = {"neighbour": ARP_ANSWERED, "no-neighbour": ARP_SILENT}
_BUSY = "no answer, and {host} was too busy to give one: {busy}"
NOT_REACHED = ("name", "refused", "no-route", "dropped", "silent", "lost", "timeout")
"""Of a second visit: nothing of the host answers any more. What is refused for another reason says nothing."""
AGAIN_SECONDS = 10.0
MAX_NAMED_HOSTS = 8
"""In notes on refused entries."""
AGAIN_WORKERS = 32
_COMES_AND_GOES = "failed at first, and was answered later: it comes and goes"
_OF_ANOTHER = "no answer, and the host has the address of another one, {address}"


class NetRoundResult(msgspec.Struct, frozen=True):
    """What became of the round."""

    records: dict[str, HostRecord]
    notes: tuple[str, ...] = ()
    stopped: BaseException | None = None


def run_net_round(
    records: Mapping[str, HostRecord],
    launch: LaunchConfig,
    transport: Transport,
    options: NetOptions,
    *,
    within: tuple[str, ...] = (),
    on_phase: PhaseCallback = lambda name, seconds: None,
) -> NetRoundResult:
    """Has every host that was reached try its network; what interrupts it is in the result."""
    plan = plan_network_test(records, launch, options)
    if len(records) < 2:
        return NetRoundResult(without_net_answers(records, "only one host", single=True))
    if len(plan.endpoints) < 2:
        return NetRoundResult(without_net_answers(records, "fewer than two hosts could be reached"))
    test = Conductor(plan, options, transport, within=within, python=launch.python, on_phase=on_phase).run()
    merged = with_net_answers(records, test, options)
    merged.update(gone_hosts(merged, test, transport))
    faults = [f"{host}: {result.faults[0]}" for host, result in test.results.items() if result.faults]
    return NetRoundResult(merged, (*coverage_notes(merged, options), *test.notes, *faults[:8]), test.stopped)


def gone_hosts(records: Mapping[str, HostRecord], test: NetTest, transport: Transport) -> dict[str, HostRecord]:
    """The records of hosts that took part, were lost, and cannot be reached any more: as of those never reached."""
    unreachable: dict[str, HostRecord] = {}

    def visit(host: str) -> TransportError | None:
        try:
            transport.run(host, "true", b"", AGAIN_SECONDS)
        except TransportError as error:
            return error
        return None

    def take(host: str, error: TransportError | None) -> None:
        if error is not None and error.kind in NOT_REACHED:
            failed = {
                "failure": error.kind,
                "text": filled("it answered until the network test, and no longer after it: {0}", error.text),
                "hint": error.hint,
            }
            unreachable[host] = HostRecord(msgspec.structs.replace(records[host].visit, **failed))

    lost = [host for host in test.lost if test.results[host].hello is not None]
    if lost and test.stopped is None:
        visit_hosts(lost, transport, visit, AGAIN_WORKERS, take)
    return unreachable


def coverage_notes(records: Mapping[str, HostRecord], options: NetOptions) -> tuple[str, ...]:
    """How much of the network was tried, and what a schedule of some pairs may miss."""
    answers = FactCache(records).fleet(NetworkAnswer)
    if not answers:
        return ("network test: no host took part",)
    schedule, matrix = schedule_of(answers), assemble_matrix(answers)
    missed = filled("; chance to miss a single bad pair: {0} %", f"{100 * schedule.chance_to_miss_pair:.1f}")
    some = missed if schedule.chance_to_miss_pair else ""
    coverage = filled("network test ({0}): {1}{2}", options.mode, matrix.coverage(), some)
    unneeded = sum(row.count(LETTERS[AttemptOutcome.NOT_NEEDED]) for rows in matrix.rows for row in rows)
    one_way = (
        "network test: {0} attempts fail that the job does not need: Gloo connects from the greater address to the "
        "smaller one"
    )
    note = (filled(one_way, unneeded),) if unneeded else ()
    return (coverage, *note, *_refused_notes(matrix), *_unlisted_notes(matrix, answers))


def _refused_notes(matrix: Matrix) -> Iterator[str]:
    """How much of each host's answer was refused; the first `MAX_NAMED_HOSTS` by name."""
    for host, number in islice(matrix.rejected.items(), MAX_NAMED_HOSTS):
        name = strip_control_chars(matrix.hosts[host], 100)
        yield filled(
            "network test: entries refused in the answer of {0}: {1} (malformed, or about another host)", name, number
        )
    if len(matrix.rejected) > MAX_NAMED_HOSTS:
        others = len(matrix.rejected) - MAX_NAMED_HOSTS
        yield filled("network test: further hosts with refused entries: {0}", others)


def _unlisted_notes(matrix: Matrix, answers: PerHost[NetworkAnswer]) -> Iterator[str]:
    """How many pairs of hosts no finding names, as there are too many causes."""
    if len({frozenset(failure[:2]) for failure in matrix.failures()}) > MOST_CAUSES:
        unlisted = localized(answers).more
        if unlisted:
            text = "network test: pairs of hosts that fail and are in no finding: {0} (more than {1} causes)"
            yield filled(text, unlisted, MOST_CAUSES)


def with_net_answers(records: Mapping[str, HostRecord], test: NetTest, options: NetOptions) -> dict[str, HostRecord]:
    """The records with each host's part of the test, or why it has none."""
    plan, merged = test.plan, {}
    busy = undecided({number: test.results[host] for number, host in enumerate(plan.hosts)})
    lossy = lossy_flows(plan, test.results)
    conflicting = _hosts_with_address_of_absent(plan, records)
    shared = {
        "hosts": plan.hosts,
        "ports": [(port.purpose, port.number) for port in plan.ports],
        "mode": options.mode,
        "seed": options.seed,
        "groups": [(group.kind, group.name, group.hosts) for group in plan.groups],
    }
    for host, record in records.items():
        if host in test.results and test.results[host].has_listened and host not in test.lost:
            of_another = conflicting.get(host, "")
            answer = _answer(host, test, busy, {} if of_another else lossy, of_another)
            own = {"host": plan.hosts.index(host), "gloo_place": plan.gloo_places.get(host)}
            content = {**own, **shared, "answer": answer}
        else:
            reason = test.lost.get(host) or plan.left_out.get(host) or "it did not answer in time"
            content = {"why": filled("no part in the network test: {0}", reason)}
        output = Output(out=msgspec.json.encode(content).decode())
        merged[host] = HostRecord(record.visit, {**record.outputs, NetworkAnswer.__name__: {"": output}})
    return merged


def without_net_answers(records: Mapping[str, HostRecord], why: str, *, single: bool = False) -> dict[str, HostRecord]:
    """The records of a test that was not made. ``single``: there is nothing to test."""
    content = {"single": True} if single else {"why": filled("the network test was not made: {0}", why)}
    output = Output(out=msgspec.json.encode(content).decode())
    return {
        host: HostRecord(record.visit, {**record.outputs, NetworkAnswer.__name__: {"": output}})
        for host, record in records.items()
    }


def _answer(
    host: str, test: NetTest, busy: Mapping[Cell, int], lossy: Mapping[tuple[int, int], FlowTrial], of_another: str
) -> dict[str, object]:
    """``busy``: the attempts that say nothing, and the host that was too busy to answer them; ``lossy``: see there.

    ``of_another``: an address of the host that is another host's, which it may have called from, or empty.
    """
    plan, result = test.plan, test.results[host]
    number = plan.hosts.index(host)
    rows, arrivals = _planned_rows(test, number), cache(partial(_arrivals, test, number))
    details, arrived, too_busy = [], [], dict[str, str]()
    unsure = {to: blamed for (source, to), blamed in undecided_flows(plan, test.results).items() if source == number}
    blocked = {to: trial.blocked for to, trial in flow_trials(result).items() if to in unsure}
    for (target, place), attempt in sorted(result.attempts.items()):
        letter = _LETTERS.get(attempt.outcome, "?")
        blamed, flows = busy.get((number, target, place)), lossy.get((number, target))
        text, is_arrived = "", False
        if flows is not None and attempt.outcome in DECIDED and place not in flows.blocked:
            letter, text = _LETTERS["some-flows"], flows.text
            listened = {port: listener.port for port, listener in test.results[plan.hosts[target]].listeners.items()}
            is_arrived = has_arrived(flows, listened, arrivals(target))
        elif letter in "du" and (of_another or (target not in unsure and is_open(result, target, place))):
            letter, text = "?", filled(_OF_ANOTHER, address=of_another) if of_another else _COMES_AND_GOES
        elif attempt.outcome == "untried" and attempt.detail:
            text = too_busy[host] = NO_ROOM
        else:
            if target in unsure and attempt.outcome in UNANSWERED and place not in blocked[target]:
                blamed = unsure[target]
            if blamed is not None:
                trial, name, letter = test.results[plan.hosts[blamed]], plan.hosts[blamed], "?"
                too_busy[name] = trial.busy or trial.flows_busy or GAVE_UP
                text = filled(_BUSY, host=name, busy=too_busy[name])
        rows[place][target] = letter
        if letter == "o":
            continue
        if not text:
            is_arrived = attempt.outcome == "dropped" and attempt.port in {port for _, port in arrivals(target)}
            outcome = filled(_DETAILS.get(attempt.outcome, "{detail}"), detail=attempt.detail)
            text = ARRIVED if is_arrived else _NEIGHBOURS.get(outcome, outcome)
        details.append(_detail(attempt, target, place, text))
        if is_arrived:
            arrived.append((target, place))
    return {
        "rows": ["".join(row) for row in rows],
        "attempts": details,
        "arrived": arrived,
        "listeners": list(_listeners(result)),
        "speeds": [speed_values(speed) for speed in result.speeds],
        "devices": result.devices,
        "too_busy": too_busy,
        "holds": [place for place, address in _addresses_of_others(plan, number)],
    }


def _planned_rows(test: NetTest, number: int) -> list[list[str]]:
    """By port, the host's letter for each target before any attempt."""
    plan = test.plan
    rows = [["."] * len(plan.hosts) for _ in plan.ports]
    for row in rows:
        row[number] = "-"
    for target, places in plan.attempts_of(number):
        listeners = test.results[plan.hosts[target]].listeners
        for place in places:
            # No host connects to a port that its own host cannot bind: the problem of its listener decides.
            unbound = place in listeners and bool(listeners[place].problem)
            letter = "." if unbound and listeners[place].problem == NOT_TRIED else "r" if unbound else "?"
            rows[place][target] = "-" if unbound and target == number else letter
    return rows


def _hosts_with_address_of_absent(plan: NetPlan, records: Mapping[str, HostRecord]) -> dict[str, str]:
    """Hosts that hold the address of one that takes no part, with this address: answers to them may go there."""
    members = set(plan.hosts)
    absent = {
        plain_address(record.visit.address)
        for host, record in records.items()
        if host not in members and record.visit.address
    }
    return {
        host: address
        for host, endpoint in zip(plan.hosts, plan.endpoints, strict=True)
        for address in (endpoint.held if absent else ())
        if plain_address(address) in absent
    }


def _addresses_of_others(plan: NetPlan, host: int) -> Iterator[tuple[int, str]]:
    """Hosts at whose address others connect to them, and that this one holds as well, each with such an address."""
    for place, endpoint in enumerate(plan.endpoints):
        shared = [
            address
            for address in endpoint.addresses.values()
            if any(same_address(address, held) for held in plan.endpoints[host].held)
        ]
        if place != host and shared:
            yield place, shared[0]


def _detail(attempt: AttemptReport, target: int, place: int, text: str) -> dict[str, object]:
    detail: dict[str, object] = {"target": target, "port": place, "detail": text, "seconds": attempt.seconds}
    if attempt.largest:
        detail["largest_bytes"] = attempt.largest
    if attempt.outcome == "other-host" and attempt.detail.isdecimal():
        detail["answered_by"] = int(attempt.detail)
    return detail


def _arrivals(test: NetTest, source: int, target: int) -> set[tuple[int, int]]:
    """Source port, and port there, of this host's first packets that the target saw, whose answer was lost."""
    addresses = own_addresses(test.results[test.plan.hosts[source]])
    return {
        (source_port, port)
        for address, source_port, port in test.results[test.plan.hosts[target]].arrived or ()
        if any(same_address(address, held) for held in addresses)
    }


def own_addresses(result: HostTrial) -> list[str]:
    """All addresses that a host says it has."""
    by_interface = (result.hello or {}).get("addresses")
    if not isinstance(by_interface, dict):
        return []
    return [str(ip) for addresses in by_interface.values() if isinstance(addresses, list) for ip in addresses[:64]]


def _listeners(result: HostTrial) -> Iterator[dict[str, object]]:
    for place, report in sorted(result.listeners.items()):
        if report.problem != NOT_TRIED:
            yield _listener(place, report)


def _listener(place: int, report: ListenerReport) -> dict[str, object]:
    if not report.problem:
        return {"port": place, "state": "listening", "number": report.port}
    bound = bool(report.owner) or "in use" in report.problem
    return {
        "port": place,
        "state": "bound" if bound else "failed",
        "number": report.requested,
        "detail": owner_text(report.owner) if bound else report.problem,
        **({"service": True} if bound and report.is_of_service else {}),
    }


def owner_text(owner: Mapping[str, Any]) -> str:
    """Who holds a port: ``python3 train.py (pid 7, user ann, for 90 s)``."""
    parts = [f"pid {owner['pid']}"] if owner.get("pid") else []
    parts += [f"user {owner['user']}"] if owner.get("user") else []
    parts += [filled("for {0} s", owner["seconds"])] if "seconds" in owner else []
    command = hide_secrets(str(owner.get("command") or "a process"))[:100]
    if len(parts) == 3:  # whole, as one text that has its Chinese
        return filled("{0} (pid {1}, user {2}, for {3} s)", command, owner["pid"], owner["user"], owner["seconds"])
    return filled("{0} ({1})", command, ", ".join(parts)) if parts else command
