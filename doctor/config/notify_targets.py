"""Where a verdict is sent: ``--notify`` words, and the tables ``[notify.NAME]`` of doctor.toml that they name.

    [notify.oncall]
    url_file = "/root/.oncall-webhook"    # or url = "https://..."
    shape = "slack"                       # json, slack, feishu or dingtalk
    secret_file = "/root/.oncall-secret"  # the signing secret of a Feishu or DingTalk bot
    when = "fault"                        # or always

    [notify.pager]
    command = ["/usr/local/bin/page", "--team", "ml"]

    [notify.team]
    mail = ["ops@example.org"]

    [notify.node]
    kubernetes = ["condition", "event"]   # also label, taint

A table alone sends nothing: a file that lies in a folder by chance must not start programs.
"""

from __future__ import annotations

import re
import shlex
import urllib.parse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from doctor.config.file import TABLES, ConfigError, ConfigFile, read_tables
from doctor.engine.bounded_read import read_bounded
from doctor.engine.errors import did_you_mean
from doctor.engine.sanitize import printable_excerpt, quote
from doctor.engine.texts import filled

NOTIFY_TABLE = "notify"
SHAPES = ("json", "slack", "feishu", "dingtalk")
WHEN = ("fault", "always")
WAYS = ("command", "url", "mail", "kubernetes")
NODE_PARTS = ("condition", "event", "label", "taint")
"""What a verdict on a node of Kubernetes can be written as."""
MAX_SECONDS = 60
MAX_SECRET_BYTES = 4096
MAX_TARGETS = 16
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._%+-]{0,100}@[A-Za-z0-9][A-Za-z0-9.-]{0,200}\Z", re.ASCII)


class NotifyTarget(msgspec.Struct, frozen=True):
    """One receiver; exactly one of command, url, mail and node_parts is filled."""

    name: str
    """What a line about it says: the table's name, or the kind of the word. Never the URL."""
    command: tuple[str, ...] = ()
    url: str = ""
    """A secret: who has it may write to the receiver."""
    mail: tuple[str, ...] = ()
    shape: str = "json"
    secret: str = ""
    when: str = "fault"
    seconds: int = 10
    """For which sending may take."""
    http: bool = False
    """Also without TLS."""
    node_parts: tuple[str, ...] = ()
    """Of `NODE_PARTS`: the verdict is written to the nodes themselves."""


class WordError(ConfigError):
    """What is wrong is a word of ``--notify`` itself, and no file that it names."""


class _UnreadSecret(ConfigError):
    """A file that a word or a table names cannot be used."""


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    """A table as it is written."""

    command: list[str] = []
    url: str = ""
    url_file: str = ""
    mail: list[str] = []
    kubernetes: list[str] = []
    shape: str = "json"
    secret: str = ""
    secret_file: str = ""
    when: str = "fault"
    seconds: int = 10
    http: bool = False


def parse_notify(words: Iterable[str], settings: ConfigFile) -> tuple[NotifyTarget, ...]:
    """What the words of ``--notify`` name.

    Raises: WordError where a word is wrong, ConfigError where a file is; one line that holds no URL.
    """
    tables = notify_tables(settings)
    targets = tuple(_target_of(word, tables, settings) for word in words)
    if len(targets) > MAX_TARGETS:
        raise WordError(filled("--notify: {0} receivers; expected at most {1}", len(targets), MAX_TARGETS))
    return targets


def notify_tables(settings: ConfigFile) -> Mapping[str, Any]:
    """The tables by name. Raises: ConfigError."""
    tables = read_tables(settings, TABLES).get(NOTIFY_TABLE, {})
    if not isinstance(tables, dict):
        place = f"{printable_excerpt(settings.path, 200)}: [{NOTIFY_TABLE}]"
        raise ConfigError(filled("{0}: expected tables such as [notify.oncall]", place))
    return tables


def _target_of(word: str, tables: Mapping[str, Any], settings: ConfigFile) -> NotifyTarget:
    """Raises: WordError, ConfigError."""
    try:
        return _target(word, tables, settings)
    except _UnreadSecret:
        raise
    except ConfigError as error:
        if word in tables:
            raise
        raise WordError(str(error)) from None


