"""Follows packets through a host's rule sets, as the kernel would."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from doctor.facts.firewall.ipset import ipset_lookup
from doctor.facts.firewall.iptables import saved_steps
from doctor.facts.firewall.nft_rules import nft_lookup, nft_steps
from doctor.facts.firewall.packets import Packets, Split, Unclear, overlap, ranges, subtract
from doctor.facts.firewall.rules import Act, Chain, Choose, Lookup, Rule, Step, Table

IN, OUT = ("ingress", "prerouting", "input"), ("output", "postrouting", "egress")
CONNTRACK = -200
"""The priority at which the kernel finds the connection of a packet: rules before it know none."""
OF_CONNECTION = ("state", "status", "direction", "ctmark")
UNTRACKED = ((64, 64),)
DEEPEST = 32
PATIENCE = 300_000
FAMILIES = {4: ("ip", "inet", "netdev"), 6: ("ip6", "inet", "netdev")}


class Place(msgspec.Struct, frozen=True):
    """Where something happened to packets."""

    table: Table
    base: Chain
    """The chain that the kernel sent the packets to."""
    chain: str
    """The chain that the rule is in."""
    rule: str
    """The rule as its tool shows it, or the chain's policy."""


class Course(msgspec.Struct):
    """What became of packets."""

    passed: list[Packets] = []
    blocked: list[tuple[Packets, Place]] = []
    unclear: list[tuple[Packets, Place]] = []
    """Handed to something that rules do not tell of: a queue, a proxy, a redirection."""
    forks: list[tuple[Packets, Place]] = []
    """A rule may or may not match these, and it makes a difference."""

    def settle(self) -> tuple[list[tuple[Packets, Place]], list[tuple[Packets, Place]]]:
        """What is surely blocked, and what may or may not be, each with the rule that it comes of."""
        if not self.forks and not self.unclear:
            return self.blocked, []
        open_ones, sure = list(self.unclear), []
        perhaps = [*self.passed, *(packets for packets, _ in self.unclear)]
        for packets, place in self.blocked:
            certain = [packets]
            for other in perhaps:
                certain = subtract(certain, other)
                both = overlap(packets, other)
                if both:
                    open_ones.append((both, self._cause(both, place)))
            sure += [(one, place) for one in certain]
        return sure, open_ones

    def _cause(self, packets: Packets, place: Place) -> Place:
        return next((cause for forked, cause in self.forks if overlap(packets, forked)), place)


class _Stuck(Exception):
    """The rules are too many, or too deep, to be followed."""


class _Walk:
    """One base chain being followed."""

    def __init__(self, table: Table, base: Chain, course: Course, patience: list[int]) -> None:
        self.table, self.base, self.course, self.patience = table, base, course, patience
        self.chains = {chain.name: chain for chain in table.chains}
        self.sets = dict(table.sets)
        self.accepted: list[Packets] = []
        self.within = [base.name]

    def run(self, arriving: Sequence[Packets]) -> list[Packets]:
        """The packets that go on to the next chain of the hook."""
        left = self.chain(self.base, arriving)
        if self.base.policy == "drop":
            policy = f"policy drop of the chain {self.base.name}"
            self.course.blocked += [(packets, self.place(policy)) for packets in left]
            left = []
        return [*self.accepted, *left]

    def place(self, rule: str) -> Place:
        return Place(self.table, self.base, self.within[-1], rule)

    def chain(self, chain: Chain, arriving: Sequence[Packets]) -> list[Packets]:
        """The packets that come to the chain's end, or return from it."""
        self.within.append(chain.name)
        if len(self.within) > DEEPEST:
            raise _Stuck
        returned: list[Packets] = []
        here = list(arriving)
        for rule in chain.rules:
            if not here:
                break
            steps = self.steps(rule)
            here = _merged(one for packets in here for one in self.follow(rule, steps, packets, returned))
        self.within.pop()
        return here + returned

    def steps(self, rule: Rule) -> tuple[Step, ...]:
        found = nft_steps(rule.source) if self.table.tool == "nft" else saved_steps(rule.source)
        return tuple(done for step in found for done in (self.resolve(step) if isinstance(step, Lookup) else (step,)))

    def resolve(self, lookup: Lookup) -> tuple[Step, ...]:
        """A look-up with what the set holds. A set that was not listed is one that is not known."""
        held = self.sets.get(lookup.name)
        if held is None:
            return (Unclear(), Act("unclear")) if lookup.choose else (Unclear(),)
        if self.table.tool == "nft":
            return nft_lookup(lookup.key, held, lookup.negated, lookup.choose)
        return ipset_lookup(lookup.key, held, lookup.negated)

    def follow(self, rule: Rule, steps: Sequence[Step], packets: Packets, returned: list[Packets]) -> list[Packets]:
        """Does a rule's steps; gives the packets that go on to the next rule."""
        self.patience[0] -= 1
        if self.patience[0] < 0:
            raise _Stuck
        if not steps:
            return [packets]
        step, rest = steps[0], steps[1:]
        if isinstance(step, Act):
            return [
                one
                for after in self.act(rule, step, packets, returned)
                for one in ([after] if step.verb == "jump" else self.follow(rule, rest, after, returned))
            ]
        if isinstance(step, Choose):
            return self.choose(rule, step, packets, returned)
        assert not isinstance(step, Lookup)
        found = step.split(packets)
        onward = [one for yes in found.yes for one in self.follow(rule, rest, yes, returned)]
        return found.no + onward + self.perhaps(rule, rest, found, returned)

    def perhaps(self, rule: Rule, steps: Sequence[Step], found: Split, returned: list[Packets]) -> list[Packets]:
        """Packets that the rule may match: both courses are followed, and where they part is noted."""
        onward: list[Packets] = []
        for packets in found.unclear:
            matched = self.follow(rule, steps, packets, returned)
            if matched != [packets]:
                self.course.forks.append((packets, self.place(rule.text)))
            onward += [packets, *(one for one in matched if not one.within(packets))]
        return onward

    def choose(self, rule: Rule, step: Choose, packets: Packets, returned: list[Packets]) -> list[Packets]:
        left, onward = [packets], []
        for condition, act in step.choices:
            waiting, left = left, []
            for one in waiting:
                found = condition.split(one)
                left += found.no
                onward += [after for yes in found.yes for after in self.act(rule, act, yes, returned)]
                left += self.perhaps(rule, (act,), Split(unclear=found.unclear), returned)
        return left + onward

    def act(self, rule: Rule, act: Act, packets: Packets, returned: list[Packets]) -> list[Packets]:
        """The packets that are still in this chain afterwards."""
        if act.verb == "accept":
            self.accepted.append(packets)
        elif act.verb == "block":
            self.course.blocked.append((packets, self.place(rule.text)))
        elif act.verb == "return":
            returned.append(packets)
        elif act.verb in ("jump", "goto") and act.target in self.chains:
            back = self.chain(self.chains[act.target], [packets])
            if act.verb == "jump":
                return back
            returned += back
        elif act.verb in ("jump", "goto", "unclear"):
            self.course.unclear.append((packets, self.place(rule.text)))
        else:
            return [_changed(act, packets)]
        return []


