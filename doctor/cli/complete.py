"""The shell's completion. The shell calls `doctor` with ``_DOCTOR_COMPLETE`` set; candidates go to stdout.

What a candidate holds is untrusted, and zsh evaluates what it is sent: `is_safe_word` is the one rule that every
candidate passes before it is written.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import typer
from typer import _completion_classes as shells
from typer._click import shell_completion
from typer.core import TyperArgument, TyperOption

from doctor.cli.app import COMMANDS, application
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled

VARIABLE = "_DOCTOR_COMPLETE"
"""The shell sets it to ``complete_bash``, ``complete_zsh`` or ``complete_fish``."""
MAX_SECONDS = 2.0
"""Seconds after which the shell gets its prompt back, with nothing: a home directory that hangs must not hang it."""
MAX_SUMMARY_CHARS = 200

_SAFE_WORD = re.compile(r"[A-Za-z0-9_.,@%+=:/\[\]-]{1,4000}", re.ASCII)


class Candidate(NamedTuple):
    """A word that completes what was typed, and what it means."""

    value: str
    summary: str = ""


def candidates(command: str, parameter: str, metavar: str, incomplete: str) -> Iterator[Candidate]:
    """The candidates that go on from ``incomplete``; none where the shell should offer files.

    >>> [candidate.value for candidate in candidates("fix", "color", "auto|always|never", "a")]
    ['auto', 'always']
    """
    if metavar.strip("[]") in ("NODES", "HOSTS"):
        yield from _hosts(incomplete)
        return
    for candidate in _words(command, parameter, metavar):
        if candidate.value.startswith(incomplete):
            yield candidate


def _words(command: str, parameter: str, metavar: str) -> Iterator[Candidate]:
    if re.fullmatch(r"[A-Za-z0-9_-]+(\|[A-Za-z0-9_-]+)+", metavar):
        yield from map(Candidate, metavar.split("|"))
    elif parameter in ("select", "ignore") or (command, parameter) == ("list", "words"):
        yield from (*_areas(), *_checks())
    elif (command, parameter) == ("explain", "name"):
        yield from (*_checks(), *_playbooks(), *_topics())
    elif (command, parameter) == ("history", "name"):
        yield from (*_checks(), *_hosts(""))
    elif (command, parameter) == ("fix", "names"):
        yield from (*_areas(), *_checks(), *_playbooks())
    elif parameter == "master_addr":
        yield from _hosts("")
    elif parameter in ("formats", "format", "node_format"):
        yield from map(Candidate, _formats(command, parameter))


def _formats(command: str, parameter: str) -> tuple[str, ...]:
    if parameter == "node_format":
        from doctor.preflight.node_lists import FORMATS

        return tuple(FORMATS)
    from doctor.report.formats.registry import FORMATS as REPORT_FORMATS

    return tuple(REPORT_FORMATS)


def _areas() -> Iterator[Candidate]:
    from doctor.engine.check_files import AREAS

    for area in AREAS:
        yield Candidate(area, filled("every check of the area {0}", area))


def _checks() -> Iterator[Candidate]:
    from doctor.cli.fast_list import read_list_entry
    from doctor.engine.catalog import check_files

    for path, _ in check_files():
        entry = read_list_entry(path)
        yield Candidate(entry.name, entry.claim)


def _playbooks() -> Iterator[Candidate]:
    from doctor.engine.catalog import bundled_folder

    for path in sorted(bundled_folder("playbooks").glob("*.toml")):
        title = re.search(r'^title = "([^"\n]*)"', path.read_text("utf-8"), re.M)
        yield Candidate(path.stem.replace("_", "-"), title[1] if title else "")


def _topics() -> Iterator[Candidate]:
    from doctor.report.explain.topics import title, topics

    for name, path in topics().items():
        yield Candidate(name, title(path))


def _hosts(incomplete: str) -> Iterator[Candidate]:
    """Hosts; after a comma one more, that the node set does not name yet."""
    from doctor.cli.complete_hosts import host_names

    finished, comma, start = incomplete.rpartition(",")
    named = finished.split(",")
    for name in host_names(os.environ):
        if name.startswith(start) and name not in named:
            yield Candidate(finished + comma + name)


def is_safe_word(word: str) -> bool:
    """No shell takes any part of the word for anything but itself.

    >>> is_safe_word("node[001-064],gpu7"), is_safe_word("a;reboot"), is_safe_word("$(id)")
    (True, False, False)
    """
    return _SAFE_WORD.fullmatch(word) is not None


class _Completer(shell_completion.ShellComplete):
    """What all shells have in common: which candidates there are. Nothing here renders help with a library."""

    keeps_option = True
    """The shell takes ``--option=value`` for one word, so that a candidate repeats the option."""

    def get_completions(self, args: list[str], incomplete: str) -> list[Any]:
        context = shell_completion._resolve_context(self.cli, self.ctx_args, self.prog_name, args)
        prefix = incomplete[: incomplete.find("=") + 1] if incomplete.startswith("--") and self.keeps_option else ""
        target, incomplete = shell_completion._resolve_incomplete(context, args, incomplete)
        if isinstance(target, (TyperArgument, TyperOption)):
            command = context.info_name or ""
            items = [
                shell_completion.CompletionItem(prefix + candidate.value, help=candidate.summary)
                for candidate in candidates(command, target.name or "", target.metavar or "", incomplete)
            ]
        else:
            items = target.shell_complete(context, incomplete)
        return [item for item in items if is_safe_word(item.value)]


class BashCompleter(_Completer, shells.BashComplete):
    """bash: one word a line."""

    keeps_option = False

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the cursor, without the ``=`` that bash makes a word of its own."""
        args, incomplete = super().get_completion_args()
        return [word for word in args if word != "="], incomplete


