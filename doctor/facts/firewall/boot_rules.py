"""Runs on the host: loads beside its packet filter what it loads at boot, in a network namespace, and lists it.

Nothing of the host changes. Loaded is what enabled services load from files: nftables, netfilter-persistent,
iptables-services, ufw, firewalld, whose own code reads its files; and the unquoted commands of rc.local and of
ifupdown's scripts. No script is run.
"""

from __future__ import annotations

import errno
import json
import os
import select
import shlex
import signal
import time

from doctor.engine.fact import ProbeArguments
from doctor.facts.firewall.host_rules import (
    file_text,
    has_all_rights,
    list_interfaces,
    list_kernel_tables,
    list_outputs,
    local_addresses,
    run_bounded,
)
from doctor.remote.runtime.reading import matching_paths

UNIT_DIRECTORIES = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
SCRIPTS = (
    *("/etc/rc.local", "/etc/rc.d/rc.local", "/etc/network/if-pre-up.d/*", "/etc/network/if-up.d/*"),
    *("/etc/NetworkManager/dispatcher.d/*", "/etc/networkd-dispatcher/*/*"),
)
FILTER_TOOLS = (
    *("nft", "iptables", "ip6tables", "iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy", "ipset"),
    *("iptables-restore", "ip6tables-restore", "iptables-nft-restore", "ip6tables-nft-restore"),
    *("iptables-legacy-restore", "ip6tables-legacy-restore"),
)
SHELL_WORDS = ("if", "for", "while", "until", "case", "function", "{", "}", "(", "&&", "||", "|", "exec", ".", "source")
LOAD_SECONDS = 45
NO_MOUNTS = "file systems cannot be mounted here"
NEW_NETWORK, NEW_MOUNTS, BIND, PRIVATE = 0x40000000, 0x20000, 0x1000, 0x40000 | 0x4000


def _unit_text(service: str) -> str:
    """The unit of a service, with its drop-ins; empty where it is masked or not there."""
    for folder in UNIT_DIRECTORIES:
        path = folder + "/" + service + ".service"
        if os.path.lexists(path):
            text = file_text(path)
            parts = [file_text(part) for part in matching_paths("/etc/systemd/system/" + service + ".service.d/*.conf")]
            return "\n".join([text, *parts]) if text.strip() else ""
    return ""


def _starts(service: str) -> bool:
    """The service is started at boot: by systemd, System V or OpenRC."""
    names = [folder + "/" + service + ".service" for folder in UNIT_DIRECTORIES]
    present = [path for path in names if os.path.lexists(path)]
    if present and (os.path.realpath(present[0]) == "/dev/null" or not os.path.getsize(os.path.realpath(present[0]))):
        return False
    links = [
        path for folder in UNIT_DIRECTORIES for path in matching_paths(folder + "/*.wants/" + service + ".service")
    ]
    links += matching_paths("/etc/rc[0-9].d/S[0-9][0-9]" + service) + matching_paths("/etc/runlevels/*/" + service)
    return any(os.path.exists(path) for path in links)


def _argument_of(service: str, option: str, otherwise: str) -> str:
    """The file that a unit's command names behind an option, or behind the command where it is empty."""
    for line in reversed(_unit_text(service).splitlines()):
        tokens = line.partition("=")[2].split() if line.startswith("ExecStart=") else []
        files = [word for place, word in enumerate(tokens) if word[:1] == "/" and place and tokens[place - 1] == option]
        files += [word for word in tokens[1:] if word[:1] == "/" and not option]
        if files:
            return str(files[-1])
    return otherwise


