"""The packet filter after a reboot: what enabled services load from files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from doctor.engine.fact import Fact, ProbeAnswer, ask
from doctor.engine.texts import filled
from doctor.facts.firewall import FirewallDump, FirewallRules
from doctor.facts.firewall.boot_rules import list_boot_rules
from doctor.facts.firewall.rules import RuleTable

NOT_LOADED = "it is in force now, and no file or service that was found loads it at boot"
_BLOCKS = ('"drop"', '"reject"', " DROP", " REJECT", "-j DROP", "-j REJECT")


class BootFirewall(Fact, frozen=True):
    r"""The rules that a host loads at boot, as nft and iptables print them when they are loaded beside the host's own.

    Raw output, as JSON::

        {"outputs": {}, "tables": [], "legacy": {"ip": [], "ip6": []}, "bridges": [], "error": "", "refused": false,
         "local": ["127.0.0.1"], "failed": [], "unclear": [["/etc/rc.local", "line 3: a loop"]]}
    """

    probe = ask(list_boot_rules, root=True, timeout=60)

    rules: FirewallRules
    idle: tuple[str, ...] = ()
    """Services that have a file of rules, and are not started at boot."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> BootFirewall:
        dump = msgspec.convert(answer.json(), FirewallDump)
        rules = FirewallRules.from_dump(dump)
        unread = dict.fromkeys(map(_unclear_script, dump.unclear), "its rules are not known")
        unread |= dict.fromkeys(dump.failed, "it cannot be loaded beside the host's rules")
        rules = msgspec.structs.replace(rules, unread={**rules.unread, **unread})
        return cls(rules=rules, idle=tuple(dump.idle))


def _unclear_script(entry: Sequence[str]) -> str:
    path, *why = entry
    if why:
        return filled("{0} loads rules at boot, and cannot be followed: {1}", path, why[0])
    return filled("{0} is run at boot", path)


def firewall_rules(boot: BootFirewall, now: FirewallRules) -> FirewallRules:
    """The rules after a reboot; ``unread`` names tables that block something now and whose loader was not found."""
    unread = dict(boot.rules.unread)
    loaded = {(table.family, table.name) for table in boot.rules.tables}
    idle = filled(" ({0}: not enabled)", ", ".join(boot.idle)) if boot.idle else ""
    for table in _blocking(now):
        if (table.family, table.name) not in loaded and table.name != "firewalld":
            unread[filled("table {0} {1}", table.family, table.name)] = filled("{0}{1}", NOT_LOADED, idle)
    return msgspec.structs.replace(boot.rules, unread=unread)


def _blocking(rules: FirewallRules) -> Iterator[RuleTable]:
    """The tables that may stop a packet."""
    for table in rules.tables:
        policies = any(chain.policy == "drop" for chain in table.chains)
        if policies or any(word in rule.source for chain in table.chains for rule in chain.rules for word in _BLOCKS):
            yield table
