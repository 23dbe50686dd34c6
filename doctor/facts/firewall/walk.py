"""Follows packets through a host's rule sets, as the kernel would."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from doctor.engine.texts import filled
from doctor.facts.firewall.ipset import ipset_lookup
from doctor.facts.firewall.iptables import iptables_steps
from doctor.facts.firewall.nft_rules import nft_lookup, nft_steps
from doctor.facts.firewall.packets import ARP, PacketClasses, Packets, Unclear, overlap, subtract, to_ranges
from doctor.facts.firewall.rules import Action, Chain, Rule, RuleTable, SetLookup, Step, VerdictMap

INBOUND_HOOKS, OUTBOUND_HOOKS = ("ingress", "prerouting", "input"), ("output", "postrouting", "egress")
CONNTRACK_PRIORITY = -200
"""The priority of connection tracking: rules before it have no connection state."""
CONNECTION_FIELDS = ("state", "status", "direction", "ctmark")
UNTRACKED = ((64, 64),)
MAX_DEPTH = 32
MAX_STEPS = 300_000
TABLE_FAMILIES = {4: ("ip", "inet", "netdev"), 6: ("ip6", "inet", "netdev"), ARP: ("arp", "netdev")}


class WalkPosition(msgspec.Struct, frozen=True):
    """Where something happened to packets."""

    table: RuleTable
    base: Chain
    """The chain that the kernel sent the packets to."""
    chain: str
    """The chain that the rule is in."""
    rule: str
    """The rule as its tool shows it, or the chain's policy."""


class WalkResult(msgspec.Struct):
    """What became of packets."""

    passed: list[Packets] = []
    blocked: list[tuple[Packets, WalkPosition]] = []
    unclear: list[tuple[Packets, WalkPosition]] = []
    """Handed to something outside the rules: a queue, a proxy, a redirection."""
    ambiguous: list[tuple[Packets, WalkPosition]] = []
    """A rule may or may not match these, and it makes a difference."""

    def classify(self) -> tuple[list[tuple[Packets, WalkPosition]], list[tuple[Packets, WalkPosition]]]:
        """What is surely blocked, and what may or may not be, each with the rule that it comes of."""
        if not self.ambiguous and not self.unclear:
            return self.blocked, []
        undecided, decided = list(self.unclear), []
        perhaps = [*self.passed, *(packets for packets, _ in self.unclear)]
        for packets, place in self.blocked:
            certain = [packets]
            for other in perhaps:
                certain = subtract(certain, other)
                both = overlap(packets, other)
                if both:
                    undecided.append((both, self._cause(both, place)))
            decided += [(certain_packets, place) for certain_packets in certain]
        return decided, undecided

    def _cause(self, packets: Packets, place: WalkPosition) -> WalkPosition:
        return next((cause for forked, cause in self.ambiguous if overlap(packets, forked)), place)


class _TooComplex(Exception):
    """The rules are too many, or too deep, to be followed."""