def _changed(act: Act, packets: Packets) -> Packets:
    if act.verb == "untrack":
        for field in OF_CONNECTION:
            packets = packets.with_field(field, None)
        return packets.with_field("state", UNTRACKED)
    if act.verb == "forget":
        return packets.with_field(act.target, None)
    if act.verb == "mark" and (act.keep == 0 or "mark" in packets.fields):
        before = packets.fields["mark"][0][0] if act.keep else 0
        mark = ((before & act.keep) ^ act.flip) & 0xFFFFFFFF
        return packets.with_field("mark", ((mark, mark),))
    return packets


def _merged(many: Iterable[Packets]) -> list[Packets]:
    """The packets without those that others hold; what differs in one range alone is made one."""
    kept: list[Packets] = []
    for packets in many:
        if kept and packets.names == kept[-1].names and packets.fields.keys() == kept[-1].fields.keys():
            unlike = [field for field, held in packets.fields.items() if held != kept[-1].fields[field]]
            if len(unlike) < 2:
                for field in unlike:
                    both = ranges([*packets.fields[field], *kept[-1].fields[field]])
                    kept[-1] = kept[-1].with_field(field, both)
                continue
        kept.append(packets)
    return kept


def walk(tables: Iterable[Table], hooks: Sequence[str], packets: Packets) -> Course:
    """Follows packets through the chains of these hooks, in the kernel's order."""
    course, patience = Course(), [PATIENCE]
    here = [packets]
    for table, base in _bases(tables, hooks, packets):
        early = base.hook in ("ingress", "prerouting", "output") and (
            base.priority <= CONNTRACK or base.hook == "ingress"
        )
        before = [_without_connection(one) for one in here] if early else here
        walked = _Walk(table, base, course, patience)
        try:
            here = walked.run(before)
        except (_Stuck, RecursionError):
            stuck = Place(table, base, base.name, "the rules are too many to be followed")
            course.unclear += [(one, stuck) for one in here]
            return course
        if early:
            here = [_with_connection(one, packets) for one in here]
    course.passed = here
    return course


def _bases(tables: Iterable[Table], hooks: Sequence[str], packets: Packets) -> list[tuple[Table, Chain]]:
    family = FAMILIES[packets.fields["family"][0][0]]
    device = packets.names["iif"] or packets.names["oif"]
    new = packets.fields.get("state") == ((8, 8),)
    found = [
        (table, chain)
        for table in tables
        if table.family in family
        for chain in table.chains
        if chain.hook in hooks and (not chain.devices or device in chain.devices) and (new or chain.kind != "nat")
    ]
    return sorted(found, key=lambda pair: (hooks.index(pair[1].hook), pair[1].priority))


def _without_connection(packets: Packets) -> Packets:
    for field in OF_CONNECTION:
        packets = packets.with_field(field, None)
    return packets


def _with_connection(packets: Packets, first: Packets) -> Packets:
    if "state" in packets.fields:
        return packets
    for field in OF_CONNECTION:
        if field in first.fields:
            packets = packets.with_field(field, first.fields[field])
    return packets