def _restored_files() -> list:  # type: ignore[type-arg]
    """The files that enabled services of iptables restore: command, path, family."""
    restores: list = []  # type: ignore[type-arg]
    if _starts("netfilter-persistent"):
        restores += [("iptables-restore", "/etc/iptables/rules.v4"), ("ip6tables-restore", "/etc/iptables/rules.v6")]
    for service in ("iptables", "ip6tables"):
        if _starts(service):
            path = _argument_of(service, "", "/etc/sysconfig/" + service)
            path = path if path.endswith((".rules", ".save")) else "/etc/sysconfig/" + service
            restores.append((service + "-restore", path))
    return [(command, path) for command, path in restores if os.path.exists(path)]


def _simple_commands(text: str) -> list:  # type: ignore[type-arg]
    """The packet filter's commands of a shell script that is a plain list of commands.

    Raises: ValueError where which of them run, or with what words, depends on more than the text.
    """
    commands: list = []  # type: ignore[type-arg]
    for redirection in ("2>&1", "2>/dev/null", ">/dev/null", "2> /dev/null", "> /dev/null"):
        text = text.replace(redirection, "")
    for line in text.replace("\\\n", " ").splitlines():
        tokens = shlex.split(line, comments=True)
        tool = os.path.basename(tokens[0]) if tokens else ""
        mentions = [word for word in tokens if os.path.basename(word) in FILTER_TOOLS]
        if tool in SHELL_WORDS and any(name in text for name in ("nft", "tables", "ipset")):
            raise ValueError(line.strip()[:80])
        if tool == "exit":
            break
        if not mentions:
            continue
        stdin_data = ""
        if (len(tokens) == 3 and tokens[1] == "<") or (len(tokens) == 2 and tokens[1][:1] == "<"):
            stdin_data, tokens = tokens[-1].lstrip("<"), tokens[:1]
        unquoted = line.replace("'", " ").replace('"', " ")
        if (
            tool not in FILTER_TOOLS
            or any(sign in unquoted for sign in "$`*?|&>")
            or (stdin_data and stdin_data[:1] != "/")
        ):
            raise ValueError(line.strip()[:80])
        if ";" in " ".join(tokens) and tool != "nft":
            raise ValueError(line.strip()[:80])
        commands.append((tokens, stdin_data))
    return commands


def _script_commands(unclear: list) -> list:  # type: ignore[type-arg]
    """The commands of scripts that are run at boot; into ``unclear`` what their text does not show."""
    commands: list = []  # type: ignore[type-arg]
    visited = set()
    for pattern in SCRIPTS:
        for path in matching_paths(pattern):
            real = os.path.realpath(path)
            if real in visited or not os.path.isfile(real) or not os.access(real, os.X_OK):
                continue
            visited.add(real)
            text = file_text(real)
            if not any(name in text for name in ("nft ", "iptables", "ip6tables", "ipset ")):
                continue
            try:
                commands += _simple_commands(text)
            except ValueError as error:
                unclear.append([path, str(error)])
    return commands


def _ufw_value(name: str, otherwise: str) -> str:
    for path in ("/etc/ufw/ufw.conf", "/etc/default/ufw"):
        for line in file_text(path).splitlines():
            if line.startswith(name + "="):
                return line.partition("=")[2].strip().strip("\"'")
    return otherwise


UFW_STAGES = ("before-logging", "before", "after", "after-logging", "reject", "track")
UFW_HOOKS = (("input", "INPUT"), ("output", "OUTPUT"), ("forward", "FORWARD"))


