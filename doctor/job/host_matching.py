"""Brings the job's plan and the hosts together: which product they are, and which host an entry means."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Protocol

from doctor.engine.addresses import parse_address
from doctor.engine.fact import Unreadable
from doctor.engine.grouping import lists_by_key
from doctor.engine.texts import filled, joined
from doctor.job.launch_config import LaunchConfig
from doctor.job.rank_table.model import RankTable, Server, limit_items


class HasFamily(Protocol):
    """Something with a product family."""

    @property
    def family(self) -> str: ...


class HasAddresses(Protocol):
    """Something with IP addresses."""

    @property
    def addresses(self) -> tuple[str, ...]: ...


def product_family(launch: LaunchConfig, products: Mapping[str, HasFamily] | None) -> str:
    """The product family: the user's option, else the one that all hosts report.

    Raises: Unreadable when no host reports it, or the hosts differ.
    """
    if launch.product:
        return launch.product
    hosts_by_family = lists_by_key(
        (product.family, host) for host, product in (products or {}).items() if product.family
    )
    if len(hosts_by_family) == 1:
        return next(iter(hosts_by_family))
    if not hosts_by_family:
        raise Unreadable("the product family is unknown; expected --product A1, A2 or A3")
    who = joined(
        "; ", (f"{name}: {', '.join(limit_items(hosts, 3))}" for name, hosts in sorted(hosts_by_family.items()))
    )
    raise Unreadable(filled("the hosts are of several product families ({0}); choose one with --product", who))


def table_family(table: RankTable, launch: LaunchConfig, products: Mapping[str, HasFamily] | None) -> str:
    """As `product_family`; where nothing else states it, version 1.2 of the table stands for A3, the super pods.

    Raises: Unreadable.
    """
    reported = {product.family for product in (products or {}).values() if product.family}
    return "A3" if table.form == "1.2" and not launch.product and not reported else product_family(launch, products)


def match_servers(
    table: RankTable, names: Iterable[str], addresses: Mapping[str, HasAddresses] | None = None
) -> tuple[dict[str, list[Server]], list[Server]]:
    """The table's hosts by the names of the hosts that they are, and those that are none of them.

    A host is meant when its name, its short name, or an address that it alone has is the server_id or the host_ip.
    """
    owners: dict[str, set[str]] = defaultdict(set)
    exact_names = {}
    for name in names:
        exact_names[name.lower()] = {name}
        keys = {_match_key(name), _short_name(name)}
        keys.update(_match_key(cidr.partition("/")[0]) for cidr in _addresses(addresses, name))
        for key in keys:
            owners[key].add(name)
    matched: dict[str, list[Server]] = {}
    unmatched: list[Server] = []
    for server in table.servers:
        candidates = (
            owners.get(_match_key(server.host_ip)),
            owners.get(_match_key(server.server_id)),
            exact_names.get(_short_name(server.server_id)),
        )
        unique_names = [
            next(iter(names_of_key)) for names_of_key in candidates if names_of_key and len(names_of_key) == 1
        ]
        if unique_names:
            matched.setdefault(unique_names[0], []).append(server)
        else:
            unmatched.append(server)
    return matched, unmatched


def _addresses(addresses: Mapping[str, HasAddresses] | None, name: str) -> tuple[str, ...]:
    return addresses[name].addresses if addresses and name in addresses else ()


def _match_key(text: str) -> str:
    ip_address = parse_address(text)
    return str(ip_address) if ip_address else text.lower()


def _short_name(name: str) -> str:
    return name.lower() if parse_address(name) or ":" in name else name.lower().partition(".")[0]
