"""Test hosts as tests use them: a `Fleet` is made, looked into, broken for the time of a `with`, and ended.

How each host is made, and every override, is in `testbed`.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tests import preloaded
from tests.hosts import testbed, testbed_server
from tests.hosts.testbed import Overrides, merge

__all__ = ["SSH", "Fleet", "Overrides", "merge", "sweep", "unavailable"]

BASE = pathlib.Path(tempfile.gettempdir(), "doctor-hosts")
INSIDE = {"PATH": testbed.PATH, "HOME": "/root", "LANG": "C.UTF-8", "USER": "root", "LOGNAME": "root"}
SSH = ("ssh", "-o", "KexAlgorithms=curve25519-sha256")  # the default one costs five times the time
SECONDS = 240.0
"""A guard against commands that hang, also on a machine that is busy: pytest ends most tests before."""
numbers = itertools.count(1)


def unavailable() -> str:
    """Why there can be no test hosts on this machine, or the empty string."""
    if not sys.platform.startswith("linux"):
        return "test hosts need Linux"
    if os.geteuid() != 0:
        return "test hosts need root"
    needed = ("ip", "nft", "nsenter", "unshare", "ssh-keygen", "/usr/sbin/sshd", "cc", "sudo")
    absent = [name for name in needed if not shutil.which(name)]
    if absent:
        return f"test hosts need {', '.join(absent)} (Debian packages: {' '.join(testbed.DEBIAN_PACKAGES)})"
    script = "mount -t tmpfs none /mnt && mkdir /mnt/a /mnt/b /mnt/c && mount -t overlay none /mnt/c -o "
    script += "lowerdir=/,upperdir=/mnt/a,workdir=/mnt/b && mknod /mnt/n c 1 3 && : >/mnt/n"
    spaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--uts", "--ipc", "sh", "-c", script]
    tried = subprocess.run(spaces, capture_output=True, text=True)
    if tried.returncode:
        return f"namespaces or overlayfs are not available: {tried.stderr.strip()}"
    return ""


def run_testbed(directory: pathlib.Path, *argv: str, parameters: Overrides | None = None) -> None:
    """Runs the testbed's own command. Not in this process: it forks, and test runners have threads."""
    status, errors = testbed_server.run(["--dir", str(directory), *argv], json.dumps(parameters or {}))
    if status:
        raise testbed.Problem(errors.strip() or f"testbed {argv[0]} ended with {status}")