def _ufw_texts(kind: str) -> list:  # type: ignore[type-arg]
    """What ufw restores when it starts, in its order (ufw-init-functions); ``kind`` is empty or 6."""
    chains = ["ufw" + kind + "-" + stage + "-" + hook for hook, _ in UFW_HOOKS for stage in UFW_STAGES]
    lines = [":" + chain + " - [0:0]" for chain in chains]
    lines += ["-A " + base + " -j ufw" + kind + "-" + s + "-" + hook for hook, base in UFW_HOOKS for s in UFW_STAGES]
    late, skips, policies = [], [], []
    for hook, base in UFW_HOOKS:
        policy = _ufw_value("DEFAULT_" + base + "_POLICY", "ACCEPT" if hook == "output" else "DROP")
        if policy == "REJECT":
            late.append("-A ufw" + kind + "-reject-" + hook + " -j REJECT")
        if policy == "ACCEPT":
            for protocol in ("tcp", "udp"):
                track = "-A ufw" + kind + "-track-" + hook + " -p " + protocol
                late.append(track + " -m conntrack --ctstate NEW -j ACCEPT")
        skips.append((":ufw" + kind + "-skip-to-policy-" + hook + " - [0:0]", hook, policy))
        policies.append(":" + base + " " + ("DROP" if policy == "REJECT" else policy) + " [0:0]")
    names = ["logging-deny", "logging-allow"]
    lines += late + [":ufw" + kind + "-" + name + " - [0:0]" for name in names] + [skip[0] for skip in skips]
    lines += ["-A ufw" + kind + "-skip-to-policy-" + hook + " -j " + policy for _, hook, policy in skips]
    users = [part + "-" + hook for hook, _ in UFW_HOOKS for part in ("user", "user-logging")]
    user = [":ufw" + kind + "-" + name + " - [0:0]" for name in [*users, "user-limit", "user-limit-accept"]]
    hooked = ["-A ufw" + kind + "-before-" + hook + " -j ufw" + kind + "-user-" + hook for hook, _ in UFW_HOOKS]
    return [
        _table(lines),
        file_text("/etc/ufw/before" + kind + ".rules"),
        file_text("/etc/ufw/after" + kind + ".rules"),
        _table(user),
        file_text("/etc/ufw/user" + kind + ".rules"),
        _table(hooked + policies),
    ]


def _table(lines: list) -> str:  # type: ignore[type-arg]
    declared = [line for line in lines if line[:1] == ":"]
    return "\n".join(["*filter"] + declared + [line for line in lines if line[:1] != ":"] + ["COMMIT", ""])


def _load_all(failed: list, unclear: list) -> None:  # type: ignore[type-arg]
    """Loads in the order of boot; what cannot be loaded here goes into ``failed``."""
    jobs: list = []  # type: ignore[type-arg]
    if _starts("nftables"):
        usual = (
            "/etc/sysconfig/nftables.conf" if os.path.exists("/etc/sysconfig/nftables.conf") else "/etc/nftables.conf"
        )
        jobs.append((["nft", "-f", _argument_of("nftables", "-f", usual)], b""))
    if os.path.exists("/etc/iptables/ipsets") and _starts("netfilter-persistent"):
        jobs.append((["ipset", "restore", "-!"], file_text("/etc/iptables/ipsets").encode()))
    jobs += [([command], file_text(path).encode()) for command, path in _restored_files()]
    if _starts("ufw") and _ufw_value("ENABLED", "no").lower() == "yes":
        jobs += [(["iptables-restore", "-n"], text.encode()) for text in _ufw_texts("")]
        if _ufw_value("IPV6", "no").lower() == "yes":
            jobs += [(["ip6tables-restore", "-n"], text.encode()) for text in _ufw_texts("6")]
        else:
            closed = [":INPUT DROP [0:0]", ":FORWARD DROP [0:0]", ":OUTPUT DROP [0:0]"]
            closed += ["-A INPUT -i lo -j ACCEPT", "-A OUTPUT -o lo -j ACCEPT"]
            jobs.append((["ip6tables-restore"], _table(closed).encode()))
        unclear += [[path] for path in matching_paths("/etc/ufw/*.init") if os.access(path, os.X_OK)]
    jobs += [
        (tokens, file_text(stdin_data).encode() if stdin_data else b"")
        for tokens, stdin_data in _script_commands(unclear)
    ]
    for tokens, stdin_data in jobs:
        done = run_bounded(*tokens, stdin_data=stdin_data)
        if done.get("ended") or done.get("code"):
            lines = done.get("err", "").strip().splitlines()
            why = ([line for line in lines if "rror" in line] + lines + ["it failed"])[0]
            failed.append(" ".join(tokens)[:200] + ": " + why[:200])


