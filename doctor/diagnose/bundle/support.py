"""What is taken of each host, as data: `support.toml`, and what the user adds."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from doctor.engine.texts import filled
from doctor.engine.toml_compat import read_table

FILE = Path(__file__).with_suffix(".toml")


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Logs that lie on a host by themselves."""

    section: str
    paths: list[str]
    source: str
    diagnosed: bool
    variables: list[tuple[str, str]] = []


class SupportCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command that prints, or a support tool that writes files into a folder."""

    section: str
    name: str
    script: str
    """Fixed text for sh; ``$1`` is its folder, ``$PYTHON`` the job's interpreter."""
    seconds: int
    source: str
    state: bool = False
    """It shows the devices as they are now."""
    requires: list[str] = []
    folder: bool = False
    root: bool = False
    most: int = 0
    """MiB that it may write."""
    option: str = ""
    """The option that asks for it; empty: it is always run."""
    python: bool = False
    diagnosed: bool = False


class Support(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `FILE`."""

    place: list[Place]
    command: list[SupportCommand]


@cache
def support() -> Support:
    """The content of `FILE`."""
    return read_table(FILE, Support)


def diagnosed_sections() -> frozenset[str]:
    """The folders that hold logs for `doctor diagnose`."""
    table = support()
    places = (row.section for row in table.place if row.diagnosed)
    return frozenset({"job", *places, *(row.section for row in table.command if row.diagnosed)})


class BundleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What every host is asked."""

    places: tuple[str, ...]
    """Files, folders and patterns of the job's own logs: read before all others."""
    usual_places: tuple[str, ...] = ()
    """Where frameworks write logs by default: read behind those of the vendors."""
    since: float
    limit: int
    """Bytes of content from one host."""
    seconds: float
    python: str = "python3"
    tools: bool = True
    sos: bool = False
    devices_only: bool = False
    within: tuple[str, ...] = ()
    sudo: bool = False

    def fields(self, skipped: frozenset[str]) -> dict[str, Any]:
        """The same for the program on a host. ``skipped``: suffixes of files that hold no log."""
        table, only = support(), self.devices_only
        sections: list[dict[str, Any]] = [
            {"name": "job", "places": list(self.places), "age": self.since, "named": True}
        ]
        sections += [
            {"name": row.section, "places": row.paths, "age": self.since, "variables": row.variables}
            for row in table.place
        ]
        sections.append({"name": "job", "places": list(self.usual_places), "age": self.since})
        return {
            "bytes": self.limit,
            "share": max(1 << 20, self.limit // 4),
            "files": 2000,
            "age": self.since,
            "kernel": not only,
            "environment": not only,
            "skipped": sorted(skipped),
            "python": self.python,
            "sections": [] if only else sections,
            "commands": [self._command(row) for row in table.command if self._is_wanted(row)],
        }

    def _is_wanted(self, row: SupportCommand) -> bool:
        if self.devices_only:
            return row.state
        return (self.tools or not row.folder) and (not row.option or self.sos)

    def _command(self, row: SupportCommand) -> dict[str, Any]:
        moment = ("_before" if self.devices_only else "_after") if row.state else ""
        return {
            "section": row.section,
            "name": f"{row.name}{moment}.txt" if not row.folder else row.name,
            "shown": row.script.strip() if "\n" not in row.script.strip() else filled("commands of {0}", row.name),
            "script": row.script,
            "seconds": row.seconds,
            "requires": [*row.requires, *([self.python] if row.python else [])],
            "folder": row.folder,
            "root": row.root,
            "most": row.most << 20,
        }
