#!/usr/bin/env python3
"""N throw-away test hosts on one Linux machine, each with a real OpenSSH sshd.

    testbed.py up N [--name sb] [--overrides FILE.json] [--shm 64m] [--host-keys each|shared]
    testbed.py list [--json]
    testbed.py exec -- COMMAND...        run COMMAND where the hosts can be reached
    testbed.py enter HOST -- COMMAND...  run COMMAND inside a host, without SSH
    testbed.py change HOST...            lay overrides (JSON on stdin) over running hosts
    testbed.py renew HOST...             end hosts and make them anew, with overrides (JSON on stdin) or without
    testbed.py down

A host is a set of Linux namespaces (network, mount, pid, uts, ipc) whose pid 1 is sshd. It has its own hostname,
eth0, sysctls, nftables rules, /proc, /sys, /dev, /dev/shm, /tmp, /run, /root and, through an overlay of the
machine's root file system in memory, its own copy of every other file: what one host writes, neither the machine
nor another host sees. The hosts' eth0 hang on a bridge in one more network namespace, the hub; nothing of them is
visible in the machine's own network namespace, so a client is started with `testbed.py exec`. A host ends, with
all that runs in it, when its pid 1 is killed.

Several testbeds can be up at once when each has a --dir of its own and a --hub (or --name) of its own; subnets and
host names may be the same, for each testbed has its own bridge.

Needs root, Linux with overlayfs, Python >= 3.10 (standard library only) and DEBIAN_PACKAGES.

`up` writes into --dir (default /tmp/sb):

    inventory     one line a host: NAME ADDRESS
    hosts         the same for /etc/hosts; `exec` and the hosts themselves use it
    known_hosts   the host keys, under name and address
    id_ed25519    the client key that root@HOST accepts
    ssh_config    for `ssh -F`: all of the above put together
    state.json    what the other verbs work from
    plan/         what each host was made of; `renew` makes it again from there
    share/        the directories of the hosts that have the override "share"

--overrides names a JSON file: {"*": {...}, "sb0003": {...}}. "*" holds for all hosts; a host's own entry is merged
into it (see `merge`). The keys, all optional; those marked * can also be given to `change`:

    "shm": "64m"                size of /dev/shm (tmpfs size= option)
    "disk": "1g"                size of what the host can write on / and /tmp, as a tmpfs size= option
                                ("1g,nr_inodes=9000" limits the number of files too)
  * "full_disk": true           the same, with nothing left: every write to /, /tmp, /run or /root fails
  * "sysctl": {"net.core.somaxconn": 128, "vm.swappiness": 60}
                                set in the host's namespaces where the kernel keeps the value per namespace; any
                                other one is shown to the host only, by a file mounted over /proc/sys/...: the
                                machine's value stays
  * "nft": "table inet f {...}" loaded by `nft -f -` in the host
  * "groups": {"video": 44}     added to /etc/group
  * "users": {"ann": {...}}     ordinary accounts, see `add_user`
  * "files": {"/etc/x": "text"} written, or mounted over what is in /proc or /sys; null removes the path;
                                {"text": ..., "mode": "755", "owner": "ann:video"} says more; "base64": a program
  * "links": {"/etc/y": "x"}    symbolic links
  * "path": {"nvidia-smi": "#!/bin/sh\\necho 8"}
                                executables in the host's /usr/local/sbin, which is first in root's PATH
  * "devices": {"davinci0": "660 root:video"}
                                character devices in the host's own /dev; they open and swallow like /dev/null
  * "limits": {"memlock": [65536, 65536]}
                                soft and hard rlimit of sshd, hence of every new session; -1 is unlimited
  * "clock": -5.25              seconds by which every program of the host sees the wall clock shifted
  * "python": false             no python3 in any directory of the PATH
  * "shell": "/usr/bin/fish"    root's login shell
  * "noise": ["hi", "bye"]      printed by the start-up files of bash, csh and fish, before and after a command
                                (csh: only before); for root and for "users"
  * "setup": "ip link add ..."  a sh script run in the host, last
    "sshd": ["MaxSessions 1"]   sshd_config lines, put before the others
    "share": "/run/npu"         this directory of the host lies in --dir, where it can be written without entering
                                the host, and all hosts see one another's, read-only: /run/npu-all/HOST
    "shows": ["/root/.pyenv"]   directories of the machine that the host shows, read-only, where it has its own
                                /root, /tmp or /run
    "fault": one of
        "refuse"     nothing listens on port 22
        "drop"       packets to port 22 are dropped
        "silent"     port 22 accepts and never sends a banner
        "wrong-key"  known_hosts holds another key for the host
        "deny"       no key is authorized
        "hang"       any command hangs for ever, whatever it was
        "flood"      any command prints 200 MB instead
        "cut"        the connection is cut after a command has printed a line
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import ctypes
import grp
import ipaddress
import json
import os
import pathlib
import pwd
import re
import resource
import select
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

DEBIAN_PACKAGES = (
    "ansible-core",  # its inventories name hosts
    "busybox",
    "crun",
    "chromium",  # opens HTML reports
    "csh",  # brings /bin/csh, and with it a login shell that is no Bourne shell
    "fish",
    "gcc",  # compiles CLOCK, for hosts with a wrong clock
    "iproute2",
    "iptables",
    "libc6-dev",
    "munge",
    "nftables",
    "openmpi-bin",
    "openssh-client",
    "openssh-server",
    "podman",  # real containers, with crun
    "procps",
    "python3-venv",  # makes the virtual environment that tests/run installs into
    "slurm-wlm",
    "sudo",
    "tcsh",
    "ufw",
    "util-linux",
    "zsh",
)
FULL_PACKAGES = ("mariadb-server", "slurmdbd")
"""Those that only tests of ``--full`` use: Slurm's accounting."""
"""Packages that the hosts, and tests on them, need on the machine."""

