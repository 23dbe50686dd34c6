"""One host of four lies, in one fact that a check takes from all hosts: no other host is touched, accused or let off.

For every check with facts of several hosts, and each of these facts, the host's answer is changed in the ways of
`LIES`. Compared with the fleet that tells the truth: no command or file of another host gets a value of the lie, no
finding names another host alone, and none of another host is gone. `tests/witnesses.toml` says for each fact why that
holds, and what may happen where two hosts' word stands against each other.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from doctor.engine.catalog import load_checks
from doctor.engine.check import Check, Need
from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.fact import OWN_ROUND, Fact, Output, ProvenFact
from doctor.engine.record import HostRecord, Run, load_run
from doctor.engine.result import Outcome, Report
from doctor.engine.toml_compat import read_table
from doctor.facts.address_proofs import AddressProofs, tasks_with_keys
from doctor.facts.master_trial import MasterTrial
from doctor.fix.select import choose_playbooks, ready_steps
from doctor.net.prober.handshake import RunKeys, pair_key
from doctor.net.run.sessions import AttemptReport, Probers
from doctor.remedy.catalog import load_playbooks
from doctor.remote.runtime.keyed_hash import make_proof
from doctor.session.replay import RunIntent
from tests.attack.stories import STORIES, ToldFleet, false_answers
from tests.bench.large_fleet import sickened
from tests.hosts.fleet import Fleet
from tests.hosts.gpu import gpu_fleet
from tests.hosts.npu import npu_fleet

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests" / "witnesses.toml"
HOSTS = 4
_NUMBER = re.compile(r"(?<![\w.:-])\d+(?![\w.:])")
_ADDRESS = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_WORDS = re.compile(r"[^\s,;={}]+")
_WORD = re.compile(r"(?<![\w.-])[a-z]{4,}(?![\w(])")
_TAG = re.compile(r'(?:comment "?)?(?:cluster-doctor )?\b[0-9a-f]{8}\b"?')
STRANGER = "10.66.66.66"
MARKS = ("31337", STRANGER, "liarsword")


def crossing(checks: Sequence[Check]) -> list[tuple[Check, Need]]:
    """Each check with each fact that it takes of all hosts."""
    return [(check, need) for check in checks for need in check.needs if need.fleet]


def is_answered(fact: Any) -> bool:
    """Whether a host's own answer is the fact, and it is asked in `doctor check`."""
    return fact.probe.kind not in ("visit", *OWN_ROUND)


@cache
def witnesses() -> dict[str, dict[str, str]]:
    """The table: by check and parameter, why one host's word does no harm."""
    return read_table(TABLE, dict[str, dict[str, str]])


ALLOWED: dict[str, set[str]] = {
    "claim": {"both accused", "command"},
    "pair": {"both accused"},
    "relation": {"accused", "both accused"},
    "witnessed": {"cleared"},
}
"""What a lie may do by the kind of its row. A name that nobody has, by the word of the one other host, is no name."""


class Lie(NamedTuple):
    """A way to change one answer."""

    name: str
    change: Callable[[random.Random, str, str], str]
    """Of the answer, and another host's to the same question."""


