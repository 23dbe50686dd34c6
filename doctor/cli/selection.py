"""The options that choose checks and playbooks; `doctor.session.select_checks` follows them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def _split_names(words: list[str]) -> list[str]:
    """The names in words that may hold several, with commas between them."""
    return [name for word in words for name in (part.strip() for part in word.split(",")) if name]


ChecksOption = Annotated[list[Path], typer.Option("--checks", metavar="DIR", help="A folder with additional checks.")]
PlaybooksOption = Annotated[
    list[Path], typer.Option("--playbooks", metavar="DIR", help="A folder with additional playbooks.")
]
SelectOption = Annotated[
    list[str],
    typer.Option("--select", "-s", metavar="NAME", help="Run only these checks or areas.", callback=_split_names),
]
IgnoreOption = Annotated[
    list[str], typer.Option("--ignore", metavar="NAME", help="Skip these checks or areas.", callback=_split_names)
]
