"""The rules of a host's firewall: nftables, and iptables in both its kinds. ufw and firewalld end up in one of them."""

from __future__ import annotations

import _socket as socket
import base64
import errno
import os
import struct
from collections.abc import Iterator, Mapping

import msgspec

from doctor.engine.addresses import plain_address
from doctor.engine.bounded_inflate import StreamTooLarge, inflate
from doctor.engine.fact import Absent, Fact, Output, ProbeAnswer, Unreadable, ask, unusable_reason
from doctor.engine.texts import filled, joined
from doctor.facts.firewall.ipset import parse_ipsets
from doctor.facts.firewall.iptables import parse_iptables_save
from doctor.facts.firewall.nft import parse_nft
from doctor.facts.firewall.rules import RuleTable, Tool

NEEDS_ROOT = "only root may read the firewall's rules: log in as root, or use --sudo"
NO_RIGHT = "root of this container may not read firewall rules (CAP_NET_ADMIN); those of its host are read there"
MAX_OUTPUT_BYTES = 64 << 20


def _run(*command: str) -> dict:  # type: ignore[type-arg]
    import base64  # here: most hosts have no rules
    import subprocess
    import zlib

    environ = dict(os.environ, LC_ALL="C")
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ)
        out, err = process.communicate(timeout=8)
    except FileNotFoundError:
        return {"ended": "absent", "err": command[0] + " is not installed"}
    except subprocess.TimeoutExpired:
        process.kill()
        return {"ended": "timeout", "seconds": 8}
    text = out.decode("utf-8", "replace")
    if len(out) > 100000:
        text = "zlib:" + base64.b64encode(zlib.compress(out)).decode("ascii")
    return {"code": process.returncode, "out": text, "err": err.decode("utf-8", "replace")[-2000:]}


def _content(path: str) -> str:
    try:
        with open(path) as opened:
            return opened.read()
    except FileNotFoundError:
        return ""


def _list_kernel_tables() -> list:  # type: ignore[type-arg]
    # The kernel's own list of the nftables tables that are in force: a table that no tool tells of is then noticed.
    families = {1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}
    kernel_tables: list = []  # type: ignore[type-arg]
    modules, builtin = _content("/proc/modules"), _content("/lib/modules/" + os.uname()[2] + "/modules.builtin")
    if modules and builtin and "nf_tables " not in modules and "/nf_tables.ko" not in builtin:
        return kernel_tables  # to ask would load the module
    try:
        netfilter = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
    except OSError as error:
        if error.errno == errno.EPROTONOSUPPORT:
            return kernel_tables
        raise
    try:
        netfilter.bind((0, 0))
        netfilter.settimeout(5)
        netfilter.send(struct.pack("=IHHIIBBH", 20, 10 << 8 | 1, 0x301, 1, 0, 0, 0, 0))
        while True:
            data = netfilter.recv(1 << 20)
            while len(data) >= 16:
                length, kind = struct.unpack("=IH", data[:6])
                if kind == 3:
                    return kernel_tables
                if kind == 2:
                    code = -struct.unpack("=i", data[16:20])[0]
                    if code in (errno.EINVAL, errno.EOPNOTSUPP):
                        return kernel_tables  # a kernel without nftables
                    raise OSError(code, os.strerror(code))
                if kind == 10 << 8:
                    rest, values = data[20:length], {2: b"\0\0\0\0"}
                    while len(rest) >= 4:
                        size, attribute = struct.unpack("=HH", rest[:4])
                        values[attribute] = rest[4:size]
                        rest = rest[(size + 3) & ~3 :]
                    if not struct.unpack("!I", values[2])[0] & 1:  # not dormant
                        name = values[1].rstrip(b"\0").decode("utf-8", "replace")
                        kernel_tables.append([families.get(data[16], str(data[16])), name])
                data = data[(length + 3) & ~3 :]
    finally:
        netfilter.close()


