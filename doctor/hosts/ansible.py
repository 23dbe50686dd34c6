"""Ansible inventories, in its INI and YAML forms, by its own program: ``ansible-inventory --list``.

Source: Ansible, "How to build your inventory"; ansible-inventory(1), option ``--list``: JSON with the hosts of each
group, and their variables in ``_meta.hostvars``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

from doctor.engine.addresses import is_plain_address
from doctor.engine.sanitize import printable_excerpt, quote
from doctor.engine.texts import filled
from doctor.hosts.hostfile import HostLine
from doctor.hosts.nodeset import HostLogin, InventoryError, canonical_host, limit_hosts, validate_host

_SECTION = re.compile(r"\[([A-Za-z0-9_.-]+)(?::[a-z]+)?\]")
_USERS, _PORTS = ("ansible_user", "ansible_ssh_user"), ("ansible_port", "ansible_ssh_port")
_UNUSED = ("ansible_ssh_common_args", "ansible_ssh_private_key_file")


def is_ansible_inventory(text: str, path: str) -> bool:
    r"""Whether a file is no hostfile but an inventory: a section's title, a variable of Ansible, or a name of YAML.

    >>> is_ansible_inventory("[workers]\nn1\n", "hosts"), is_ansible_inventory("[2001:db8::1]:8", "hosts")
    (True, False)
    """
    lines = (line.strip() for line in text[:100_000].split("\n"))
    return (
        path.endswith((".yml", ".yaml"))
        or " ansible_host=" in text
        or any(
            match is not None and not is_plain_address(match[1].partition("%")[0])
            for match in map(_SECTION.fullmatch, lines)
        )
    )


def inventory_command(path: str) -> tuple[str, ...]:
    """The command that prints an inventory. Raises: InventoryError for a path that Ansible would split."""
    if "," in path:
        raise InventoryError(
            filled("{0}: an Ansible inventory; expected a path without a comma", printable_excerpt(path, 200))
        )
    return ("ansible-inventory", "--inventory", os.path.abspath(path), "--list")


def parse_inventory(output: str, path: str) -> list[HostLine]:
    """The hosts of all groups, each once, by ``ansible_host`` where it is set. Raises: InventoryError."""
    place = printable_excerpt(path, 200)
    try:
        tree = json.loads(output)
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        raise InventoryError(
            filled("{0}: ansible-inventory does not print JSON; expected an inventory that it can read", place)
        )
    meta = tree.get("_meta")
    host_variables = meta.get("hostvars") if isinstance(meta, dict) else None
    host_lines: dict[str, HostLine] = {}
    for name in _names(tree):
        variables = host_variables.get(name) if isinstance(host_variables, dict) else None
        host_line = _host_line(name, variables if isinstance(variables, dict) else {}, place)
        host_lines.setdefault(canonical_host(host_line.host), host_line)
        limit_hosts(host_lines, place)
    if not host_lines:
        raise InventoryError(filled("{0}: an Ansible inventory without a host; expected at least one", place))
    return list(host_lines.values())


def _names(tree: dict[str, object]) -> Iterator[str]:
    """In the order of the inventory's groups; the program prints them by name."""
    top = tree.get("all")
    children = top.get("children") if isinstance(top, dict) else None
    first = [str(child) for child in children] if isinstance(children, list) else []
    for group in dict.fromkeys((*first, *tree)):
        content = tree.get(group)
        hosts = content.get("hosts") if isinstance(content, dict) and group != "_meta" else None
        yield from (str(name) for name in hosts) if isinstance(hosts, list) else ()


def _host_line(name: str, variables: dict[str, object], place: str) -> HostLine:
    host = validate_host(str(variables.get("ansible_host") or name), f"{place}: {printable_excerpt(name)}")
    unused = tuple(variable for variable in _UNUSED if variable in variables)
    where = f"{place}: {printable_excerpt(name)}"
    return HostLine(host, where, "Ansible inventory", None, unused, _login(variables, where))


def _login(variables: dict[str, object], where: str) -> HostLogin:
    """``ansible_user`` and ``ansible_port``. Raises: InventoryError."""
    user, port = (str(next((variables[name] for name in names if name in variables), "")) for names in (_USERS, _PORTS))
    if user and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", user, re.ASCII):
        raise InventoryError(
            filled("{0}: {1} is no user name; expected ansible_user as ssh takes it", where, quote(user))
        )
    if port and not (re.fullmatch(r"[0-9]{1,5}", port, re.ASCII) and 0 < int(port) < 65536):
        raise InventoryError(filled("{0}: {1} is no port; expected ansible_port from 1 to 65535", where, quote(port)))
    return HostLogin(user, int(port or 0))