class _ChainWalk:
    """One base chain being followed."""

    def __init__(self, table: RuleTable, base: Chain, result: WalkResult, step_budget: list[int]) -> None:
        self.table, self.base, self.result, self.step_budget = table, base, result, step_budget
        self.chains = {chain.name: chain for chain in table.chains}
        self.sets = dict(table.sets)
        self.accepted: list[Packets] = []
        self.chain_stack = [base.name]

    def run(self, arriving: Sequence[Packets]) -> list[Packets]:
        """The packets that go on to the next chain of the hook."""
        remaining = self.run_chain(self.base, arriving)
        if self.base.policy == "drop":
            policy = filled("policy drop of the chain {0}", self.base.name)
            self.result.blocked += [(packets, self.position(policy)) for packets in remaining]
            remaining = []
        return [*self.accepted, *remaining]

    def position(self, rule: str) -> WalkPosition:
        return WalkPosition(self.table, self.base, self.chain_stack[-1], rule)

    def run_chain(self, chain: Chain, arriving: Sequence[Packets]) -> list[Packets]:
        """The packets that come to the chain's end, or return from it."""
        self.chain_stack.append(chain.name)
        if len(self.chain_stack) > MAX_DEPTH:
            raise _TooComplex
        returned: list[Packets] = []
        here = list(arriving)
        for rule in chain.rules:
            if not here:
                break
            steps = self.resolved_steps(rule)
            here = _merge_packets(
                next_packets for packets in here for next_packets in self.apply_steps(rule, steps, packets, returned)
            )
        self.chain_stack.pop()
        return here + returned

    def resolved_steps(self, rule: Rule) -> tuple[Step, ...]:
        source_steps = nft_steps(rule.source) if self.table.tool == "nft" else iptables_steps(rule.source)
        return tuple(
            done
            for step in source_steps
            for done in (self.resolve_lookup(step) if isinstance(step, SetLookup) else (step,))
        )

    def resolve_lookup(self, lookup: SetLookup) -> tuple[Step, ...]:
        """A match against a set's elements. A set that was not listed is unknown."""
        held = self.sets.get(lookup.name)
        if held is None:
            return (Unclear(), Action("unclear")) if lookup.is_verdict_map else (Unclear(),)
        if self.table.tool == "nft":
            return nft_lookup(lookup.key, held, lookup.negated, lookup.is_verdict_map)
        return ipset_lookup(lookup.key, held, lookup.negated)

    def apply_steps(
        self, rule: Rule, steps: Sequence[Step], packets: Packets, returned: list[Packets]
    ) -> list[Packets]:
        """Does a rule's steps; gives the packets that go on to the next rule."""
        self.step_budget[0] -= 1
        if self.step_budget[0] < 0:
            raise _TooComplex
        if not steps:
            return [packets]
        step, rest = steps[0], steps[1:]
        if isinstance(step, Action):
            return [
                next_packets
                for after in self.apply_action(rule, step, packets, returned)
                for next_packets in ([after] if step.verb == "jump" else self.apply_steps(rule, rest, after, returned))
            ]
        if isinstance(step, VerdictMap):
            return self.apply_verdict_map(rule, step, packets, returned)
        assert not isinstance(step, SetLookup)
        classes = step.split(packets)
        onward = [
            next_packets for yes in classes.matching for next_packets in self.apply_steps(rule, rest, yes, returned)
        ]
        return classes.unmatched + onward + self.apply_unclear(rule, rest, classes, returned)

    def apply_unclear(
        self, rule: Rule, steps: Sequence[Step], classes: PacketClasses, returned: list[Packets]
    ) -> list[Packets]:
        """Packets that the rule may match: both courses are followed, and where they part is noted."""
        onward: list[Packets] = []
        for packets in classes.unclear:
            matched = self.apply_steps(rule, steps, packets, returned)
            if matched != [packets]:
                self.result.ambiguous.append((packets, self.position(rule.text)))
            onward += [
                packets,
                *(changed_packets for changed_packets in matched if not changed_packets.is_within(packets)),
            ]
        return onward

    def apply_verdict_map(
        self, rule: Rule, step: VerdictMap, packets: Packets, returned: list[Packets]
    ) -> list[Packets]:
        unmatched, onward = [packets], []
        for condition, action in step.choices:
            waiting, unmatched = unmatched, []
            for candidate in waiting:
                classes = condition.split(candidate)
                unmatched += classes.unmatched
                onward += [
                    after for yes in classes.matching for after in self.apply_action(rule, action, yes, returned)
                ]
                unmatched += self.apply_unclear(rule, (action,), PacketClasses(unclear=classes.unclear), returned)
        return unmatched + onward

    def apply_action(self, rule: Rule, action: Action, packets: Packets, returned: list[Packets]) -> list[Packets]:
        """The packets that are still in this chain afterwards."""
        if action.verb == "accept":
            self.accepted.append(packets)
        elif action.verb == "block":
            self.result.blocked.append((packets, self.position(rule.text)))
        elif action.verb == "return":
            returned.append(packets)
        elif action.verb in ("jump", "goto") and action.target in self.chains:
            back = self.run_chain(self.chains[action.target], [packets])
            if action.verb == "jump":
                return back
            returned += back
        elif action.verb in ("jump", "goto", "unclear"):
            self.result.unclear.append((packets, self.position(rule.text)))
        else:
            return [_apply_field_action(action, packets)]
        return []


