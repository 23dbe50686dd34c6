"""What the shell offers for an argument or an option's value: chosen by the command, the name and the metavar."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from doctor.engine.texts import filled


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
