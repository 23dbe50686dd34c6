"""The options that a plan was made with. They are saved with it, so that applying it uses the same ones."""

from __future__ import annotations

from typing import Any

import msgspec


class PlanContext(msgspec.Struct, frozen=True, kw_only=True):
    """The command line and the environment, as far as they matter; never a password."""

    hosts: tuple[str, ...]
    source: str
    local: bool = False
    slots: dict[str, int] = {}
    names: tuple[str, ...] = ()
    playbooks: tuple[str, ...] = ()
    """Folders, as whole paths; so are all other paths here."""
    checks: tuple[str, ...] = ()
    config: str = ""
    launch: dict[str, Any] = {}
    environ: dict[str, str] = {}
    """The environment variables that are relevant to the job."""
    rank_table: str = ""
    sudo: bool = False
    timeout: float = 60.0
    connection: dict[str, Any] = {}
    """`doctor.cli.host_options.ConnectionOptions`, but for ``ask_pass``."""
