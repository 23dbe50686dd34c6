"""Runs on the host: the packet filter's rules as they are in force, as nft and iptables print them."""

from __future__ import annotations

import _socket as socket
import errno
import os
import struct

from doctor.engine.fact import ProbeArguments
from doctor.remote.runtime.netlink import netlink_attributes, netlink_entries, netlink_messages
from doctor.remote.runtime.streams import last_lines

TOOLS = (("ip", "iptables"), ("ip6", "ip6tables"), ("arp", "arptables"), ("bridge", "ebtables"))
"""By family of a table the tool that makes it, beside nft."""


def run_bounded(*command: str, stdin_data: bytes = b"") -> dict:  # type: ignore[type-arg]
    """A command's output, as `doctor.engine.fact.Output` has it, within 8 s."""
    import base64  # here: most hosts have no rules
    import subprocess
    import zlib

    environ = dict(os.environ, LC_ALL="C")
    try:
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environ)
        out, err = process.communicate(stdin_data, timeout=8)
    except FileNotFoundError:
        return {"ended": "absent"}
    except subprocess.TimeoutExpired:
        process.kill()
        return {"ended": "timeout", "seconds": 8}
    text = out.decode("utf-8", "replace")
    if len(out) > 100000:
        text = "zlib:" + base64.b64encode(zlib.compress(out)).decode("ascii")
    return {"code": process.returncode, "out": text, "err": last_lines(err, 2000)}


def file_text(path: str) -> str:
    """A file's text; empty where it does not exist."""
    try:
        with open(path) as opened:
            return opened.read()
    except FileNotFoundError:
        return ""


def list_kernel_tables() -> list:  # type: ignore[type-arg]
    """Family and name of the nftables tables that are in force. Raises: OSError."""
    # The kernel's own list of the nftables tables that are in force: a table that no tool tells of is then noticed.
    families = {1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}
    kernel_tables: list = []  # type: ignore[type-arg]
    modules, builtin = file_text("/proc/modules"), file_text("/lib/modules/" + os.uname()[2] + "/modules.builtin")
    if modules and builtin and "nf_tables " not in modules and "/nf_tables.ko" not in builtin:
        return kernel_tables  # to ask would load the module
    try:
        for kind, data in netlink_messages(12, 10 << 8 | 1, bytes(4), 5):
            values = netlink_attributes(data[4:])
            if kind == 10 << 8 and not struct.unpack("!I", values.get(2, bytes(4)))[0] & 1:  # not dormant
                name = values[1].rstrip(b"\0").decode("utf-8", "replace")
                kernel_tables.append([families.get(data[0], str(data[0])), name])
    except OSError as error:
        if error.errno not in (errno.EPROTONOSUPPORT, errno.EINVAL, errno.EOPNOTSUPP):  # a kernel without nftables
            raise
    return kernel_tables


def list_outputs(tables: list, legacy: dict) -> dict:  # type: ignore[type-arg]
    """By tool: what it prints of the rules that are in force."""
    outputs: dict = {}  # type: ignore[type-arg]
    if tables:
        outputs["nft"] = run_bounded("nft", "-j", "-s", "list", "ruleset")
        outputs["nft -a"] = run_bounded("nft", "-s", "-a", "list", "ruleset")
        for family, command in TOOLS:
            # What iptables put into nftables and nft cannot tell in its own words, iptables can.
            if any(table[0] == family for table in tables):
                saved = run_bounded(command + "-nft-save")
                outputs[command] = run_bounded(command + "-save") if saved.get("ended") == "absent" else saved
    for family, command in TOOLS:
        if legacy.get(family):
            # Debian's arptables-legacy-save asks the arptables of nftables.
            options = ("-L", "-n") if family == "arp" else ()
            programs = [command + kind + "-save" * (not options) for kind in ("-legacy", "")]
            saved = run_bounded(programs[0], *options)
            is_absent = saved.get("ended") == "absent"
            outputs[command + "-legacy"] = run_bounded(programs[1], *options) if is_absent else saved
    if any("match-set" in output.get("out", "") or "zlib:" in output.get("out", "") for output in outputs.values()):
        outputs["ipset"] = run_bounded("ipset", "save")
    return outputs


def local_addresses() -> list:  # type: ignore[type-arg]
    """The addresses of this network namespace."""
    lines = [line.split() for line in file_text("/proc/net/fib_trie").splitlines()]
    local_places = [place for place, fields in enumerate(lines) if place and fields[:3] == ["/32", "host", "LOCAL"]]
    trie = [lines[place - 1][1] for place in local_places if lines[place - 1][:1] == ["|--"]]
    hexes = [line.split()[0] for line in file_text("/proc/net/if_inet6").splitlines()]
    return sorted(set(trie)) + [socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)) for digits in hexes]


def list_interfaces() -> dict:  # type: ignore[type-arg]
    """The bridges of this network namespace, as the kernel lists them, and what asks for no address of Ethernet."""
    named: dict = {"bridges": [], "without_arp": []}  # type: ignore[type-arg]
    for header, values in netlink_entries(18, socket.AF_UNSPEC, 16, 4096):  # /sys may be missing
        name = values[3].split(b"\0")[0].decode("utf-8", "replace")
        kind, flags = struct.unpack("=xxHxxxxIxxxx", header)
        if netlink_attributes(values.get(18, b"")).get(1, b"").rstrip(b"\0") == b"bridge":
            named["bridges"].append(name)
        elif kind != 1 or flags & 0x80:  # ARPHRD_ETHER, IFF_NOARP
            named["without_arp"].append(name)
    return named


def has_all_rights() -> bool:
    """Whether this user can read all that any user here can: root, or where no process can gain CAP_NET_ADMIN."""
    bounds = [line.split()[1] for line in file_text("/proc/self/status").splitlines() if line.startswith("CapBnd:")]
    return os.geteuid() == 0 or any(not int(mask, 16) >> 12 & 1 for mask in bounds)


def list_rules(arguments: ProbeArguments) -> dict:  # type: ignore[type-arg]
    """Runs on the host: the packet filter's tables as nft and iptables print them, and the local addresses."""
    outputs: dict = {}  # type: ignore[type-arg]
    dump: dict = {"outputs": outputs, "error": "", "refused": False}  # type: ignore[type-arg]
    dump["root"] = has_all_rights()
    dump.update(tables=[], legacy={}, local=[], bridges=[])
    try:
        dump["tables"] = list_kernel_tables()
        dump["legacy"] = {
            "ip": file_text("/proc/net/ip_tables_names").split(),
            "ip6": file_text("/proc/net/ip6_tables_names").split(),
            "arp": file_text("/proc/net/arp_tables_names").split(),
        }
    except OSError as error:
        dump["refused"] = error.errno in (errno.EPERM, errno.EACCES)
        dump["error"] = (error.filename or "nftables") + ": " + (error.strerror or str(error))
        return dump
    outputs.update(list_outputs(dump["tables"], dump["legacy"]))
    dump["local"] = local_addresses()
    dump.update(list_interfaces())
    return dump