FIREWALLD = """
import sys
from firewall.core.fw import Firewall
firewall = Firewall()
firewall.start()
for entry in sys.argv[1:]:
    interface, _, zone = entry.partition("=")
    if zone:
        firewall.zone.change_zone_of_interface(zone, interface)
    elif firewall.zone.get_zone_of_interface(interface) not in (None, "", firewall.get_default_zone()):
        sys.exit(interface + ": in a zone by a file of firewalld, and in none by its NetworkManager profile")
print("loaded")
sys.stdout.flush()
sys.stdin.read()
"""
"""What `firewalld` does when it starts, without D-Bus; then the zones that something else gives to interfaces.

It stays until its input ends: a table with an owner (NftablesTableOwner) goes with the owner.
"""


def _nmcli(*arguments: str) -> str:
    """What it prints. Raises: OSError."""
    done = run_bounded("nmcli", *arguments)
    if done.get("code", 1):
        raise OSError(errno.EIO, "nmcli does not show the zones of NetworkManager's profiles")
    return str(done["out"]).strip()


def _given_zones(interfaces: list) -> list:  # type: ignore[type-arg]
    """``interface=zone`` for each interface to which its profile or its ifcfg file gives a zone at boot.

    Raises: OSError where NetworkManager, which runs, does not tell.
    """
    zones = {}
    for name in interfaces:
        for line in file_text("/etc/sysconfig/network-scripts/ifcfg-" + name).splitlines():
            if line.startswith("ZONE="):
                zones[name] = line[5:].strip("\"' ")
    if os.path.exists("/run/NetworkManager"):
        for line in _nmcli("-t", "-f", "DEVICE,UUID", "connection", "show", "--active").splitlines():
            name, _, profile = line.rpartition(":")
            if name in interfaces:
                zones[name] = _nmcli("-g", "connection.zone", "connection", "show", profile)
    return [name + "=" + zones[name] for name in sorted(zones)]


def _start_firewalld(failed: list, given_zones: list) -> object:  # type: ignore[type-arg]
    """A process that has loaded what firewalld loads; into ``failed`` why it could not."""
    import subprocess

    first = file_text("/usr/sbin/firewalld").partition("\n")[0]
    command = (first[2:].split() if first[:2] == "#!" else ["python3"]) + ["-c", FIREWALLD] + given_zones
    pipe, line, environ = subprocess.PIPE, "", dict(os.environ, LC_ALL="C")
    process = subprocess.Popen(
        command,
        stdin=pipe,
        stdout=pipe,
        stderr=subprocess.STDOUT,
        env=environ,
        preexec_fn=lambda: _own_folder("/run"),  # noqa: PLW1509  where it makes files; this process has one thread
    )
    for data in process.stdout or ():
        line = data.decode("utf-8", "replace").strip() or line
        if line == "loaded":
            return process
    failed.append("firewalld: " + (line or "it does not start")[:200])
    return process