def _apply_field_action(action: Action, packets: Packets) -> Packets:
    if action.verb == "untrack":
        for field in CONNECTION_FIELDS:
            packets = packets.with_field(field, None)
        return packets.with_field("state", UNTRACKED)
    if action.verb == "forget":
        return packets.with_field(action.target, None)
    if action.verb == "mark" and (action.keep_bits == 0 or "mark" in packets.fields):
        before = packets.fields["mark"][0][0] if action.keep_bits else 0
        mark = ((before & action.keep_bits) ^ action.flip_bits) & 0xFFFFFFFF
        return packets.with_field("mark", ((mark, mark),))
    return packets


def _merge_packets(many: Iterable[Packets]) -> list[Packets]:
    """The packets without those that others hold; what differs in one range alone is made one."""
    kept: list[Packets] = []
    for packets in many:
        if kept and packets.names == kept[-1].names and packets.fields.keys() == kept[-1].fields.keys():
            unlike = [field for field, held in packets.fields.items() if held != kept[-1].fields[field]]
            if len(unlike) < 2:
                for field in unlike:
                    both = to_ranges([*packets.fields[field], *kept[-1].fields[field]])
                    kept[-1] = kept[-1].with_field(field, both)
                continue
        kept.append(packets)
    return kept


def walk(tables: Iterable[RuleTable], hooks: Sequence[str], packets: Packets) -> WalkResult:
    """Follows packets through the chains of these hooks, in the kernel's order.

    Packets without interfaces are those of a bridge, by one of its ports.
    """
    result, step_budget = WalkResult(), [MAX_STEPS]
    here = [packets]
    for table, base in _hooked_chains(tables, hooks, packets):
        early = base.hook in ("ingress", "prerouting", "output") and (
            base.priority <= CONNTRACK_PRIORITY or base.hook == "ingress"
        )
        before = [_without_connection(current) for current in here] if early else here
        walked = _ChainWalk(table, base, result, step_budget)
        try:
            here = walked.run(before)
        except (_TooComplex, RecursionError):
            stuck = WalkPosition(table, base, base.name, "there are too many rules to evaluate")
            result.unclear += [(current, stuck) for current in here]
            return result
        if early:
            here = [_with_connection(current, packets) for current in here]
    result.passed = here
    return result


def _hooked_chains(
    tables: Iterable[RuleTable], hooks: Sequence[str], packets: Packets
) -> list[tuple[RuleTable, Chain]]:
    family = TABLE_FAMILIES[packets.fields["family"][0][0]] if packets.names else ("bridge",)
    device = packets.names.get("iif") or packets.names.get("oif")
    new = packets.fields.get("state") == ((8, 8),)
    chains = [
        (table, chain)
        for table in tables
        if table.family in family
        for chain in table.chains
        if chain.hook in hooks and (not chain.devices or device in chain.devices) and (new or chain.kind != "nat")
    ]
    return sorted(chains, key=lambda pair: (hooks.index(pair[1].hook), pair[1].priority))


def _without_connection(packets: Packets) -> Packets:
    for field in CONNECTION_FIELDS:
        packets = packets.with_field(field, None)
    return packets


def _with_connection(packets: Packets, first: Packets) -> Packets:
    if "state" in packets.fields:
        return packets
    for field in CONNECTION_FIELDS:
        if field in first.fields:
            packets = packets.with_field(field, first.fields[field])
    return packets
