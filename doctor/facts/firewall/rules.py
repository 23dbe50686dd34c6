"""Rule sets as they are followed, whichever tool's syntax they came in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from doctor.engine.sanitize import strip_control_chars
from doctor.facts.firewall.packets import Condition

Tool = Literal["nft", "iptables", "iptables-legacy"]
MAX_RULE = 160
"""Characters of a rule that a report shows."""
Verb = Literal["accept", "block", "jump", "goto", "return", "continue", "unclear", "mark", "forget", "untrack"]


class Action(msgspec.Struct, frozen=True):
    """What a rule does with a packet."""

    verb: Verb
    target: str = ""
    """jump and goto: the chain. forget: the field that is no longer known."""
    keep_bits: int = 0
    """mark: the bits that stay as they are."""
    flip_bits: int = 0
    """mark: the bits that are flipped after that."""


class VerdictMap(msgspec.Struct, frozen=True):
    """The first choice whose condition holds is done; where none holds, the rule does not match."""

    choices: tuple[tuple[Condition, Action], ...]


class SetLookup(msgspec.Struct, frozen=True):
    """A condition or choice by a named set of the table; what the set holds is known when the rule is followed."""

    name: str
    key: str
    """What is compared, in the tool's own words."""
    negated: bool = False
    is_verdict_map: bool = False


Step = Condition | Action | VerdictMap | SetLookup


class Rule(msgspec.Struct, frozen=True):
    """One rule as its tool shows it, and the source that the tool's reader makes steps of."""

    text: str
    source: str
    handle: int = 0
    """nft's number of a rule that redirects or drops some packets; 0 for others, which no command deletes by number."""


class Chain(msgspec.Struct, frozen=True):
    """A chain; with a hook, one that the kernel itself sends packets to."""

    name: str
    rules: tuple[Rule, ...] = ()
    hook: str = ""
    priority: int = 0
    policy: str = "accept"
    kind: str = "filter"
    devices: tuple[str, ...] = ()


class RuleTable(msgspec.Struct, frozen=True):
    """One table of one tool."""

    tool: Tool
    family: str
    """ip, ip6, inet (both), arp, netdev or bridge."""
    name: str
    chains: tuple[Chain, ...]
    sets: tuple[tuple[str, str], ...] = ()
    """Named sets and maps, and what they hold, in the tool's own words."""


_REDIRECTING = re.compile(r'\{"(?:redirect|dnat|tproxy)":|-j (?:REDIRECT|DNAT|TPROXY)(?: |$)')


def is_redirecting(source: str) -> bool:
    """Whether a rule sends connections to another port or host, by what its tool's reader makes steps of.

    >>> is_redirecting("-A PREROUTING -p tcp --dport 29500 -j REDIRECT --to-ports 22")
    True
    """
    return _REDIRECTING.search(source) is not None


_LOSING = (
    (re.compile(r'\{"(?:numgen|limit)":'), re.compile(r'\{"drop":')),
    (re.compile(r"-m (?:statistic|limit|hashlimit) "), re.compile(r"-j DROP(?: |$)")),
)
_HASHED = ((re.compile(r'\{"(?:jhash|symhash)":'), re.compile(r'\{"(?:drop|reject)":')),)
"""What a rule matches by, and what it does then: each is searched once, in linear time."""


def _acts_after(source: str, pairs: Iterable[tuple[re.Pattern[str], re.Pattern[str]]]) -> bool:
    return any((match := choice.search(source)) and act.search(source, match.end()) for choice, act in pairs)


def is_losing(source: str) -> bool:
    """Whether a rule drops some packets of a kind, at random or by rate.

    >>> is_losing("-A INPUT -m statistic --mode random --probability 0.02 -j DROP"), is_losing("-A INPUT -j DROP")
    (True, False)
    >>> is_losing('[{"match":{"op":"<","left":{"numgen":{"mode":"random","mod":100}},"right":5}},{"drop":null}]')
    True
    """
    return _acts_after(source, _LOSING)


def is_hashed(source: str) -> bool:
    """Whether a rule drops some flows, by a hash of their addresses and ports.

    >>> is_hashed('[{"match":{"left":{"jhash":{"mod":2}},"right":1}},{"drop":null}]'), is_hashed('[{"drop":null}]')
    (True, False)
    """
    return _acts_after(source, _HASHED)


def is_deletable(source: str) -> bool:
    """Whether a command of ours may delete the rule by its number: it redirects, or drops some packets."""
    return is_redirecting(source) or is_losing(source) or is_hashed(source)


class UnsupportedRule(ValueError):
    """A part of a rule that is not understood: its outcome is unclear."""


def shorten_rule(rule: str) -> str:
    """A rule's text as a report shows it: it may be long, and is foreign."""
    return strip_control_chars(" ".join(rule.split()), MAX_RULE)