def _list_outputs(tables: list, legacy: dict) -> dict:  # type: ignore[type-arg]
    """By tool: what it prints of the rules that are in force."""
    outputs: dict = {}  # type: ignore[type-arg]
    if tables:
        outputs["nft"] = _run("nft", "-j", "-s", "list", "ruleset")
        outputs["nft -a"] = _run("nft", "-s", "-a", "list", "ruleset")
        for family, command in (("ip", "iptables"), ("ip6", "ip6tables")):
            # What iptables put into nftables and nft cannot tell in its own words, iptables can.
            if any(table[0] == family for table in tables):
                saved = _run(command + "-nft-save")
                outputs[command] = _run(command + "-save") if saved.get("ended") == "absent" else saved
    for family, command in (("ip", "iptables"), ("ip6", "ip6tables")):
        if legacy[family]:
            saved = _run(command + "-legacy-save")
            outputs[command + "-legacy"] = _run(command + "-save") if saved.get("ended") == "absent" else saved
    if any("match-set" in output.get("out", "") or "zlib:" in output.get("out", "") for output in outputs.values()):
        outputs["ipset"] = _run("ipset", "save")
    return outputs


def _local_addresses() -> list:  # type: ignore[type-arg]
    lines = [line.split() for line in _content("/proc/net/fib_trie").splitlines()]
    local_places = [place for place, fields in enumerate(lines) if place and fields[:3] == ["/32", "host", "LOCAL"]]
    trie = [lines[place - 1][1] for place in local_places if lines[place - 1][:1] == ["|--"]]
    hexes = [line.split()[0] for line in _content("/proc/net/if_inet6").splitlines()]
    return sorted(set(trie)) + [socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)) for digits in hexes]


def list_rules(arguments: dict) -> dict:  # type: ignore[type-arg]
    """Runs on the host: the packet filter's tables as nft and iptables print them, and the local addresses."""
    outputs: dict = {}  # type: ignore[type-arg]
    dump: dict = {"outputs": outputs, "error": "", "refused": False}  # type: ignore[type-arg]
    dump["root"] = os.geteuid() == 0
    dump.update(tables=[], legacy={}, local=[], bridges=[])
    try:
        dump["tables"] = _list_kernel_tables()
        dump["legacy"] = {
            "ip": _content("/proc/net/ip_tables_names").split(),
            "ip6": _content("/proc/net/ip6_tables_names").split(),
        }
    except OSError as error:
        dump["refused"] = error.errno in (errno.EPERM, errno.EACCES)
        dump["error"] = (error.filename or "nftables") + ": " + (error.strerror or str(error))
        return dump
    outputs.update(_list_outputs(dump["tables"], dump["legacy"]))
    dump["local"] = _local_addresses()
    dump["bridges"] = sorted(
        name for name in os.listdir("/sys/class/net") if os.path.exists("/sys/class/net/" + name + "/bridge")
    )
    return dump


class _FirewallDump(msgspec.Struct, frozen=True):
    """What `list_rules` returns."""

    outputs: dict[str, Output]
    tables: list[tuple[str, str]]
    legacy: dict[str, list[str]]
    local: list[str]
    bridges: list[str]
    refused: bool
    error: str
    root: bool = False
    """The user is root, who can be refused only in a container."""


class FirewallRules(Fact, frozen=True):
    r"""All packet filter rules of a host, of nftables and of iptables, as its kernel holds them.

    Raw output, as JSON::

        {"outputs": {"iptables-legacy": {"out":
            "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n"}},
         "tables": [], "legacy": {"ip": ["filter"], "ip6": []}, "bridges": [],
         "error": "", "refused": false, "local": ["127.0.0.1"]}
    """  # noqa: E501

    probe = ask(list_rules, root=True, timeout=40)

    tables: tuple[RuleTable, ...]
    """Those that hold rules or chains; none at all on a host without a firewall."""
    local_addresses: tuple[str, ...]
    """The addresses of the network namespace that these rules are for."""
    bridges: tuple[str, ...]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> FirewallRules:
        dump = msgspec.convert(answer.json(), _FirewallDump)
        if dump.error:
            if dump.refused and dump.root:
                raise Absent(NO_RIGHT)
            raise Unreadable(NEEDS_ROOT if dump.refused else dump.error)
        if not dump.local:
            raise Unreadable("the kernel lists no address of the host")
        for address in dump.local:
            plain_address(address)
        unread: dict[str, str] = {}
        rule_tables = (*_nft_tables(dump, unread), *_legacy_tables(dump, unread))
        return cls(tables=rule_tables, local_addresses=tuple(dump.local), bridges=tuple(dump.bridges), unread=unread)