def _unshare(namespaces: int, why: str) -> object:
    """The C library, when this process is in namespaces of its own. Raises: OSError."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(namespaces):
        raise OSError(ctypes.get_errno(), why)
    return libc


def _own_folder(path: str) -> object:
    """An empty folder there, for this process and what it starts. Raises: OSError."""
    libc = _unshare(NEW_MOUNTS, NO_MOUNTS)
    libc.mount(b"none", b"/", None, PRIVATE, None)  # type: ignore[attr-defined]
    if libc.mount(b"none", path.encode(), b"tmpfs", 0, b"size=64m"):  # type: ignore[attr-defined]
        raise OSError(errno.EPERM, NO_MOUNTS)
    return libc


def _enter_namespace(interfaces: list, overlays: dict) -> None:  # type: ignore[type-arg]
    """A network without rules, with interfaces of the same names, for this process alone. Raises: OSError.

    ``overlays``: texts that stand in files' places, for this process and what it starts.
    """
    _unshare(NEW_NETWORK, "network namespaces are not allowed here")
    if overlays:
        libc = _own_folder("/mnt")
        for number, path in enumerate(sorted(path for path in overlays if os.path.isfile(path))):
            copy = "/mnt/" + str(number)
            with open(copy, "w") as file:
                file.write(overlays[path])
            if libc.mount(copy.encode(), path.encode(), None, BIND, None):  # type: ignore[attr-defined]
                raise OSError(errno.EPERM, path)
    for name in interfaces:
        for kind in ("dummy", "bridge") if name != "lo" else ():
            if not run_bounded("ip", "link", "add", "name", name, "type", kind).get("code"):
                break


def _load_and_list(overlays: dict) -> dict:  # type: ignore[type-arg]
    failed: list = []  # type: ignore[type-arg]
    unclear: list = []  # type: ignore[type-arg]
    interfaces = sorted(os.listdir("/sys/class/net"))[:64]
    firewalld = _starts("firewalld")
    given_zones = _given_zones(interfaces) if firewalld else []
    _enter_namespace(interfaces, overlays)
    _load_all(failed, unclear)
    keeper = _start_firewalld(failed, given_zones) if firewalld else None
    tables = list_kernel_tables()
    families = {"ip": "/proc/self/net/ip_tables_names", "ip6": "/proc/self/net/ip6_tables_names"}
    legacy = {family: file_text(path).split() for family, path in families.items()}
    answer = {"tables": tables, "legacy": legacy, "outputs": list_outputs(tables, legacy)}
    del keeper  # what holds the tables lives until here
    return dict(answer, failed=failed, unclear=unclear)


def _in_child(overlays: dict) -> dict:  # type: ignore[type-arg]
    """The answer of a child process: this one stays in its network."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            try:
                answer = _load_and_list(overlays)
            except (OSError, ValueError) as error:
                answer = {"error": getattr(error, "strerror", None) or str(error)}
            data = json.dumps(answer).encode("ascii")
            while data:
                data = data[os.write(writer, data) :]
        finally:
            os._exit(0)
    os.close(writer)
    pieces, end = [], time.monotonic() + LOAD_SECONDS
    while select.select([reader], [], [], max(0, end - time.monotonic()))[0]:
        piece = os.read(reader, 1 << 16)
        if not piece:
            break
        pieces.append(piece)
    os.close(reader)
    for end_process in (os.killpg, os.kill):
        try:
            end_process(pid, signal.SIGKILL)
        except OSError:
            continue
    os.waitpid(pid, 0)
    try:
        return dict(json.loads(b"".join(pieces).decode("ascii")))
    except ValueError:
        return {"error": "no answer in time"}


def list_boot_rules(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: the packet filter's tables as after a reboot, as nft and iptables print them."""
    dump: dict = {"outputs": {}, "error": "", "refused": False, "tables": [], "legacy": {}}  # type: ignore[type-arg]
    dump.update(root=has_all_rights(), failed=[], unclear=[])
    if os.geteuid() != 0:
        dump.update(error=os.strerror(errno.EPERM), refused=True)
        return dump
    dump.update(_in_child(arguments.get("BootFirewall") or {}))  # type: ignore[arg-type]
    dump["local"] = local_addresses()
    dump.update(list_interfaces())
    files = {"nftables": ("/etc/nftables.conf", "/etc/sysconfig/nftables.conf"), "ufw": ("/etc/ufw/user.rules",)}
    files["netfilter-persistent"] = ("/etc/iptables/rules.v4",)
    files["iptables"] = ("/etc/sysconfig/iptables",)
    dump["idle"] = [name for name in sorted(files) if any(map(os.path.exists, files[name])) and not _starts(name)]
    return dump
