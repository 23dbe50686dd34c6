"""The MTU of each network interface after a reboot: what the files of the network's configuration set.

Read are the files of systemd-networkd and udev (systemd.network(5), systemd.link(5): MTUBytes= in [Link], Name=,
OriginalName= and MACAddress= in [Match]), NetworkManager's keyfiles (nm-settings-keyfile(5): mtu and mac-address in
[ethernet], interface-name in [connection]), ifcfg files (MTU=, DEVICE=, HWADDR=), and /etc/network/interfaces
(interfaces(5): mtu in a stanza). netplan writes files of the first two at each boot (netplan-generate(8)).
"""

from __future__ import annotations

import os
import re

import msgspec

from doctor.engine.fact import Fact, ProbeArguments, Unreadable, ask
from doctor.engine.quantities import parse_bytes
from doctor.engine.texts import beginning, filled
from doctor.facts.boot.files import BootFiles
from doctor.facts.interfaces import Interfaces
from doctor.remote.runtime.reading import matching_paths, read_text

_SETS_MTU = re.compile(r"(?m)^[^#\n]*\b(?:ip|ifconfig)\b[^#\n]*\bmtu\b")
ETHERNET = 1500
"""The MTU with which the kernel makes an Ethernet interface."""


def _settings(text: str) -> dict:  # type: ignore[type-arg]
    """The last value of each key, as ``section.key`` in small letters; without a section ``.key``."""
    section, settings = "", {}
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip().lower()
        elif "=" in line and line[0] not in "#;":
            key, _, value = line.partition("=")
            settings[section + "." + key.strip().lower()] = value.strip().strip("\"'")
    return settings


def _mtu_of(settings: dict, keys: tuple, name: str, mac: str):  # type: ignore
    """The MTU that a file sets for an interface, empty where it sets none; None for a file that is for another one.

    One that chooses by more than name and address is not followed: ``?`` where it sets an MTU.
    """
    names, macs = settings.get(keys[0], ""), settings.get(keys[1], "").lower().replace("-", ":").split()
    folder, fitting = "/sys/class/net/", [pattern for pattern in names.split() if "/" not in pattern]
    if names and not any(folder + name in matching_paths(folder + pattern) for pattern in fitting):
        return None
    if macs and mac not in macs:
        return None
    mtu = settings.get(keys[2], "")
    if any(key.startswith("match.") and key not in keys for key in settings):
        return "?" if mtu else None
    return mtu


def _stanzas(text: str) -> dict:  # type: ignore[type-arg]
    """By interface of /etc/network/interfaces the last MTU; empty where its stanza has none."""
    current, mtus = "", {}  # type: ignore[var-annotated]
    for line in text.splitlines():
        fields = line.split()
        if fields[:1] == ["iface"] and len(fields) > 1:
            current = fields[1]
            mtus.setdefault(current, "")
        elif current and "mtu" in fields[:-1]:
            mtus[current] = fields[fields.index("mtu") + 1]
    return mtus


FILES = (
    (
        "/run/systemd/netif/state",
        "systemd/network/*.network",
        ("match.name", "match.macaddress", "link.mtubytes"),
        True,
    ),
    ("/", "systemd/network/*.link", ("match.originalname", "match.macaddress", "link.mtubytes"), True),
    (
        "/run/NetworkManager",
        "NetworkManager/system-connections/*",
        ("connection.interface-name", "ethernet.mac-address", "ethernet.mtu"),
        False,
    ),
    ("/", "sysconfig/network-scripts/ifcfg-*", (".device", ".hwaddr", ".mtu"), False),
)
"""What exists where files are used; the files; the keys of name, address and MTU; whether the first counts alone."""


def _used_files() -> list:  # type: ignore[type-arg]
    """For each kind of file that is used here: its keys, whether the first counts alone, paths with their settings."""
    kinds = []
    for sign, pattern, keys, first_alone in FILES:
        by_name = {}  # type: ignore[var-annotated]
        for top in ("/etc/", "/run/", "/usr/lib/"):
            for path in matching_paths(top + pattern):
                by_name.setdefault(os.path.basename(path), path)
        paths = [by_name[name] for name in sorted(by_name)] if os.path.exists(sign) else []
        kinds.append((keys, first_alone, [(path, _settings(read_text(path))) for path in paths]))
    return kinds


