"""A real finding of each check, for its page: values in place of placeholders. Written by `tests.example_values`."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from doctor.engine.language import is_english, localized_filled, localized_template, without_loose_spaces
from doctor.engine.texts import read_table

EXAMPLES_FILE = Path(__file__).with_name("examples.json")

EXAMPLES: Mapping[str, Any] = {
    "address": "192.0.2.10",
    "all_hosts": "node[001-004]",
    "addresses": ["192.0.2.10", "192.0.2.11"],
    "boot_files": ["/etc/iptables/rules.v4", "/etc/sysconfig/iptables"],
    "boot_lines": ["insert rule inet filter input ip saddr 192.0.2.11 tcp dport 60000-60031 accept"],
    "card": 0,
    "chip": 0,
    "container": "train",
    "device": "eth0",
    "double": 524288,
    "fix": "ufw prepend allow in proto tcp from 192.0.2.11 to any port 60000:60031",
    "gateway": "192.0.2.1",
    "gpu": 0,
    "group": "HwHiAiUser",
    "host": "node001",
    "hosts": ["node001", "node002"],
    "hosts_command": "printf '%s\\n' '192.0.2.10 node001' >> /etc/hosts",
    "hosts_entry": "192.0.2.10 node001",
    "id": 0,
    "ip": "192.0.2.10",
    "key": "net.core.somaxconn",
    "merged": "22,60000-60031",
    "name": "node001",
    "netmask": "255.255.255.0",
    "nic": "eth0",
    "nft_table": "inet filter",
    "npu": 0,
    "npus": "0-7",
    "own_address": "192.0.2.10",
    "owner": "python train.py (pid 4711, user alice)",
    "path": "/etc/example.conf",
    "peer": "node002",
    "peers": ["node002"],
    "pid": 4711,
    "port": 60000,
    "ports": "60000-60031",
    "python": "/usr/bin/python3",
    "rank": 0,
    "rank_table": "/job/rank_table.json",
    "ranks": "0-7",
    "segment": "192.0.2.0/24",
    "set_env": "/usr/local/Ascend/ascend-toolkit/set_env.sh",
    "sources": "192.0.2.11",
    "table": "filter",
    "unfix": "ufw delete allow in proto tcp from 192.0.2.11 to any port 60000:60031",
    "user": "alice",
    "way": "from",
}
"""Plausible values by name; any other is its own name in angle brackets."""

_PLACEHOLDER = re.compile(r"\{([a-z_][a-z0-9_]*)\}")


class ExampleFinding(NamedTuple):
    """One finding as a report would show it."""

    template: str
    values: Mapping[str, str]

    @property
    def localized_values(self) -> dict[str, str]:
        """Its values in the language of the process."""
        return {name: localized_filled(value) for name, value in self.values.items()}

    @property
    def message(self) -> str:
        """The finding's sentence."""
        return fill_placeholders(localized_template(self.template), self.localized_values)


def read_examples() -> dict[str, ExampleFinding]:
    """The example of each check of this program, by the check's name."""
    document = msgspec.json.decode(EXAMPLES_FILE.read_bytes())
    if not is_english():
        read_table(document["texts"])
    return {name: ExampleFinding(row["template"], row["values"]) for name, row in document["examples"].items()}


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """``text`` with the values of an example finding, else with a plausible value by name, else with ``<name>``.

    >>> fill_placeholders("On {host}: `kill {pid}`, {switch_name}", {"pid": "77"})
    'On node001: `kill 77`, <switch name>'
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        example = values.get(name, EXAMPLES.get(name))
        return f"<{name.replace('_', ' ')}>" if example is None else _text(example)

    return without_loose_spaces(_PLACEHOLDER.sub(value, text))


def _text(value: object) -> str:
    return " and ".join(map(str, value)) if isinstance(value, list) else str(value)