LIES = (
    Lie("a stranger's address", lambda source, answer, other: _ADDRESS.sub(STRANGER, answer)),
    Lie("one address is a stranger's", lambda source, answer, other: _once(source, _ADDRESS, STRANGER, answer)),
    Lie("another host's answer", lambda source, answer, other: other),
    Lie("another number", lambda source, answer, other: _once(source, _NUMBER, "31337", answer)),
    Lie("all numbers huge", lambda source, answer, other: _NUMBER.sub("31337", answer)),
    Lie("zero", lambda source, answer, other: _once(source, _NUMBER, "0", answer)),
    Lie("all zero", lambda source, answer, other: _NUMBER.sub("0", answer)),
    Lie("another word", lambda source, answer, other: _once(source, _WORD, "liarsword", answer)),
    Lie("half of it", lambda source, answer, other: answer[: len(answer) // 2]),
    Lie("a line less", lambda source, answer, other: _without_line(source, answer)),
    Lie("nothing", lambda source, answer, other: ""),
)


def _once(source: random.Random, pattern: re.Pattern[str], text: str, answer: str) -> str:
    matches = list(pattern.finditer(answer))
    if not matches:
        return answer
    match = source.choice(matches)
    return answer[: match.start()] + text + answer[match.end() :]


def _without_line(source: random.Random, answer: str) -> str:
    lines = answer.splitlines(keepends=True)
    if lines:
        del lines[source.randrange(len(lines))]
    return "".join(lines)


def saved_run(fleet: Fleet) -> dict[str, Any]:
    """What four test hosts answer; asked again where a busy machine kept an answer from coming in time."""
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.json"
            arguments = ["check", "sb[0001-0004]", "-F", str(fleet.ssh_config), "--save", str(path), "-q"]
            fleet.run([sys.executable, "-m", "doctor", *arguments], cwd=ROOT)
            document: dict[str, Any] = json.loads(path.read_text())
        if all({"HostNames", "HostAddresses"} <= record["outputs"].keys() for record in document["hosts"].values()):
            break
    return document


def first_hosts(run: Mapping[str, Any], count: int) -> dict[str, Any]:
    """The run with the first hosts alone."""
    names = list(run["hosts"])[:count]
    hosts = {name: run["hosts"][name] for name in names}
    inputs = {**run["probe_inputs"], "hosts": names}
    copied: dict[str, Any] = json.loads(json.dumps({**run, "hosts": hosts, "probe_inputs": inputs}))
    return copied


class Effect(NamedTuple):
    """What a check makes of the hosts' answers, as far as honest hosts go."""

    accused: frozenset[tuple[str, ...]]
    """The hosts of each finding with an honest host."""
    commands: Mapping[str, str]
    """Of each honest host: all that a plan would run or write there."""
    outcome: Outcome


class Fleets:
    """The truth of a fleet, and what lies of its last host do to a check."""

    def __init__(self, run: Run, has_norm: bool = True) -> None:
        self.has_norm = has_norm
        self.run = run
        self.liar = list(run.hosts)[-1]
        self.intent = RunIntent(run)
        self.playbooks = load_playbooks()
        self.named = [playbook.name for playbook in self.playbooks]
        self.facts = FactCache(run.hosts)
        self.truths: dict[str, Effect] = {}

    def truth(self, check: Check) -> Effect:
        if check.name not in self.truths:
            self.truths[check.name] = self.effect(check, self.facts)
        return self.truths[check.name]

    def effect_of_lies(self, check: Check, lies: Mapping[str, dict[str, Output]]) -> Effect:
        """With other answers of the liar, by fact."""
        record = self.run.hosts[self.liar]
        record = HostRecord(record.visit, {**record.outputs, **lies})
        cache = FactCache({**self.run.hosts, self.liar: record})
        for fact, values in self.facts._values.items():
            cache._values[fact] = {host: value for host, value in values.items() if host != self.liar}
        return self.effect(check, cache)

    def effect(self, check: Check, facts: FactCache) -> Effect:
        outcome = evaluate_check(check, tuple(self.run.hosts), facts, self.intent)
        accused = frozenset(
            tuple(sorted(finding.hosts)) for finding in outcome.findings if {*finding.hosts} - {self.liar}
        )
        return Effect(accused, self.commands(outcome), outcome)

    def commands(self, outcome: Outcome) -> dict[str, str]:
        report = Report(self.run.source, tuple(self.run.hosts), (outcome,))
        texts = {}
        for host, treatments in choose_playbooks(report, self.playbooks, self.named).by_host.items():
            if host != self.liar:
                steps = [step.filled_step for step in ready_steps(treatments, host) if not step.filled_step.manual]
                texts[host] = "\n".join(_text(step) for step in steps)
        return texts


def _text(step: Any) -> str:
    """What a step runs and writes; the tag of a firewall rule is made of the rule."""
    values = " ".join(f"{name}={value}" for name, value in sorted(step.values.items()))
    return _TAG.sub("", f"{values} {step.file} {step.line} {step.text} {step.remove} {step.replaces}")


def lies_of(record: HostRecord, other: HostRecord, fact: type[Fact], lie: Lie, source: random.Random) -> dict[str, Any]:
    """The answers to one fact's questions, changed: all of them, or one."""
    outputs = record.outputs.get(fact.output_name(), {})
    others = other.outputs.get(fact.output_name(), {})
    chosen = source.choice([*outputs]) if outputs and source.random() < 0.5 else None
    return {
        fact.output_name(): {
            name: output
            if chosen not in (None, name)
            else msgspec.structs.replace(output, out=lie.change(source, output.out, others.get(name, output).out))
            for name, output in outputs.items()
        }
    }


def harm(fleets: Fleets, check: Check, effect: Effect) -> Iterator[tuple[str, str]]:
    """What a lie has done to honest hosts, each with its kind.

    That is ``mark``, ``command``, ``accused``, ``both accused`` or ``cleared``. Where all hosts differ in truth there
    is no norm, and only a mark of the lie in a command shows anything.
    """
    truth = fleets.truth(check)
    for host, text in effect.commands.items():
        marks = [mark for mark in MARKS if mark in text and mark not in truth.commands.get(host, "")]
        if marks:
            yield "mark", f"{host} would run {marks}"
    if not fleets.has_norm:
        return
    own_words = {word for text in truth.commands.values() for word in _WORDS.findall(text)}
    for host, text in effect.commands.items():
        new = [word for word in _WORDS.findall(text) if word not in own_words and not _is_within(word, own_words)]
        if new:
            yield "command", f"{host} would run {new[:6]}"
    accused = {host for hosts in truth.accused for host in hosts}
    liar_named = any(fleets.liar in finding.hosts for finding in effect.outcome.findings)
    for hosts in effect.accused - truth.accused:
        if {*hosts} - accused and fleets.liar not in hosts:
            yield "both accused" if liar_named else "accused", f"accuses {' '.join(hosts)}"
    outcome = effect.outcome
    if truth.accused and not (outcome.findings or outcome.unknown or outcome.skipped or outcome.crashed):
        yield "cleared", f"clears {truth.accused}"


def _is_within(word: str, words: set[str]) -> bool:
    """Whether a word is an address of a network among the words: less than would be written without the lie."""
    try:
        network = IPv4Network(word)
        return any(network.subnet_of(IPv4Network(word)) for word in words if "/" in word and word[0].isdigit())
    except ValueError:
        return False


def worlds(saved: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Fleets]]:
    """Healthy fleets, and those in which every host has closed its firewall and lacks names: there a fix writes."""
    for number, run in enumerate(saved):
        for count in (2, 3, HOSTS):
            for state, share in (("healthy", None), ("sick", 0.0), ("all different", 0.3)):
                document = first_hosts(run, count)
                document = document if share is None else sickened(document, share)
                loaded = load_run(msgspec.json.encode(document), "run")
                yield f"fleet {number}, {count} hosts, {state}", Fleets(loaded, has_norm=not share)


def attacks(fleets: Fleets, count: int, seed: int) -> Iterator[str]:
    """What ``count`` lies have done that the table does not allow; each fact of each check in turn."""
    rows = [(check, need) for check, need in crossing(load_checks()) if is_answered(need.type)]
    for number in range(count):
        check, need = rows[number % len(rows)]
        source = random.Random(f"{seed} {number}")
        lie = source.choice(LIES)
        others = [host for host in fleets.run.hosts if host != fleets.liar]
        record, other = fleets.run.hosts[fleets.liar], fleets.run.hosts[source.choice(others)]
        lies = lies_of(record, other, need.type, lie, source)
        allowed = ALLOWED.get(witnesses().get(check.name, {}).get(need.parameter, ""), set())
        for kind, description in harm(fleets, check, fleets.effect_of_lies(check, lies)):
            if kind not in allowed:
                yield f"{check.name}, {need.parameter}, {lie.name}, number {number}: {kind}: {description}"


def told_stories(fleets: Fleets) -> Iterator[str]:
    """What the stories of one host have done that the table does not allow: each, before every check that hears it."""
    fleet = ToldFleet(fleets.run)
    for name in STORIES:
        lies = false_answers(fleet, name)
        for check in load_checks():
            heard = [need for need in check.needs if issubclass(need.type, Fact) and need.type.output_name() in lies]
            rows = witnesses().get(check.name, {})
            allowed = {kind for need in heard for kind in ALLOWED.get(rows.get(need.parameter, ""), ())}
            for kind, description in harm(fleets, check, fleets.effect_of_lies(check, lies)) if heard else ():
                if kind not in allowed:
                    yield f"{check.name}, {name}: {kind}: {description}"


PROVEN: dict[type[ProvenFact], tuple[bytes, Callable[[object], dict[str, object]]]] = {
    AddressProofs: (b"address", lambda answer: {"proven": {STRANGER: answer}}),
    MasterTrial: (b"master", lambda answer: {"reached": answer}),
}
"""The facts in which hosts prove who they are: what each proof is for, and claims with a ``[name, proof]``."""


def forged_proofs(count: int, seed: int) -> Iterator[str]:
    """A host that answers others in another one's name, or says that another one has answered it: what was believed."""
    for number in range(count):
        source = random.Random(f"{seed} {number}")
        fact = source.choice([*PROVEN])
        claims = PROVEN[fact][1]
        *honest, liar = hosts = [f"sb{place}" for place in range(HOSTS)]
        tasks, victim, caller = tasks_with_keys(hosts), source.choice(honest), source.choice(hosts)
        others = [role for role, _ in PROVEN.values()]
        nonce = tasks[source.choice(hosts)]["nonce"] if caller == liar else tasks[caller]["nonce"]
        signer = source.choice([{**tasks[liar], "host": victim}, tasks[victim]]) if caller == liar else tasks[liar]
        data = make_proof({**signer, "host": victim}, source.choice(others), nonce)  # type: ignore[no-untyped-call]
        if signer is tasks[victim] and nonce == tasks[liar]["nonce"]:
            data = make_proof(signer, b"another", nonce)  # type: ignore[no-untyped-call]
        answer: object = [data[32:].decode(), data[16:32].hex()]
        if caller == liar:
            answer = source.choice([answer, [victim, "0" * 32], [victim, os.urandom(16).hex()], [victim], victim, None])
        if victim in json.dumps(fact.verified(claims(answer), caller, tasks)):
            yield f"{fact.__name__}, number {number}: {caller} was told that {victim} answered, by {answer}"


def forged_answers(count: int, seed: int) -> Iterator[str]:
    """The same in the test of the network."""
    for number in range(count):
        source = random.Random(f"{seed} {number}")
        keys = [os.urandom(32) for _ in range(4)]
        liar, victim, caller = 3, source.randrange(3), source.randrange(4)
        member = RunKeys(source.choice([victim, liar]), b"token", keys[liar])  # type: ignore[no-untyped-call]
        honest = RunKeys(caller, b"token", keys[caller])  # type: ignore[no-untyped-call]
        honest.peer_keys[victim] = pair_key(keys[victim], caller)  # type: ignore[no-untyped-call]
        challenge, nonce = os.urandom(16), os.urandom(16)
        reply = member.make_reply(caller, challenge, nonce, 7)  # type: ignore[no-untyped-call]
        if honest.read_reply(victim, challenge, nonce, reply) and member.host == victim:  # type: ignore[no-untyped-call]
            yield f"net, number {number}: {caller} took {liar} for {victim}"
        probers = object.__new__(Probers)
        probers.hosts, probers._own_keys = tuple("abcd"), keys
        seen = (challenge + nonce + reply[-16:]).hex()
        report = AttemptReport(liar, STRANGER, 7, "other-host", f"{victim} 7 {seen}", 0.1, 0, 0)
        if probers.verified("abcd"[caller], report).outcome == "other-host":
            yield f"net, number {number}: {victim} is said to have answered at {liar}'s address"


def campaign(count: int, seed: int) -> int:
    """``count`` lies in fleets with NPUs and with GPUs, and as many forged proofs. Returns how many did harm."""
    believed = [*forged_proofs(count, seed), *forged_answers(count, seed)]
    for text in believed:
        print(text)
    saved = []
    for hosts in (npu_fleet("A2", HOSTS), gpu_fleet(HOSTS)):
        fleet = Fleet.up(HOSTS, hosts, shm="4g")
        try:
            saved.append(saved_run(fleet))
        finally:
            fleet.down()
    done = [
        (name, harmed)
        for name, fleets in worlds(saved)
        for harmed in (
            *attacks(fleets, -(-count // 18), seed),
            *(told_stories(fleets) if len(fleets.run.hosts) == HOSTS and fleets.has_norm else ()),
        )
    ]
    for name, harmed in done:
        print(f"{name}: {harmed}")
    return len(done) + len(believed)