def _target(word: str, tables: Mapping[str, Any], settings: ConfigFile) -> NotifyTarget:
    kind, colon, rest = word.partition(":")
    if not colon:
        if "@" in word and word not in tables:
            raise ConfigError(filled("--notify {0}: expected mailto:ADDRESS for e-mail", quote(word)))
        return _of_table(word, tables, settings)
    if kind == "https":
        return _checked("https", _Table(url=word), "--notify https")
    if kind == "mailto":
        return _checked("mailto", _Table(mail=rest.split(",")), "--notify mailto")
    if kind == "kubernetes":
        return _checked("kubernetes", _Table(kubernetes=rest.split(",")), "--notify kubernetes")
    if kind == "command":
        try:
            return _checked("command", _Table(command=shlex.split(rest)), "--notify command")
        except ValueError as error:
            raise ConfigError(filled("--notify command: {0}", error)) from None
    if kind in SHAPES:
        table = _Table(url_file=rest[1:], shape=kind) if rest.startswith("@") else _Table(url=rest, shape=kind)
        return _checked(kind, table, f"--notify {kind}")
    raise ConfigError(
        filled(
            "--notify {0}: expected a name of [notify.NAME] in doctor.toml, command:PROGRAM, mailto:ADDRESS, "
            "kubernetes:PARTS, or one of {1} with a colon and an https URL or @FILE",
            quote(kind),
            ", ".join(SHAPES),
        )
    )


def _of_table(name: str, tables: Mapping[str, Any], settings: ConfigFile) -> NotifyTarget:
    if name not in tables:
        where = printable_excerpt(settings.path, 200) if settings.path else "doctor.toml"
        text = filled("--notify {0}: {1} has no such [notify.NAME]", quote(name), where)
        raise ConfigError(text + did_you_mean(name, tables))
    place = f"{printable_excerpt(settings.path, 200)}: [notify.{printable_excerpt(name)}]"
    try:
        table = msgspec.convert(tables[name], _Table)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{place}: {printable_excerpt(str(error), 200)}") from None
    return _checked(printable_excerpt(name), table, place)


def _checked(name: str, table: _Table, place: str) -> NotifyTarget:
    """Raises: ConfigError."""
    url = _read_secret(table.url_file, place) if table.url_file else table.url
    secret = _read_secret(table.secret_file, place) if table.secret_file else table.secret
    ways = [way for way, value in zip(WAYS, (table.command, url, table.mail, table.kubernetes), strict=True) if value]
    if len(ways) != 1:
        raise ConfigError(filled("{0}: expected one of command, url (or url_file), mail and kubernetes", place))
    for key, value, allowed in (("shape", table.shape, SHAPES), ("when", table.when, WHEN)):
        if value not in allowed:
            raise ConfigError(filled("{0}: {1}: {2}; expected {3}", place, key, quote(value), " or ".join(allowed)))
    if not 1 <= table.seconds <= MAX_SECONDS:
        raise ConfigError(
            filled("{0}: {1}: {2}; expected a number from 1 to {3}", place, "seconds", table.seconds, MAX_SECONDS)
        )
    if url:
        _check_url(url, place, http=table.http)
    if table.command and "\0" in "".join(table.command):
        raise ConfigError(filled("{0}: command: a word has a NUL character", place))
    for address in table.mail:
        if not _ADDRESS.match(address):
            raise ConfigError(filled("{0}: mail: {1}; expected NAME@HOST", place, quote(address)))
    for part in table.kubernetes:
        if part not in NODE_PARTS:
            raise ConfigError(
                filled("{0}: {1}: {2}; expected {3}", place, "kubernetes", quote(part), ", ".join(NODE_PARTS))
            )
    return NotifyTarget(
        name,
        tuple(table.command),
        url,
        tuple(table.mail),
        table.shape,
        secret,
        "always" if table.kubernetes else table.when,
        table.seconds,
        table.http,
        tuple(table.kubernetes),
    )


def _check_url(url: str, place: str, *, http: bool) -> None:
    """Raises: ConfigError; the message has no part of the URL."""
    try:
        parts = urllib.parse.urlsplit(url)
        ok = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        ok = False
    if not ok or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(filled("{0}: url: not a URL", place))
    if parts.username is not None:
        raise ConfigError(filled("{0}: url: it holds a user name, which is not sent; expected none", place))
    if parts.scheme == "http" and not http:
        raise ConfigError(
            filled("{0}: url: http sends it unencrypted; expected https, or http = true in doctor.toml", place)
        )
    if parts.scheme not in ("http", "https"):
        raise ConfigError(filled("{0}: url: expected https://...", place))


def _read_secret(path: str, place: str) -> str:
    """The first line of a file. Raises: ConfigError."""
    try:
        lines = read_bounded(Path(path).expanduser(), MAX_SECRET_BYTES).decode("utf-8").split()
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "it cannot be read"
        raise _UnreadSecret(filled("{0}: {1}: {2}", place, printable_excerpt(path, 200), reason)) from None
    if len(lines) != 1:
        raise _UnreadSecret(filled("{0}: {1}: expected one line with one word", place, printable_excerpt(path, 200)))
    return lines[0]
