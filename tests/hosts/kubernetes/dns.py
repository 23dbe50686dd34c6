"""The name server of a test cluster: addresses of headless services and of their pods, as the endpoints have them.

It answers as CoreDNS does for ``SERVICE.NAMESPACE.svc.cluster.local`` and ``HOSTNAME.SERVICE.NAMESPACE...``, by what
``kubectl get endpoints`` says: ready addresses, and with ``publishNotReadyAddresses`` the others too, which the
controller lists among the ready ones. A service with an address of its own has that one. Run in the hub, with the
administrator's configuration: dns.py ADDRESS:PORT
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
import sys
import time
import urllib.request
from typing import Any

_FRESH = 0.5
"""Seconds for which an answer of the API server is used again."""


def endpoints() -> dict[str, list[str]]:
    """The addresses by full name."""
    own_addresses = {_name(item): item["spec"].get("clusterIP", "None") for item in _items("services")}
    names = {name: [address] for name, address in own_addresses.items() if address != "None"}
    for item in _items("endpoints"):
        service = _name(item)
        for subset in item.get("subsets", ()) if own_addresses.get(service, "None") == "None" else ():
            for address in subset.get("addresses", ()):
                names.setdefault(service, []).append(address["ip"])
                if address.get("hostname"):
                    names.setdefault(f"{address['hostname']}.{service}", []).append(address["ip"])
    return names


def _items(kind: str) -> list[dict[str, Any]]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url = f"https://10.77.0.1:6443/api/v1/{kind}"
    request = urllib.request.Request(url, headers={"Authorization": "Bearer token-admin"})
    with urllib.request.urlopen(request, context=context, timeout=5) as answer:
        items: list[dict[str, Any]] = json.load(answer)["items"]
    return items


def _name(item: dict[str, Any]) -> str:
    return f"{item['metadata']['name']}.{item['metadata']['namespace']}.svc.cluster.local"


def answer(query: bytes, names: dict[str, list[str]]) -> bytes:
    """A response to one question of type A; NXDOMAIN for a name that has none, no address for another type."""
    labels, position = [], 12
    while query[position]:
        length = query[position]
        labels.append(query[position + 1 : position + 1 + length].decode("ascii", "replace"))
        position += 1 + length
    question = query[12 : position + 5]
    (kind,) = struct.unpack_from(">H", query, position + 1)
    name = ".".join(labels).lower()
    known = name in names
    addresses = names.get(name, []) if kind == 1 else []
    head = query[:2] + struct.pack(">HHHHH", 0x8580 | (0 if known else 3), 1, len(addresses), 0, 0)
    records = [b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 5, 4) + socket.inet_aton(address) for address in addresses]
    return head + question + b"".join(records)


def main() -> None:
    host, _, port = sys.argv[1].partition(":")
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((host, int(port)))
    names: dict[str, list[str]] = {}
    read_at = 0.0
    while True:
        query, client = server.recvfrom(4096)
        if time.monotonic() > read_at + _FRESH:
            try:
                names, read_at = endpoints(), time.monotonic()
            except OSError as error:
                print(error, file=sys.stderr)
        try:
            server.sendto(answer(query, names), client)
        except (IndexError, struct.error, OSError) as error:
            print(error, file=sys.stderr)


if __name__ == "__main__":
    os.environ.pop("http_proxy", None)
    main()
