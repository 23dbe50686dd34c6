"""Twenty lies that one host tells in several answers at once, as somebody would who knows what is asked.

Each story is a row: by fact, what the host answers instead of the truth. `tests/attack/liars.py` tells them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from doctor.engine.fact import Output
from doctor.engine.record import Run

STRANGERS_CARD = "02:66:66:66:66:66"
EVERY_FACT = "*"


class ToldFleet(msgspec.Struct, frozen=True, dict=True):
    """The fleet in which a story is told, by its last host, of the first and the second one."""

    run: Run

    @cached_property
    def addresses(self) -> dict[str, str]:
        """Each host's first address that is not loopback."""
        return {host: self._address(host) for host in self.run.hosts}

    def _address(self, host: str) -> str:
        rows = json.loads(self.run.hosts[host].outputs["HostAddresses"][""].out)
        return str(next(address for _, address, _ in rows if not address.startswith("127.")))

    @property
    def first(self) -> str:
        return next(iter(self.run.hosts))

    @property
    def second(self) -> str:
        return [*self.run.hosts][1]

    @property
    def liar(self) -> str:
        return [*self.run.hosts][-1]

    def first_says(self, fact: str, key: str) -> str:
        """What the first host has answered; empty where it has not."""
        return self.run.hosts[self.first].outputs.get(fact, {}).get(key, Output()).out


Change = Callable[[ToldFleet, str, str], str]
"""Of the name of an answer and its text."""


def _json(change: Callable[[ToldFleet, Any], Any]) -> Change:
    """Of an answer in JSON: what ``change`` returns, or what it has changed in place."""

    def changed(fleet: ToldFleet, key: str, text: str) -> str:
        value = json.loads(text)
        result = change(fleet, value)
        return json.dumps(value if result is None else result)

    return changed


def _replaced(old: str, new: str) -> Change:
    return lambda fleet, key, text: text.replace(old, new)


def _text(text: str) -> Change:
    return lambda fleet, key, true: text


def _as_first_host(fact: str) -> Change:
    return lambda fleet, key, text: fleet.first_says(fact, key) or text


def _swap_names(fleet: ToldFleet, sight: Any) -> None:
    sight["names"][fleet.first] = {"addresses": [fleet.addresses[fleet.second]]}
    sight["names"][fleet.second] = {"addresses": [fleet.addresses[fleet.first]]}


def _takes_names(fleet: ToldFleet, sight: Any) -> None:
    sight["names"] = {name: {"addresses": [fleet.addresses[fleet.liar]]} for name in sight["names"]}


def _has_first_address(fleet: ToldFleet, view: Any) -> None:
    view["addresses"].append(["eth0", "eth0", fleet.addresses[fleet.first], 16])


def _wide_network(fleet: ToldFleet, view: Any) -> None:
    view["addresses"] = [[label, name, address, 8] for label, name, address, _ in view["addresses"]]


def _drops_others(fleet: ToldFleet, rules: Any) -> None:
    lines = [f"-A INPUT -s {fleet.addresses[host]} -j DROP" for host in (fleet.first, fleet.second)]
    text = "\n".join(["*filter", ":INPUT ACCEPT [0:0]", *lines, "COMMIT", ""])
    rules |= {"legacy": {"ip": ["filter"], "ip6": []}, "outputs": {"iptables-legacy": {"out": text}}}


def _detects_first_npu(fleet: ToldFleet, key: str, text: str) -> str:
    address = re.search(r"ipaddr:(\S+)", fleet.first_says("DeviceAddresses", key))
    return f"netdetect addr: {address[1]}\n" if address else text


_LOST = "3 packets transmitted, 0 received, 100.00% packet loss"
STORIES: Mapping[str, Mapping[str, Change | None]] = {
    "its own name is the first host's": {"HostNames": _json(lambda fleet, sight: sight.update(own=fleet.first))},
    "every name is its address": {"HostNames": _json(_takes_names)},
    "it has the first host's address too": {
        "HostAddresses": _json(lambda fleet, rows: [*rows, ["eth0", fleet.addresses[fleet.first], 16]]),
        "Interfaces": _json(_has_first_address),
    },
    "two hosts have swapped their names": {"HostNames": _json(_swap_names)},
    "the first host is at its card": {
        "HardwareAddresses": _json(
            lambda fleet, cards: cards["neighbours"].update({fleet.addresses[fleet.first]: cards["local"][0]})
        )
    },
    "all hosts are at a stranger's card": {
        "HardwareAddresses": _json(
            lambda fleet, cards: cards.update(neighbours=dict.fromkeys(fleet.addresses.values(), STRANGERS_CARD))
        )
    },
    "its network is of 8 bits": {
        "HostAddresses": _json(lambda fleet, rows: [[name, address, 8] for name, address, _ in rows]),
        "Interfaces": _json(_wide_network),
    },
    "its NPUs have the first host's addresses": {"DeviceAddresses": _as_first_host("DeviceAddresses")},
    "all its pings are lost": {
        "DevicePings": _json(lambda fleet, rows: [[npu, address, _LOST] for npu, address, _ in rows])
    },
    "its NPUs have another gateway": {"DeviceGateways": _replaced("29.1.0.1", "29.1.66.66")},
    "its NPUs watch the first host's": {"DetectAddresses": _detects_first_npu},
    "it is at the first host's port of the switch": {"Neighbours": _as_first_host("Neighbours")},
    "it has another CANN": {"CannVersion": _replaced("8.1.RC1", "9.9.RC9")},
    "its queues are huge": {"ListenQueues": _text("313370\n")},
    "it has flow control on another priority": {"DevicePfc": _replaced("0 0 0 0 1 0 0", "0 0 1 0 0 0 0")},
    "its links have another FEC and MTU": {
        "DeviceFec": _text("fec mode: no FEC mode\n"),
        "DeviceMtu": _text("mtu:31337\n"),
    },
    "it is a century later there": {EVERY_FACT: lambda fleet, key, text: re.sub(r"(?<=:\d\d )20(?=2\d\b)", "21", text)},
    "it mounts the first host's folder": {
        "MountTable": lambda fleet, key, text: f"{text}{fleet.addresses[fleet.first]}:/data /data nfs4 rw 0 0\n"
    },
    "its rules drop two hosts": {"FirewallRules": _json(_drops_others)},
    "it has no NPUs": dict.fromkeys(("NpuInventory", "DeviceAddresses", "DeviceLinks")),
}
"""None: there is no such thing on the host."""


def false_answers(fleet: ToldFleet, name: str) -> dict[str, dict[str, Output]]:
    """What the liar answers in a story, by fact: those answers that are not the truth."""
    outputs, changed = fleet.run.hosts[fleet.liar].outputs, dict[str, dict[str, Output]]()
    for fact, change in STORIES[name].items():
        for asked in outputs if fact == EVERY_FACT else outputs.keys() & {fact}:
            answers = {"": Output("absent")} if change is None else _changed(fleet, outputs[asked], change)
            if answers != outputs[asked]:
                changed[asked] = answers
    return changed


def _changed(fleet: ToldFleet, outputs: Mapping[str, Output], change: Change) -> dict[str, Output]:
    return {
        key: msgspec.structs.replace(output, out=change(fleet, key, output.out)) if output.out else output
        for key, output in outputs.items()
    }