def sweep() -> None:
    """Ends the fleets of test runs that were killed before they could do it themselves."""
    BASE.mkdir(mode=0o700, exist_ok=True)
    with open(BASE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for directory in BASE.iterdir():
            with contextlib.suppress(FileNotFoundError, testbed.Problem):  # it is being made, or being ended
                owner = testbed.load(directory)["owner"]
                if owner and not testbed.alive(*owner):
                    run_testbed(directory, "down")


class Fleet:
    """Test hosts that are up.

    hosts: their names, in order. addresses: by name. directory: the testbed's files.
    ssh_config, known_hosts, inventory: files for a client that runs in the hub (see `run`).
    """

    def __init__(self, directory: pathlib.Path) -> None:
        state = testbed.load(directory)
        self.directory = directory
        self.hub: str = state["hub"]
        self.addresses: dict[str, str] = {host["name"]: host["address"] for host in state["hosts"]}
        self.hosts = tuple(self.addresses)
        self.ssh_config = directory / "ssh_config"
        self.known_hosts = directory / "known_hosts"
        self.inventory = directory / "inventory"
        self._touched: set[str] = set()
        self._broken: set[str] = set()
        self._pids: dict[str, int] = {}

    @classmethod
    def up(
        cls,
        count: int,
        overrides: Mapping[str, Overrides] | None = None,
        *,
        name: str = "sb",
        subnet: str = "10.77.0.0/16",
        shm: str = "64m",
        host_keys: str = "shared",
    ) -> Fleet:
        """Makes ``count`` hosts; ``overrides`` has one entry a host, by name, and "*" for all.

        They end with `down`, or when this process ends.
        """
        BASE.mkdir(mode=0o700, exist_ok=True)
        label = f"{os.getpid()}-{next(numbers)}"
        directory = BASE / label
        options = [f"--name={name}", f"--subnet={subnet}", f"--shm={shm}", f"--host-keys={host_keys}"]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(overrides or {}, file)
            file.flush()
            whose = [f"--hub=doctor-{label}", f"--owner={os.getpid()}", f"--overrides={file.name}"]
            run_testbed(directory, "up", str(count), *options, *whose)
        fleet = cls(directory)
        atexit.register(fleet.down)
        return fleet

    def down(self) -> None:
        """Ends all hosts and removes every trace of them. Can be called twice."""
        atexit.unregister(self.down)
        self._touched.clear()
        if self.directory.exists():
            run_testbed(self.directory, "down")

    # ---- running things

    def argv(self, argv: Sequence[str | os.PathLike[str]]) -> list[str]:
        """The command line that runs ``argv`` in the hub, where the hosts can be reached by name."""
        return testbed.hub_argv(self.directory, self.hub, [os.fspath(word) for word in argv])

    def run(self, argv: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.CompletedProcess[Any]:
        """Runs a command in the hub, as subprocess.run does; text is captured, and it ends in `SECONDS`.

        `doctor` is forked from a process that has loaded it, where that makes no difference: see `tests.preloaded`.
        """
        if not {"stdout", "stderr", "capture_output"} & set(options):
            options["capture_output"] = True
        options = {"text": True, "timeout": SECONDS, **options}
        hub = preloaded.Hub(f"/run/netns/{self.hub}", f"{self.directory}/hosts")
        return preloaded.run(argv, hub=hub, otherwise=self.argv(argv), **options)

    def ssh(self, host: str, command: str, **options: Any) -> subprocess.CompletedProcess[Any]:
        """Runs a command on a host over SSH, as root, or as USER for ``USER@HOST``."""
        return self.run([*SSH, "-F", self.ssh_config, host, command], **options)

    def enter(self, host: str, command: str | Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
        """Runs sh text, or an argument list, inside a host without SSH, as root.

        Raises CalledProcessError unless check=False. What stays behind in the background must not keep stdout.
        """
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        if not {"stdout", "stderr", "capture_output"} & set(options):
            options["capture_output"] = True
        settings = {"text": True, "timeout": SECONDS, "check": True, "env": INSIDE, **options}
        return subprocess.run(self.enter_argv(host, argv), **settings)

    def enter_argv(self, host: str, argv: Sequence[str]) -> list[str]:
        """The command line of `enter`."""
        return testbed.enter_argv(self._pid(host), argv)

    def read(self, host: str, path: str) -> str:
        return str(self.enter(host, ["cat", path]).stdout)

    def _pid(self, host: str) -> int:
        if host not in self._pids:
            self._pids[host] = testbed.pid_of(testbed.load(self.directory), host)
        return self._pids[host]

    # ---- changing hosts

    def change(self, host: str, **overrides: Any) -> None:
        """Lays overrides over a running host: sysctl, files, limits, clock, ... (see `testbed`)."""
        self._touched.add(host)
        run_testbed(self.directory, "change", host, parameters=overrides)

    def write(self, host: str, path: str, text: str, mode: str = "") -> None:
        """Writes a file on a running host, in /proc and /sys too."""
        if mode or path.startswith(("/proc/", "/sys/")):
            self.change(host, files={path: {"text": text, "mode": mode or "644"}})
            return
        self._touched.add(host)
        self.enter(host, ["sh", "-c", 'mkdir -p "${1%/*}" && cat >"$1"', "sh", path], input=text)

    def remove(self, host: str, path: str) -> None:
        """Removes a file or a whole directory from a running host."""
        self._touched.add(host)
        self.enter(host, ["rm", "-r", "--", path])

    def alter(self, host: str, sh: str) -> None:
        """Runs sh text that changes a running host."""
        self._touched.add(host)
        self.enter(host, sh)

    def sysctl(self, host: str, name: str, value: str | int) -> None:
        """Sets a sysctl of a running host, for this host alone even where the kernel has one for all."""
        self.change(host, sysctl={name: value})

    def nft(self, host: str, text: str) -> None:
        """Loads nftables rules into a running host."""
        self.change(host, nft=text)

    def renew(self, *hosts: str, **overrides: Any) -> None:
        """Ends hosts, with all that runs in them, and makes them anew: as they were at first, or with more overrides.

        Names, addresses and keys stay. It takes about 0.1 s, so it is the way to undo whatever was done to a host.
        """
        run_testbed(self.directory, "renew", *hosts, parameters=overrides)
        self._pids.clear()
        self._touched.difference_update(hosts)
        if overrides:
            self._touched.update(hosts)

    def mend(self) -> None:
        """Makes every host anew that a method of this class has changed since, but for those that are `broken`."""
        touched = self._touched - self._broken
        if touched:
            self.renew(*sorted(touched))

    @contextlib.contextmanager
    def broken(self, hosts: str | Iterable[str], sh: str = "", **overrides: Any) -> Iterator[None]:
        """Breaks hosts for the time of a ``with``; then they are made anew, so nothing that happened to them stays.

        ``overrides`` are laid over the running hosts where that can be done, else over new ones; then the script
        ``sh`` runs in each. It may leave processes in the background; when it fails, so does the test. A host can be
        in one ``with`` at a time.
        """
        names = [hosts] if isinstance(hosts, str) else list(hosts)
        twice = self._broken & set(names)
        assert not twice, f"broken already: {', '.join(sorted(twice))}"
        self._broken.update(names)
        try:
            if set(overrides) & testbed.NOT_LIVE:
                self.renew(*names, **overrides)
            elif overrides:
                run_testbed(self.directory, "change", *names, parameters=overrides)
            for name in names if sh else ():
                # A file, for a pipe would be kept open by what the script leaves in the background.
                with tempfile.TemporaryFile("w+") as stream:
                    done = self.enter(name, sh, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL, check=False)
                    stream.seek(0)
                    assert done.returncode == 0, f"{name}: exit status {done.returncode}: {stream.read()}"
            yield
        finally:
            self._broken.difference_update(names)
            self.renew(*names)
