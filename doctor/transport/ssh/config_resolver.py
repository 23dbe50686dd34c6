"""Asks ssh itself what its configuration says of a host: ``ssh -G``, and as seldom as can be."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import threading
from pathlib import Path

from doctor.engine.sanitize import plain
from doctor.transport.messages import unreached
from doctor.transport.options import Options
from doctor.transport.process import Children, converse
from doctor.transport.ssh import config as ssh_config
from doctor.transport.ssh import config_files
from doctor.transport.ssh.config import Settings, Target
from doctor.transport.ssh.known_hosts import matches

_AT_ONCE = 16
_PATIENCE = 30.0
"""Seconds for one ``ssh -G``: a ``Match exec`` may run anything."""


Values = dict[str, list[str]]


class _Kin:
    """Hosts that fit the same patterns of the configuration: asked one by one until two answers agree."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.first: tuple[str, Values] | None = None
        self.agreed = False
        self.differ = False


class Resolver:
    """Settings of hosts and jump hosts, from many threads at once."""

    def __init__(self, options: Options, children: Children, warnings: list[str]) -> None:
        self._options, self._children = options, children
        self._slots = threading.BoundedSemaphore(_AT_ONCE)
        self._kin: dict[tuple[object, ...], _Kin] = {}
        self._lock = threading.Lock()
        self._ssh = shutil.which("ssh")
        texts = self._texts() if self._ssh else None
        self._patterns = None if texts is None else config_files.patterns(texts)
        self._globs = sorted(word for word in self._patterns or () if re.search(r"[*?]", word))
        if not self._ssh:
            warnings.append(
                "there is no ssh program here: the ssh configuration is read by paramiko, which knows fewer settings"
            )

    def of(self, host: str) -> Settings:
        """A host's settings, the run's own options laid over the configuration. Raises: Unreached."""
        return self._resolve(ssh_config.target(host), own=True)

    def of_hop(self, hop: str) -> Settings:
        """A jump host's settings: as with ssh, options for the hosts are not for the way to them. Raises: Unreached."""
        return self._resolve(ssh_config.hop(hop), own=False)

    def _resolve(self, target: Target, own: bool) -> Settings:
        values = self._values(target, own) if self._ssh else self._by_paramiko(target, own)
        if own and self._options.identity:  # ssh -G puts them last
            given = [*self._options.identity, *values.get("identityfile", ())]
            values = {**values, "identityfile": list(dict.fromkeys(given))}
        return ssh_config.settings(target.name, values)

    def _values(self, target: Target, own: bool) -> Values:
        if self._patterns is None:
            return self._ask(target, own)
        literal = target.name if target.name in self._patterns else ""
        globs = tuple(matches(target.name, (glob,)) for glob in self._globs)
        with self._lock:
            kin = self._kin.setdefault((own, target.user, target.port, literal, globs), _Kin())
        with kin.lock:
            if not kin.differ:
                return self._from_kin(kin, target, own)
        return self._ask(target, own)

    def _from_kin(self, kin: _Kin, target: Target, own: bool) -> Values:
        if kin.agreed and kin.first:
            return _renamed(*kin.first, target.name)
        answer = self._ask(target, own)
        if kin.first is None:
            kin.first = target.name, answer
        elif kin.first[0] != target.name:
            kin.agreed = _renamed(*kin.first, target.name) == answer
            kin.differ = not kin.agreed
        return answer

    def _ask(self, target: Target, own: bool) -> Values:
        with self._slots:
            said = converse(self._children, self._argv(target, own), b"", _PATIENCE, 1 << 20)
        if said.code:
            words = plain(said.err) or f"exit status {said.code}"
            raise unreached("error", f"ssh does not take its configuration: {words}", f"ssh -G {target.name}")
        return ssh_config.read(said.out.decode("utf-8", "replace"))

    def _argv(self, target: Target, own: bool) -> list[str]:
        options = self._options
        argv = [str(self._ssh), "-G", "-T"]
        if options.config:
            argv += ["-F", options.config]
        user, port = target.user or (options.user if own else ""), target.port or (options.port if own else 0)
        argv += ["-l", user] if user else []
        argv += ["-p", str(port)] if port else []
        if own:
            argv += [word for path in options.identity for word in ("-i", path)]
            argv += [word for setting in options.settings for word in ("-o", setting)]
        return [*argv, "--", target.name]

    def _texts(self) -> list[str] | None:
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)
        chosen = self._options.config
        if chosen:
            paths = [] if chosen == "none" else [Path(chosen)]
            return config_files.config_texts(paths, home, home / ".ssh") if paths else [""]
        mine = config_files.config_texts([home / ".ssh" / "config"], home, home / ".ssh")
        system = config_files.config_texts([Path("/etc/ssh/ssh_config")], home, Path("/etc/ssh"))
        return None if mine is None or system is None else [*mine, *system, ""]

    def _by_paramiko(self, target: Target, own: bool) -> Values:
        """What paramiko's reader makes of the configuration."""
        import paramiko

        options = self._options
        config = paramiko.SSHConfig()
        chosen = options.config or str(Path(pwd.getpwuid(os.getuid()).pw_dir, ".ssh", "config"))
        try:
            if chosen != "none" and (options.config or Path(chosen).exists()):
                config = paramiko.SSHConfig.from_path(chosen)
            found = config.lookup(target.name)
        except Exception as error:  # noqa: BLE001 -- paramiko's reader raises what it likes on a line it cannot read
            raise unreached("error", f"the ssh configuration could not be read: {error}") from None
        values = {key: list(value) if isinstance(value, list) else [value] for key, value in found.items()}
        for keyword, value in self._overrides(target, own):
            values[keyword] = [value] if keyword != "identityfile" else [*options.identity]
        return ssh_config.defaults(values)

    def _overrides(self, target: Target, own: bool) -> list[tuple[str, str]]:
        options = self._options if own else Options()
        given = [("user", target.user or options.user), ("port", str(target.port or options.port or ""))]
        given += [("identityfile", path) for path in options.identity]
        for setting in options.settings:
            keyword, _, value = setting.replace("=", " ", 1).partition(" ")
            given.append((keyword.lower(), value.strip()))
        return [(keyword, value) for keyword, value in given if value]


def _renamed(old: str, values: Values, new: str) -> Values:
    """The answer for another host of the same kind."""
    values = dict(values)
    for keyword, spelling in (("host", (old, new)), ("hostname", (old.lower(), new.lower()))):
        if values.get(keyword) == [spelling[0]]:
            values[keyword] = [spelling[1]]
    return values