Overrides = dict[str, Any]
Host = dict[str, Any]

FEW = 32  # hosts that all know each other leave room in the kernel's neighbour table, which is one for all namespaces
FIRST = 0x100  # host i gets the subnet's address FIRST + i; the hub gets 1
LIMIT = 1000  # a Linux bridge takes 1024 ports
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The key exchange that is left out, the first choice of OpenSSH, takes 0.1 CPU s; the next one a tenth of it.
SSHD_CONFIG = """\
Port 22
KexAlgorithms -sntrup*
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
PrintLastLog no
StrictModes no
MaxStartups 200
Subsystem sftp internal-sftp
"""

DEFAULTS: Overrides = {
    "shm": "",
    "disk": "",
    "full_disk": False,
    "sysctl": {},
    "nft": "",
    "groups": {},
    "users": {},
    "files": {},
    "links": {},
    "path": {},
    "devices": {},
    "limits": {},
    "clock": 0,
    "python": True,
    "shell": "",
    "noise": [],
    "setup": "",
    "sshd": [],
    "share": "",
    "shows": [],
    "fault": "",
}
NOT_LIVE = {"shm", "disk", "sshd", "share", "shows", "fault"}  # these need a new host

FAULTS: dict[str, Overrides] = {
    "refuse": {},
    "silent": {},
    "wrong-key": {},
    "deny": {},
    "drop": {
        "nft": "table inet fault {\n chain in {\n  type filter hook input priority 0\n  tcp dport 22 drop\n }\n}\n"
    },
    "hang": {"sshd": ["ForceCommand exec sleep 2000000"]},
    "flood": {"sshd": ["ForceCommand exec head -c 200000000 /dev/zero"]},
    "cut": {"sshd": ["ForceCommand echo first line; sleep .2; kill -9 $PPID"]},
}

# Sysctls the kernel keeps per network or ipc namespace. In a host's network namespace those under net. that are not
# per namespace are absent or read-only, so trying to write one never reaches the machine's value.
PER_NAMESPACE = ("net.", "kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")

DEV_NODES = ("null", "zero", "full", "random", "urandom", "tty")
DEV_LINKS = {
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}

PYTHONS = re.compile(r"(python|pypy|platform-python)(3[.0-9]*)?")
PYTHON_DIRECTORIES = (*PATH.split(":"), "/usr/libexec", "/usr/games")

# A time namespace shifts the monotonic clocks only, and libfaketime needs its settings in every environment, which
# sudo empties. So /etc/ld.so.preload has every program of the host ask the kernel through this.
CLOCK = """\
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, id, at);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE || id == CLOCK_TAI)) {
        long long ns = at->tv_nsec + NANOSECONDS % 1000000000;
        at->tv_sec += NANOSECONDS / 1000000000 + (ns >= 1000000000) - (ns < 0);
        at->tv_nsec = (ns + 1000000000) % 1000000000;
    }
    return failed;
}
int gettimeofday(struct timeval *at, void *zone) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    at->tv_sec = exact.tv_sec;
    at->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *at) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (at)
        *at = exact.tv_sec;
    return exact.tv_sec;
}
int timespec_get(struct timespec *at, int base) {
    clock_gettime(CLOCK_REALTIME, at);
    return base;
}
"""

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
libc = ctypes.CDLL(None, use_errno=True)


class Problem(Exception):
    """Something that the user of the testbed can mend; the text says what."""


def call(name: str, *args: Any) -> None:
    """A libc call that raises OSError."""
    args = tuple(os.fsencode(a) if isinstance(a, str | os.PathLike) else a for a in args)
    if getattr(libc, name)(*args) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}{args}: {os.strerror(error)}")


def mount(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    kind: str | None = None,
    flags: int = 0,
    options: str | None = None,
) -> None:
    call("mount", source, target, kind, ctypes.c_ulong(flags), options)