class ZshCompleter(_Completer, shells.ZshComplete):
    """zsh: a call of ``_arguments`` that the shell evaluates."""

    def format_completion(self, item: Any) -> str:
        """``"value":"summary"``, quoted for the inner of two evaluations and then for the outer one."""
        parts = [item.value, *([_summary(item)] if _summary(item) else [])]
        return ":".join(f'"{_escape_zsh(part)}"' for part in parts)


class FishCompleter(_Completer, shells.FishComplete):
    """fish: value, tab, summary."""

    def format_completion(self, item: Any) -> str:
        return f"{item.value}\t{_summary(item)}".rstrip("\t")


def _summary(item: Any) -> str:
    return strip_control_chars(COMMANDS.get(item.value) or item.help or "", MAX_SUMMARY_CHARS)


def _escape_zsh(text: str) -> str:
    """For double quotes within single quotes: first what the inner evaluation reads, then the single quotes."""
    inner = re.sub(r'([\\"$`])', r"\\\1", text.replace("\\", "\\\\").replace(":", "\\:"))
    return inner.replace("'", "'\\''")


COMPLETERS: dict[str, type[Any]] = {"bash": BashCompleter, "zsh": ZshCompleter, "fish": FishCompleter}


def run() -> None:
    """Answers the shell. Never raises anything but SystemExit, and never takes longer than `MAX_SECONDS`."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(1))
    signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
    instruction, _, shell = os.environ.pop(VARIABLE, "").partition("_")
    completer_type = COMPLETERS.get(shell)
    if instruction != "complete" or completer_type is None:
        sys.exit(1)
    try:
        words, _ = completer_type(None, {}, "doctor", VARIABLE).get_completion_args()
        command = typer.main.get_command(application(words))
        text = completer_type(command, {}, "doctor", VARIABLE).complete()
        sys.stdout.write(f"{text}\n" if text else "")
        sys.stdout.flush()
    except Exception:  # noqa: BLE001 - a prompt is no place for a traceback: the shell offers files instead
        sys.exit(1)