def _nft_tables(dump: _FirewallDump, unread: dict[str, str]) -> Iterator[RuleTable]:
    """The tables in nftables: as nft lists them, or as iptables does where nft cannot express their rules."""
    table_keys = [table for table in dump.tables if table[0] != "arp"]
    if not table_keys:
        return
    listed, why_nft = _listed_tables(dump.outputs)
    saved, why_saved = _saved_tables(dump, "iptables", "(nf_tables)")
    for key in table_keys:
        table = listed.get(key)
        if table is not None and not (_has_opaque_matches(table) and key in saved):
            yield table
        elif key in saved:
            yield saved[key]
        else:
            unread[filled("table {0}", " ".join(key))] = joined("; ", filter(None, (why_nft, why_saved)))


def _has_opaque_matches(table: RuleTable) -> bool:
    """Of iptables' own matches nft knows the names, and not what they are to match."""
    return any('{"xt":' in rule.source for chain in table.chains for rule in chain.rules)


def _listed_tables(outputs: Mapping[str, Output]) -> tuple[dict[tuple[str, str], RuleTable], str]:
    """The tables by family and name, or why nft did not list them."""
    json_listing, why = _tool_output(outputs, "nft")
    if why:
        return {}, why
    text_listing, _ = _tool_output(outputs, "nft -a")
    return {(table.family, table.name): table for table in parse_nft(json_listing, text_listing)}, ""


def _saved_tables(dump: _FirewallDump, command: str, kind: str) -> tuple[dict[tuple[str, str], RuleTable], str]:
    """The tables that iptables-save and ip6tables-save list, when they are of the requested kind."""
    tables, why = {}, ""
    sets = parse_ipsets(_tool_output(dump.outputs, "ipset")[0])
    tool: Tool = "iptables-legacy" if command.endswith("legacy") else "iptables"
    for family in ("ip", "ip6"):
        saved_text, failed = _tool_output(dump.outputs, command.replace("ip", family, 1))
        first = saved_text.partition("\n")[0]
        if failed or (("(nf_tables)" in first) != (kind == "(nf_tables)")):
            why = failed or why
            continue
        for table in parse_iptables_save(saved_text, tool, family, sets):
            tables[family, table.name] = table
    return tables, why


def _legacy_tables(dump: _FirewallDump, unread: dict[str, str]) -> Iterator[RuleTable]:
    saved, why = _saved_tables(dump, "iptables-legacy", "")
    for family, names in dump.legacy.items():
        for name in names:
            if (family, name) in saved:
                yield saved[family, name]
            else:
                unread[filled("table {0} of legacy {1}tables", name, family)] = (
                    why or "not in the output of iptables-save"
                )


def _tool_output(outputs: Mapping[str, Output], name: str) -> tuple[str, str]:
    """What a tool printed, or why there is nothing."""
    if name not in outputs:
        return "", ""
    output = outputs[name]
    why = unusable_reason(output)
    if why:
        return "", NEEDS_ROOT if "not permitted" in why or "ermission denied" in why else why
    if not output.out.startswith("zlib:"):
        return output.out, ""
    try:
        content = inflate(base64.b64decode(output.out[5:], validate=True), MAX_OUTPUT_BYTES)
    except StreamTooLarge:
        return "", filled("{0}: more than 64 MiB", name)
    except ValueError as error:
        return "", filled("{0}: {1}", name, error)
    return content.decode("utf-8", "replace"), ""
