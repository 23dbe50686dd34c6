"""Reads a host's settings from ssh itself (``ssh -G``), with as few calls as possible."""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path

import msgspec

from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.transport import transport_error
from doctor.transport.local import Children, run_command
from doctor.transport.options import SshOptions
from doctor.transport.ssh import config as ssh_config
from doctor.transport.ssh import config_files
from doctor.transport.ssh.config import SshHostConfig, Target
from doctor.transport.ssh.config_files import own_account
from doctor.transport.ssh.known_hosts import matches_patterns

_MAX_CONCURRENT = 16
_QUERY_TIMEOUT = 30.0
"""Seconds for one ``ssh -G``: a ``Match exec`` may run anything."""


Values = dict[str, list[str]]


class _PatternGroup:
    """Hosts that match the same patterns of the configuration: resolved one by one until two results agree."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.first: tuple[str, Values] | None = None
        self.agreed = False
        self.differ = False


class Resolver:
    """Settings of hosts and jump hosts, from many threads at once."""

    def __init__(self, options: SshOptions, children: Children, warnings: list[str]) -> None:
        self._options, self._children = options, children
        self._slots = threading.BoundedSemaphore(_MAX_CONCURRENT)
        self._groups: dict[tuple[object, ...], _PatternGroup] = {}
        self._resolved: dict[str, SshHostConfig] = {}
        self._lock = threading.Lock()
        self._ssh = shutil.which("ssh")
        texts = self._texts() if self._ssh else None
        self._patterns = None if texts is None else config_files.patterns(texts)
        self._globs = sorted(word for word in self._patterns or () if re.search(r"[*?]", word))
        if not self._ssh:
            warnings.append(
                "ssh is not installed on this machine: paramiko reads its configuration, with fewer settings"
            )

    def resolve(self, host: str) -> SshHostConfig:
        """A host's settings, the run's own options laid over the configuration. Raises: Unreached."""
        settings = self._resolved.get(host)
        if settings is None:
            settings = self._resolved[host] = self._with_address(host)
        return settings

    def _with_address(self, host: str) -> SshHostConfig:
        target = ssh_config.target_of(host, self._options)
        settings = self._resolve(target, is_destination=True)
        settings = msgspec.structs.replace(settings, login=ssh_config.login_words(target, self._options))
        address = self._options.addresses.get(target.name)
        if address and settings.name == target.name and not (settings.jumps or settings.proxy):
            return msgspec.structs.replace(settings, name=address)
        return settings

    def resolve_hop(self, hop: str) -> SshHostConfig:
        """A jump host's settings: as with ssh, the hosts' options do not apply to it. Raises: Unreached."""
        return self._resolve(ssh_config.parse_hop(hop), is_destination=False)

    def _resolve(self, target: Target, is_destination: bool) -> SshHostConfig:
        values = self._values(target, is_destination) if self._ssh else self._read_with_paramiko(target, is_destination)
        if is_destination and self._options.identity:  # ssh -G puts them last
            identities = [*self._options.identity, *values.get("identityfile", ())]
            values = {**values, "identityfile": list(dict.fromkeys(identities))}
        return ssh_config.host_config(target.name, values)

    def _values(self, target: Target, is_destination: bool) -> Values:
        if self._patterns is None:
            return self._query_ssh(target, is_destination)
        literal = target.name if target.name in self._patterns else ""
        globs = tuple(matches_patterns(target.name, (glob,)) for glob in self._globs)
        with self._lock:
            group = self._groups.setdefault((is_destination, target.user, target.port, literal, globs), _PatternGroup())
        with group.lock:
            if not group.differ:
                return self._from_group(group, target, is_destination)
        return self._query_ssh(target, is_destination)

    def _from_group(self, group: _PatternGroup, target: Target, is_destination: bool) -> Values:
        if group.agreed and group.first:
            return _renamed(*group.first, target.name)
        answer = self._query_ssh(target, is_destination)
        if group.first is None:
            group.first = target.name, answer
        elif group.first[0] != target.name:
            group.agreed = _renamed(*group.first, target.name) == answer
            group.differ = not group.agreed
        return answer

    def _query_ssh(self, target: Target, is_destination: bool) -> Values:
        with self._slots:
            result = run_command(self._children, self._argv(target, is_destination), b"", _QUERY_TIMEOUT, 1 << 20)
        if result.code:
            reason = strip_control_chars(result.err) or filled("exit status {0}", result.code)
            raise transport_error(
                "error", filled("ssh rejects its configuration: {0}", reason), f"ssh -G {target.name}"
            )
        return ssh_config.parse_values(result.out.decode("utf-8", "replace"))

    def _argv(self, target: Target, is_destination: bool) -> list[str]:
        options = self._options
        argv = [str(self._ssh), "-G", "-T"]
        if options.config:
            argv += ["-F", options.config]
        user, port = (
            target.user or (options.user if is_destination else ""),
            target.port or (options.port if is_destination else 0),
        )
        argv += ["-l", user] if user else []
        argv += ["-p", str(port)] if port else []
        if is_destination:
            argv += [word for path in options.identity for word in ("-i", path)]
            argv += [word for setting in options.settings for word in ("-o", setting)]
        return [*argv, "--", target.name]

    def _texts(self) -> list[str] | None:
        home = Path(own_account().pw_dir)
        chosen = self._options.config
        if chosen:
            paths = [] if chosen == "none" else [Path(chosen)]
            return config_files.config_texts(paths, home, home / ".ssh") if paths else [""]
        mine = config_files.config_texts([home / ".ssh" / "config"], home, home / ".ssh")
        system = config_files.config_texts([Path("/etc/ssh/ssh_config")], home, Path("/etc/ssh"))
        return None if mine is None or system is None else [*mine, *system, ""]

    def _read_with_paramiko(self, target: Target, is_destination: bool) -> Values:
        """What paramiko's reader makes of the configuration."""
        from doctor.transport.ssh.lean_paramiko import allow_match_exec, paramiko

        allow_match_exec()
        options = self._options
        config = paramiko.SSHConfig()
        chosen = options.config or str(Path(own_account().pw_dir, ".ssh", "config"))
        try:
            if chosen != "none" and (options.config or Path(chosen).exists()):
                config = paramiko.SSHConfig.from_path(chosen)
            looked_up = config.lookup(target.name)
        except Exception as error:  # noqa: BLE001 -- paramiko's reader raises what it likes on a line it cannot read
            raise transport_error("error", filled("the ssh configuration could not be read: {0}", error)) from None
        values = {key: list(value) if isinstance(value, list) else [value] for key, value in looked_up.items()}
        for keyword, value in self._overrides(target, is_destination):
            values[keyword] = [value] if keyword != "identityfile" else [*options.identity]
        return ssh_config.with_defaults(values)

    def _overrides(self, target: Target, is_destination: bool) -> list[tuple[str, str]]:
        options = self._options if is_destination else SshOptions()
        overrides = [("user", target.user or options.user), ("port", str(target.port or options.port or ""))]
        overrides += [("identityfile", path) for path in options.identity]
        for setting in options.settings:
            keyword, _, value = setting.replace("=", " ", 1).partition(" ")
            overrides.append((keyword.lower(), value.strip()))
        return [(keyword, value) for keyword, value in overrides if value]


def _renamed(old: str, values: Values, new: str) -> Values:
    """The answer for another host of the same kind."""
    values = dict(values)
    for keyword, spelling in (("host", (old, new)), ("hostname", (old.lower(), new.lower()))):
        if values.get(keyword) == [spelling[0]]:
            values[keyword] = [spelling[1]]
    return values
