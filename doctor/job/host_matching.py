"""Brings the job's plan and the hosts together: which product they are, and which host an entry means."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Protocol

from doctor.engine.fact import Unreadable
from doctor.job.launch_config import Launch
from doctor.job.rank_table.model import RankTable, Server, address, few


class HasFamily(Protocol):
    @property
    def family(self) -> str: ...


class HasAddresses(Protocol):
    @property
    def addresses(self) -> tuple[str, ...]: ...


def family(launch: Launch, products: Mapping[str, HasFamily] | None) -> str:
    """The product family: what the user says, else what all hosts say.

    Raises: Unreadable when nobody says, or the hosts differ.
    """
    if launch.product:
        return launch.product
    found: dict[str, list[str]] = defaultdict(list)
    for host, product in (products or {}).items():
        if product.family:
            found[product.family].append(host)
    if len(found) == 1:
        return next(iter(found))
    if not found:
        raise Unreadable("the product family is not known; say it with --product A1, A2 or A3")
    who = "; ".join(f"{name}: {', '.join(few(hosts, 3))}" for name, hosts in sorted(found.items()))
    raise Unreadable(f"the hosts are of several product families ({who}); say which with --product")


def placed(
    table: RankTable, names: Iterable[str], addresses: Mapping[str, HasAddresses] | None = None
) -> tuple[dict[str, list[Server]], list[Server]]:
    """The table's hosts by the names of the hosts that they are, and those that are none of them.

    A host is meant when its name, its short name, or an address that it alone has is the server_id or the host_ip.
    """
    owners: dict[str, set[str]] = defaultdict(set)
    plain = {}
    for name in names:
        plain[name.lower()] = {name}
        keys = {_key(name), _short(name)}
        keys.update(_key(said.partition("/")[0]) for said in _addresses(addresses, name))
        for key in keys:
            owners[key].add(name)
    here: dict[str, list[Server]] = {}
    nowhere: list[Server] = []
    for server in table.servers:
        hits = (
            owners.get(_key(server.host_ip)),
            owners.get(_key(server.server_id)),
            plain.get(_short(server.server_id)),
        )
        sure = [next(iter(hit)) for hit in hits if hit and len(hit) == 1]
        if sure:
            here.setdefault(sure[0], []).append(server)
        else:
            nowhere.append(server)
    return here, nowhere


def _addresses(addresses: Mapping[str, HasAddresses] | None, name: str) -> tuple[str, ...]:
    return addresses[name].addresses if addresses and name in addresses else ()


def _key(text: str) -> str:
    found = address(text)
    return str(found) if found else text.lower()


def _short(name: str) -> str:
    return name.lower() if address(name) or ":" in name else name.lower().partition(".")[0]