def _changed_plan() -> str:
    """A file of netplan that was changed since what is in force was made of it; empty: none."""
    plans = [path for top in ("/etc", "/run", "/lib") for path in matching_paths(top + "/netplan/*.yaml")]
    generated = matching_paths("/run/systemd/network/*netplan*")
    generated += matching_paths("/run/NetworkManager/system-connections/netplan*")
    oldest = min([os.path.getmtime(path) for path in generated] or [0])
    return next((path for path in plans if os.path.getmtime(path) > oldest), "")


def read_link_files(arguments: ProbeArguments) -> dict:  # type: ignore[type-arg]
    """Runs on the host: for each interface the files that are for it, and the MTU that each sets; no other setting."""
    stanzas = {}
    for path in ["/etc/network/interfaces", *matching_paths("/etc/network/interfaces.d/*")]:
        stanzas.update({name: [path, mtu] for name, mtu in _stanzas(read_text(path)).items()})
    kinds, links = _used_files(), {}
    for folder in matching_paths("/sys/class/net/*")[:512]:
        name = os.path.basename(folder)
        rows, mac = [stanzas[name]] if name in stanzas else [], read_text(folder + "/address").strip().lower()
        for keys, first_alone, files in kinds:
            mtus = [[path, _mtu_of(settings, keys, name, mac)] for path, settings in files]
            mtus = [row for row in mtus if row[1] is not None]
            rows = rows + (mtus[:1] if first_alone else mtus)
        links[name] = rows
    return {"links": links, "changed": _changed_plan()}


class LinkFiles(Fact, frozen=True):
    """The files of the network's configuration that are for each interface, and the MTU that each sets.

    Raw output, as JSON::

        {"links": {"lo": [], "eth0": [["/etc/systemd/network/10-eth0.network", "9000"],
                                      ["/usr/lib/systemd/network/99-default.link", ""]]}, "changed": ""}
    """

    probe = ask(read_link_files, root=True)

    links: dict[str, tuple[tuple[str, str], ...]]
    """By interface: path and MTU; empty where the file sets none."""
    changed: str
    """A file of netplan that was changed since it was applied."""


def interfaces(files: BootFiles, link_files: LinkFiles, now: Interfaces) -> Interfaces:
    """Those of now, with the MTU that files set; 1500 bytes where they set none.

    Raises: Unreadable where files differ, where netplan's were changed, where a script sets an MTU, and where the
    present MTU is in no file: DHCP, a module's option or a switch's agent may have set it.
    """
    if link_files.changed:
        raise Unreadable(filled("{0} was changed since netplan applied it", link_files.changed))
    links = tuple(
        msgspec.structs.replace(link, mtu=_mtu(link.name, link.mtu, files, link_files))
        if link.is_network_card
        else link
        for link in now.links
    )
    return msgspec.structs.replace(now, links=links)


def _mtu(name: str, now: int, files: BootFiles, link_files: LinkFiles) -> int:
    """Raises: Unreadable."""
    rows = {path: mtu for path, mtu in link_files.links.get(name, ()) if mtu not in ("", "0", "auto")}
    for path in files.scripts():
        if not path.startswith("/etc/network/interfaces") and _SETS_MTU.search(files.files.get(path, "")):
            raise Unreadable(filled("{0} sets an MTU: it is not followed", path))
    if len({*map(_bytes, rows.values())}) > 1:
        raise Unreadable(filled("{0}: {1} set different MTUs", name, " and ".join(sorted(rows)[:2])))
    if rows:
        return _bytes(next(iter(rows.values())))
    if now != ETHERNET:
        raise Unreadable(filled("{0} has an MTU of {1} bytes now, and no file that was read sets it", name, now))
    return ETHERNET


def _bytes(text: str) -> int:
    """``9000`` or ``9K``. Raises: Unreadable."""
    if not re.fullmatch(r"([0-9]{1,6})([KM]?)", text):
        raise Unreadable(filled("an MTU of {0} in a file: not understood", f"{beginning(text, 40)!r}"))
    return parse_bytes(text) or 0