def command(*argv: str, stdin: str | None = None) -> str:
    done = subprocess.run(argv, input=stdin, text=True, capture_output=True)
    if done.returncode:
        raise Problem(f"{shlex.join(argv)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def merge(*overrides: Overrides) -> Overrides:
    """Overrides laid over one another: dicts key by key, lists and scripts (nft, setup) one after the other."""
    merged: Overrides = {}
    for override in overrides:
        for key, value in override.items():
            before = merged.get(key)
            if isinstance(before, dict) and isinstance(value, dict):
                merged[key] = {**before, **value}
            elif key in ("nft", "setup") and before and value:
                merged[key] = f"{before}\n{value}"
            elif key == "sshd" and before:
                merged[key] = [*value, *before]  # sshd keeps the first value of a setting
            else:
                merged[key] = value
    return merged


# ---------------------------------------------------------------- inside a host


def host_main(host: Host, shared: dict[str, Any]) -> None:
    """Turns this process, pid 1 of a host's new namespaces, into the host."""
    try:
        host_files(host, shared)
        host_network(host, shared)
        apply(host, shared["client_key"])
        set_limits(0, host["limits"])
    except BaseException as error:  # noqa: BLE001 - it is told to `up`, and nothing else is left to do here
        os.write(shared["status_w"], f"{host['name']}: {error}\n".encode()[:4000])
        os._exit(1)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in 0, 1, 2:
        os.dup2(null, fd)
    if host["fault"] == "silent":
        listener = socket.create_server(("", 22), backlog=4096)
        os.close(shared["status_w"])
        kept = []
        while True:
            kept.append(listener.accept())
    # With -r a connection's process is forked, not started anew: a fourth of what a connection costs.
    program = ["/usr/sbin/sshd", "-r", "-D", "-E", "/var/log/sshd.log"]
    if host["fault"] == "refuse":
        program = ["/bin/sleep", "infinity"]
    # The status pipe closes on exec: that is how `up` learns that the host is done.
    os.execve(program[0], program, {"PATH": PATH, "LANG": "C.UTF-8"})


def host_files(host: Host, shared: dict[str, Any]) -> None:
    """The host's file system: an overlay of the machine's, in memory."""
    call("sethostname", host["name"], len(host["name"]))
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    memory = pathlib.Path(shared["dir"], "mnt")
    mount("tmpfs", memory, "tmpfs", 0, "mode=755" + (f",size={host['disk']}" if host["disk"] else ""))
    root = memory / "root"
    for name in "upper", "work", "root", "own":
        (memory / name).mkdir()
    mount("overlay", root, "overlay", 0, f"lowerdir=/,upperdir={memory}/upper,workdir={memory}/work")
    safe = MS_NOSUID | MS_NODEV | MS_NOEXEC
    mount("proc", root / "proc", "proc", safe)
    mount("sysfs", root / "sys", "sysfs", safe)
    host_devices(root / "dev", host["shm"] or shared["shm"])
    for name, mode in ("tmp", 0o1777), ("run", 0o755), ("root", 0o700):
        path = memory / "own" / name
        path.mkdir()
        path.chmod(mode)
        mount(path, root / name, None, MS_BIND)
    for directory in host["shows"]:
        bind(pathlib.Path(directory), root / directory.strip("/"), MS_RDONLY)
    if host["share"]:
        everyone = pathlib.Path(shared["dir"], "share")
        bind(everyone / host["name"], root / host["share"].strip("/"))
        bind(everyone, root / (host["share"].strip("/") + "-all"), MS_RDONLY)
    os.chdir(root)
    call("pivot_root", ".", ".")
    call("umount2", ".", MNT_DETACH)
    os.chdir("/")
    pathlib.Path("/run/sshd").mkdir()
    pathlib.Path("/.dockerenv").unlink(missing_ok=True)  # of the machine, if it has one: a test host is a host
    write("/etc/hostname", host["name"] + "\n")
    write("/etc/hosts", shared["hosts"])
    write("/etc/ssh/ssh_host_ed25519_key", host["key"], 0o600)
    write("/etc/ssh/sshd_config", "\n".join([*host["sshd"], SSHD_CONFIG]))
    allowed = "" if host["fault"] == "deny" else shared["client_key"]
    write("/root/.ssh/authorized_keys", allowed, 0o600)
    change_lines("/etc/shadow", {"root": "root:*:19000:0:99999:7:::"})  # "!" would lock even key logins out


def host_devices(dev: pathlib.Path, shm: str) -> None:
    """A /dev of the host's own: a device made there does not appear on the machine."""
    real = {name: os.stat(f"/dev/{name}").st_rdev for name in DEV_NODES}
    mount("tmpfs", dev, "tmpfs", MS_NOSUID, "mode=755,size=1m")
    old = os.umask(0)
    for name, device in real.items():
        os.mknod(dev / name, 0o666 | stat.S_IFCHR, device)
    os.umask(old)
    for name, target in DEV_LINKS.items():
        (dev / name).symlink_to(target)
    (dev / "pts").mkdir()
    (dev / "shm").mkdir()
    mount("devpts", dev / "pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=620")
    mount("tmpfs", dev / "shm", "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={shm}")


def bind(source: pathlib.Path, target: pathlib.Path, flags: int = 0) -> None:
    target.mkdir(parents=True, exist_ok=True)
    mount(source, target, None, MS_BIND)
    if flags:
        mount("none", target, None, MS_BIND | MS_REMOUNT | flags)


def host_network(host: Host, shared: dict[str, Any]) -> None:
    """eth0 was put here by `up`. No IPv6: its neighbour discovery would flood the bridge."""
    write_proc("net.ipv6.conf.all.disable_ipv6", "1")
    commands = f"""\
link set lo up
addr add {host["address"]}/{shared["bits"]} dev eth0
link set eth0 up
neigh replace {shared["hub_address"]} lladdr {shared["hub_mac"]} dev eth0 nud permanent
"""
    for address, mac in fixed_neighbours(host, shared["neighbours"]):
        commands += f"neigh replace {address} lladdr {mac} dev eth0 nud permanent\n"
    command("ip", "-batch", "-", stdin=commands)


def fixed_neighbours(host: Host, all_hosts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Address and MAC of the hosts 1, 2, 4, ... places before and behind this one, with which it exchanges packets."""
    here = next((i for i, (address, _) in enumerate(all_hosts) if address == host["address"]), None)
    if here is None:
        return []
    count = len(all_hosts)
    steps = [1 << power for power in range(count.bit_length() - 1)]
    return [all_hosts[(here + step) % count] for step in [*steps, *(-step for step in steps)]]


def apply(expected: Overrides, client_key: str) -> None:  # noqa: C901, PLR0912 - one branch for each override
    """Lays overrides over the host that this process is in."""
    for name, gid in expected.get("groups", {}).items():
        change_lines("/etc/group", {name: f"{name}:x:{gid}:"})
    for name, user in expected.get("users", {}).items():
        add_user(name, user, client_key)
    for name, value in expected.get("sysctl", {}).items():
        set_sysctl(name, str(value))
    for path, text in expected.get("files", {}).items():
        put(path, text)
    for path, target in expected.get("links", {}).items():
        link = pathlib.Path(path)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    for name, text in expected.get("path", {}).items():
        write(f"/usr/local/sbin/{name}", text, 0o755)
    for name, mode in expected.get("devices", {}).items():
        add_device(pathlib.Path("/dev", name), mode)
    if expected.get("clock"):
        set_clock(expected["clock"])
    if expected.get("shell"):
        root = pwd.getpwuid(0)
        change_lines("/etc/passwd", {"root": f"root:x:0:0:{root.pw_gecos}:/root:{expected['shell']}"})
    if expected.get("noise"):
        make_noise(*expected["noise"])
    if expected.get("python") is False:
        hide_python()
    if expected.get("nft"):
        command("nft", "-f", "-", stdin=expected["nft"])
    if expected.get("setup"):
        command("sh", "-ec", expected["setup"])
    if expected.get("full_disk"):
        fill_disk()


def put(path: str, arguments: str | dict[str, str] | None) -> None:
    if arguments is None:
        target = pathlib.Path(path)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink()
        return
    more = arguments if isinstance(arguments, dict) else {"text": arguments}
    if path.startswith(("/proc/", "/sys/")):
        cover(pathlib.Path(path), more["text"])
        return
    text = base64.b64decode(more["base64"]) if "base64" in more else more["text"]
    write(path, text, int(more.get("mode", "644"), 8))
    if "owner" in more:
        give(pathlib.Path(path), more["owner"])


def write(path: str | pathlib.Path, text: str | bytes, mode: int = 0o644) -> None:
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)


def give(path: pathlib.Path, owner: str) -> None:
    user, _, group = owner.partition(":")
    os.chown(path, pwd.getpwnam(user).pw_uid if user else -1, grp.getgrnam(group).gr_gid if group else -1)


def change_lines(path: str, lines: dict[str, str]) -> None:
    """Replaces the lines of an account file that begin with the names, or adds them."""
    file = pathlib.Path(path)
    kept = [line for line in file.read_text().splitlines() if line.partition(":")[0] not in lines]
    file.write_text("\n".join([*lines.values(), *kept]) + "\n")


def add_user(name: str, user: dict[str, Any], client_key: str) -> None:
    """An ordinary account. Keys, all optional:

    uid (2001), gid (the uid; the group is made if it is missing), groups (names), shell (/bin/bash),
    key (true: the testbed's client key is authorized), password (none: nothing that is typed is right),
    sudo ("nopasswd", "password": it asks for one, or none: not in sudoers).
    """
    uid = user.get("uid", 2001)
    gid = user.get("gid", uid)
    home = pathlib.Path("/home", name)
    secret = "*"
    if "password" in user:
        secret = command("perl", "-e", "print crypt($ARGV[0], q($6$testbed$))", user["password"])
    change_lines("/etc/passwd", {name: f"{name}:x:{uid}:{gid}::{home}:{user.get('shell', '/bin/bash')}"})
    change_lines("/etc/shadow", {name: f"{name}:{secret}:19000:0:99999:7:::"})
    if gid not in {group.gr_gid for group in grp.getgrall()}:
        change_lines("/etc/group", {name: f"{name}:x:{gid}:"})
    for group in user.get("groups", ()):
        entry = grp.getgrnam(group)
        members = sorted({*entry.gr_mem, name})
        change_lines("/etc/group", {group: f"{group}:x:{entry.gr_gid}:{','.join(members)}"})
    if user.get("key", True):
        write(home / ".ssh/authorized_keys", client_key, 0o600)
        for path in home, home / ".ssh", home / ".ssh/authorized_keys":
            os.chown(path, uid, gid)
    if "sudo" in user:
        if not shutil.which("sudo", path=PATH):
            raise Problem(f"user {name}: sudo is not installed on this machine")
        tag = {"nopasswd": "NOPASSWD:", "password": ""}[user["sudo"]]
        write(f"/etc/sudoers.d/{name}", f"{name} ALL=(ALL:ALL) {tag} ALL\n", 0o440)


def add_device(path: pathlib.Path, mode: str) -> None:
    bits, _, owner = mode.partition(" ")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        os.mknod(path, stat.S_IFCHR, os.stat("/dev/null").st_rdev)
    path.chmod(int(bits, 8))
    if owner:
        give(path, owner)


def proc_path(name: str) -> pathlib.Path:
    return pathlib.Path("/proc/sys", *name.split("."))


def write_proc(name: str, value: str) -> None:
    proc_path(name).write_text(value)


def set_sysctl(name: str, value: str) -> None:
    if name.startswith(PER_NAMESPACE):
        try:
            return write_proc(name, value)
        except (FileNotFoundError, PermissionError):
            pass  # not per namespace after all
    return cover(proc_path(name), value + "\n")


def cover(path: pathlib.Path, text: str) -> None:
    """Shows text at path, in /proc or /sys, to this host only."""
    own_value = pathlib.Path("/run/testbed", str(path).strip("/").replace("/", "."))
    if own_value.exists():
        own_value.write_text(text)  # mounted there before
    elif path.exists():
        write(own_value, text)
        mount(own_value, path, None, MS_BIND)
    else:
        try:
            write(path, text)
        except OSError:
            make_writable(next(parent for parent in path.parents if parent.exists()))
            write(path, text)


def make_writable(directory: pathlib.Path) -> None:
    """Puts a tmpfs over a directory of /proc or /sys, with all its entries mounted again."""
    old = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    entries = list(os.scandir(directory))
    mount("tmpfs", directory, "tmpfs", 0, "mode=755")
    for entry in entries:
        target = directory / entry.name
        if entry.is_symlink():
            target.symlink_to(os.readlink(entry.name, dir_fd=old))
            continue
        target.mkdir() if entry.is_dir() else target.touch()
        mount(f"/proc/self/fd/{old}/{entry.name}", target, None, MS_BIND | MS_REC)
    os.close(old)


def set_limits(pid: int, limits: dict[str, Sequence[int]]) -> None:
    for name, (soft, hard) in limits.items():
        resource.prlimit(pid, getattr(resource, "RLIMIT_" + name.upper()), (soft, hard))


def set_clock(seconds: float) -> None:
    library = pathlib.Path(f"/usr/local/lib/testbed-clock{seconds}.so")
    define = f"-DNANOSECONDS={round(seconds * 10**9)}LL"
    command("cc", "-O1", "-shared", "-fPIC", define, "-o", str(library), "-x", "c", "-", stdin=CLOCK)
    write("/etc/ld.so.preload", f"{library}\n")


def make_noise(before: str, after: str) -> None:
    for user in pwd.getpwall():
        if user.pw_uid != 0 and not pathlib.Path(user.pw_dir, ".ssh/authorized_keys").exists():
            continue
        bye = f"echo {shlex.quote(after)}"
        texts = {
            ".bashrc": f"echo {shlex.quote(before)}\ntrap {shlex.quote(bye)} EXIT\n",
            ".cshrc": f"echo {shlex.quote(before)}\n",
            ".config/fish/config.fish": f"echo {shlex.quote(before)}\nfunction bye --on-event fish_exit\n {bye}\nend\n",
        }
        for name, text in texts.items():
            write(pathlib.Path(user.pw_dir, name), text)


def hide_python() -> None:
    for directory in PYTHON_DIRECTORIES:
        with contextlib.suppress(FileNotFoundError):
            for entry in list(os.scandir(directory)):
                if PYTHONS.fullmatch(entry.name):
                    pathlib.Path(entry.path).unlink(missing_ok=True)


def fill_disk() -> None:
    """Shrinks the memory behind /, /tmp, /run and /root to what is in it now."""
    size = os.statvfs("/tmp")
    used = max(1, size.f_blocks - size.f_bfree) * size.f_frsize
    mount("none", "/tmp", None, MS_REMOUNT, f"size={used}")


# ------------------------------------------------------------------ the machine


def plan_hosts(args: argparse.Namespace, overrides: dict[str, Overrides]) -> list[Host]:
    """The hosts to make, each a dict with every key that host_main needs."""
    overrides = dict(overrides)
    subnet = ipaddress.ip_network(args.subnet)
    common = overrides.pop("*", {})
    hosts = []
    for i in range(1, args.count + 1):
        name = f"{args.name}{i:04d}"
        base = {"name": name, "address": str(subnet[FIRST + i]), "mac": f"02:73:62:00:{i >> 8:02x}:{i & 255:02x}"}
        hosts.append(complete(base, merge(common, overrides.pop(name, {}))))
    if overrides:
        raise Problem(f"no such host: {', '.join(sorted(overrides))}")
    return hosts


def complete(base: Host, parameters: Overrides) -> Host:
    """A host with all defaults and, kept apart for `renew`, what it was given."""
    unknown = sorted(set(parameters) - set(DEFAULTS))
    if unknown:
        raise Problem(f"{base['name']}: unknown override {', '.join(unknown)}")
    fault = parameters.get("fault", "")
    if fault and fault not in FAULTS:
        raise Problem(f"{base['name']}: fault is one of {', '.join(FAULTS)}")
    return {**base, **merge(DEFAULTS, parameters, FAULTS.get(fault, {})), "given": parameters}


def make_keys(directory: pathlib.Path, hosts: list[Host], shared_key: bool) -> None:
    keys = directory / "keys"
    keys.mkdir()
    pairs = [directory / "id_ed25519", keys / "other"]
    pairs += [keys / "shared"] if shared_key else [keys / host["name"] for host in hosts]
    running: list[subprocess.Popen[bytes]] = []
    for path in pairs:
        running.append(
            subprocess.Popen(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path)])
        )
        if len(running) > 8:
            running.pop(0).wait()
    for process in running:
        process.wait()
    for host in hosts:
        host["key_file"] = str(keys / ("shared" if shared_key else host["name"]))
        host["key"] = pathlib.Path(host["key_file"]).read_text()


def known_key(host: Host) -> str:
    path = pathlib.Path(host["key_file"])
    displayed = path.with_name("other") if host["fault"] == "wrong-key" else path
    return " ".join(displayed.with_suffix(".pub").read_text().split()[:2])


def spawn(host: Host, shared: dict[str, Any]) -> None:
    """Forks a host; its pid 1 waits for the network before it goes on."""
    if os.fork():
        return
    try:
        os.close(shared["start_w"])
        call("unshare", CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.close(shared["pid_w"])
            os.read(shared["start_r"], 1)
            host_main(host, shared)
        os.write(shared["pid_w"], f"{host['name']} {pid}\n".encode())
    except BaseException as error:  # noqa: BLE001 - a forked child must end here, whatever happened
        os.write(shared["status_w"], f"{host['name']}: {error}\n".encode()[:4000])
    os._exit(0)


def read_all(fd: int) -> str:
    with open(fd) as file:
        return file.read()


def start_time(pid: int) -> int:
    """When a process started, in clock ticks: with the pid, it names one process for good."""
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def listening(pid: int) -> bool:
    with open(f"/proc/{pid}/net/tcp") as file:
        return any(line.split()[1].endswith(":0016") and line.split()[3] == "0A" for line in list(file)[1:])


def up(args: argparse.Namespace) -> None:
    directory = pathlib.Path(args.dir)
    if directory.exists():
        raise Problem(f"{directory} exists: run `down` first, or give another --dir")
    if not 0 < args.count <= LIMIT:
        raise Problem(f"1 to {LIMIT} hosts")
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,9}", args.name):
        raise Problem("--name is a small letter and at most nine small letters, digits and dashes")
    hosts = plan_hosts(args, json.loads(pathlib.Path(args.overrides).read_text()) if args.overrides else {})
    subnet = ipaddress.ip_network(args.subnet)
    directory.mkdir(mode=0o700, parents=True)
    for name in "mnt", "plan", "share":
        (directory / name).mkdir()
    state: dict[str, Any] = {
        "hub": args.hub or args.name + "hub",
        "name": args.name,
        "owner": [args.owner, start_time(args.owner)] if args.owner else None,
        "hosts": [],
        "shared": {
            "dir": str(directory),
            "shm": args.shm,
            "bits": subnet.prefixlen,
            "hub_address": str(subnet[1]),
            "hub_mac": "02:73:62:ff:00:01",
            "neighbours": [(h["address"], h["mac"]) for h in hosts] if len(hosts) > FEW else [],
        },
    }
    save(directory, state)
    shared = state["shared"]
    try:
        make_keys(directory, hosts, args.host_keys == "shared")
        shared["client_key"] = (directory / "id_ed25519.pub").read_text()
        shared["hosts"] = "127.0.0.1 localhost\n" + "".join(f"{h['address']} {h['name']}\n" for h in hosts)
        write_client_files(directory, hosts, state)
        make_hub(state["hub"], shared)
        start_hosts(directory, hosts, state)
    except BaseException:
        down(args)
        raise


def write_client_files(directory: pathlib.Path, hosts: list[Host], state: dict[str, Any]) -> None:
    write(directory / "hosts", state["shared"]["hosts"])
    write(directory / "inventory", "".join(f"{h['name']} {h['address']}\n" for h in hosts))
    network = ".".join(state["shared"]["hub_address"].split(".")[:2])
    config = f"""\
Host {state["name"]}* {network}.*
    User root
    IdentityFile {directory}/id_ed25519
    IdentitiesOnly yes
    UserKnownHostsFile {directory}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    BatchMode yes
"""
    write(directory / "ssh_config", config)


def make_hub(hub: str, shared: dict[str, Any]) -> None:
    command("ip", "netns", "add", hub)
    off = [f"net.ipv6.conf.{which}.disable_ipv6=1" for which in ("all", "default")]
    command("ip", "netns", "exec", hub, "sysctl", "-qw", *off)
    commands = f"""\
link set lo up
link add br0 address {shared["hub_mac"]} type bridge mcast_snooping 0
addr add {shared["hub_address"]}/{shared["bits"]} dev br0
link set br0 up
"""
    command("ip", "-n", hub, "-batch", "-", stdin=commands)


def start_hosts(directory: pathlib.Path, hosts: list[Host], state: dict[str, Any]) -> None:
    """Makes hosts and enters them into the state, in place of those of the same names."""
    shared, hub = dict(state["shared"]), state["hub"]
    for host in hosts:
        write(directory / "plan" / f"{host['name']}.json", json.dumps(host))
        share = directory / "share" / host["name"]
        shutil.rmtree(share, ignore_errors=True)
        if host["share"]:
            share.mkdir()
    for name in "start", "pid", "status":
        shared[name + "_r"], shared[name + "_w"] = os.pipe()
    for host in hosts:
        spawn(host, shared)
    for _ in hosts:  # each spawn left one short-lived child
        os.wait()
    os.close(shared["pid_w"])
    pids = dict(line.split() for line in read_all(shared["pid_r"]).splitlines())
    created = [(host, int(pids[host["name"]])) for host in hosts if host["name"] in pids]
    kept = {host["name"]: host for host in state["hosts"]}
    for host, pid in created:
        kept[host["name"]] = {key: host[key] for key in ("name", "address", "fault")}
        kept[host["name"]] |= {"pid": pid, "start": start_time(pid), "known": known_key(host)}
    state["hosts"] = list(kept.values())
    save(directory, state)
    # Fixed neighbours and forwarding entries, here and in `host_network`: 1000 hosts neither overflow the machine's
    # neighbour table (net.ipv4.neigh.default.gc_thresh3 is one for all namespaces) nor flood the bridge.
    links = "".join(
        f"link add {h['name']} type veth peer name eth0 address {h['mac']} netns {pid}\n"
        f"link set {h['name']} master br0 up\n"
        f"neigh replace {h['address']} lladdr {h['mac']} dev br0 nud permanent\n"
        for h, pid in created
    )
    command("ip", "-n", hub, "-batch", "-", stdin=links)
    entries = "".join(f"fdb replace {h['mac']} dev {h['name']} master static\n" for h, pid in created)
    command("bridge", "-n", hub, "-batch", "-", stdin=entries)
    os.close(shared["start_w"])
    os.close(shared["status_w"])
    problems = read_all(shared["status_r"])
    if problems or len(created) < len(hosts):
        raise Problem("hosts that did not start:\n" + problems)
    deadline = time.monotonic() + 60
    for host, pid in created:
        while host["fault"] != "refuse" and not listening(pid):
            if time.monotonic() > deadline:
                raise Problem(f"{host['name']}: sshd does not listen")
            time.sleep(0.005)


def save(directory: pathlib.Path, state: dict[str, Any]) -> None:
    known_value = "".join(f"{h['name']},{h['address']} {h['known']}\n" for h in state["hosts"])
    write(directory / "known_hosts", known_value)
    new = directory / "state.new"
    write(new, json.dumps(state, indent=1))
    new.rename(directory / "state.json")


def load(directory: str | pathlib.Path) -> dict[str, Any]:
    path = pathlib.Path(directory, "state.json")
    if not path.exists():
        raise Problem(f"no hosts are up (no {path})")
    state: dict[str, Any] = json.loads(path.read_text())
    return state


def alive(pid: int, start: int) -> bool:
    """Does the process that started then still run? One that nobody has waited for does not."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX" and start_time(pid) == start
    except (FileNotFoundError, ProcessLookupError):
        return False


def pid_of(state: dict[str, Any], name: str) -> int:
    for host in state["hosts"]:
        if host["name"] == name and alive(host["pid"], host["start"]):
            return int(host["pid"])
    raise Problem(f"{name} is not up")


def end(hosts: Iterable[Host]) -> None:
    """Kills hosts and waits until nothing of them runs any more."""
    ending = select.poll()
    remaining = set()
    for host in hosts:
        try:
            pidfd = os.pidfd_open(host["pid"])
        except ProcessLookupError:
            continue
        if alive(host["pid"], host["start"]):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            ending.register(pidfd, select.POLLIN)
            remaining.add(pidfd)
        else:
            os.close(pidfd)
    deadline = time.monotonic() + 60
    while remaining and time.monotonic() < deadline:
        for pidfd, _ in ending.poll(1000):
            ending.unregister(pidfd)
            os.close(pidfd)
            remaining.discard(pidfd)


def renew(args: argparse.Namespace) -> None:
    directory, state = pathlib.Path(args.dir), load(args.dir)
    extra: Overrides = json.load(sys.stdin)
    entries = {host["name"]: host for host in state["hosts"]}
    hosts = []
    for name in args.hosts:
        if name not in entries:
            raise Problem(f"no such host: {name}")
        old = json.loads((directory / "plan" / f"{name}.json").read_text())
        base = {key: old[key] for key in ("name", "address", "mac", "key", "key_file")}
        first = old.get("first", old["given"])
        hosts.append({**complete(base, merge(first, extra)), "first": first})
    end(entries[name] for name in args.hosts)
    for name in args.hosts:  # the kernel removes them too, but some time later
        subprocess.run(["ip", "-n", state["hub"], "link", "delete", name], stderr=subprocess.DEVNULL)
    start_hosts(directory, hosts, state)


def change(args: argparse.Namespace) -> None:
    state = load(args.dir)
    expected: Overrides = json.load(sys.stdin)
    wrong = sorted(set(expected) - (set(DEFAULTS) - NOT_LIVE))
    if wrong:
        raise Problem(f"cannot be changed in a running host: {', '.join(wrong)}")
    for name in args.hosts:
        pid = pid_of(state, name)
        set_limits(pid, expected.get("limits", {}))
        child = os.fork()
        if child == 0:
            try:
                join(pid)
                apply(expected, state["shared"]["client_key"])
            except BaseException as error:  # noqa: BLE001 - a forked child must end here, whatever happened
                print(f"testbed: {name}: {error}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            raise SystemExit(1)


def join(pid: int) -> None:
    """Moves this process into the namespaces of a host."""
    spaces = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in ("net", "uts", "ipc", "mnt")]
    for space in spaces:
        call("setns", space, 0)
        os.close(space)
    os.chdir("/")


def down(args: argparse.Namespace) -> None:
    state = load(args.dir)
    end(state["hosts"])
    if pathlib.Path("/run/netns", state["hub"]).exists():
        command("ip", "netns", "del", state["hub"])
    shutil.rmtree(args.dir)


def show(args: argparse.Namespace) -> None:
    hosts = load(args.dir)["hosts"]
    for host in hosts:
        host["state"] = "up" if alive(host["pid"], host["start"]) else "gone"
    if args.json:
        print(json.dumps(hosts, indent=1))
        return
    for host in hosts:
        print(host["name"], host["address"], host["pid"], host["state"], host["fault"])


def hub_argv(directory: str | pathlib.Path, hub: str, argv: Sequence[str]) -> list[str]:
    """The command line that runs argv in the hub's network, with the hosts' names in its /etc/hosts."""
    script = 'mount --bind "$0" /etc/hosts && exec "$@"'
    private = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, f"{directory}/hosts"]
    return ["nsenter", f"--net=/run/netns/{hub}", *private, *argv]


def enter_argv(pid: int, argv: Sequence[str]) -> list[str]:
    """The command line that runs argv in the host whose pid 1 is ``pid``."""
    return ["nsenter", "-t", str(pid), "-m", "-u", "-i", "-n", "-p", "--", *argv]


def run_in_hub(args: argparse.Namespace) -> None:
    argv = hub_argv(args.dir, load(args.dir)["hub"], args.command)
    os.execvp(argv[0], argv)


def enter(args: argparse.Namespace) -> None:
    argv = enter_argv(pid_of(load(args.dir), args.host), args.command)
    os.execvp(argv[0], argv)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--dir", default="/tmp/sb", help="where the files go (default %(default)s)")
    verbs = parser.add_subparsers(required=True, metavar="up|list|exec|enter|change|renew|down")
    verb = verbs.add_parser("up", help="make N hosts")
    verb.add_argument("count", type=int, metavar="N")
    verb.add_argument("--name", default="sb", help="what the hosts' names begin with (default %(default)s)")
    verb.add_argument("--hub", help="name of the hub's network namespace (default NAMEhub)")
    verb.add_argument("--subnet", default="10.77.0.0/16", help="a /16 (default %(default)s)")
    verb.add_argument("--shm", default="64m", help="size of /dev/shm (default %(default)s)")
    verb.add_argument("--host-keys", choices=["each", "shared"], default="each")
    verb.add_argument("--overrides", metavar="FILE.json")
    verb.add_argument("--owner", type=int, metavar="PID", help="written down: whose testbed this is")
    verb.set_defaults(run=up)
    verb = verbs.add_parser("list", help="the hosts, their addresses and pids")
    verb.add_argument("--json", action="store_true")
    verb.set_defaults(run=show)
    verb = verbs.add_parser("exec", help="run a command where the hosts can be reached")
    verb.add_argument("command", nargs="+")
    verb.set_defaults(run=run_in_hub)
    verb = verbs.add_parser("enter", help="run a command inside a host, without SSH")
    verb.add_argument("host")
    verb.add_argument("command", nargs="+")
    verb.set_defaults(run=enter)
    for name, function, text in (
        ("change", change, "lay overrides (JSON on stdin) over running hosts"),
        ("renew", renew, "make hosts anew, with more overrides (JSON on stdin) or, given {}, as at first"),
    ):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("hosts", nargs="+", metavar="HOST")
        verb.set_defaults(run=function)
    verbs.add_parser("down", help="end the hosts").set_defaults(run=down)
    args = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("testbed: must be root")
    try:
        args.run(args)
    except Problem as problem:
        raise SystemExit(f"testbed: {problem}") from None


if __name__ == "__main__":
    main()
