"""Rank tables: strict reading into values."""

from __future__ import annotations

from collections.abc import Callable

from doctor.engine.bounded_read import unreadable_reason
from doctor.engine.record import RankTableFile
from doctor.engine.texts import filled
from doctor.job.rank_table.model import RankTable


def load_rank_table(path: str, read_file: Callable[[str], str], link: str = "") -> RankTableFile:
    """Reads the file; never raises for what is in it or for its absence."""
    try:
        return RankTableFile(path, text=read_file(path), link_target=link)
    except UnicodeDecodeError as error:
        place = filled("byte {0} is not UTF-8", error.start) if isinstance(error.object, bytes) else "it is not UTF-8"
        return RankTableFile(path, error=filled("{0}; the file may be UTF-16 or GBK", place), link_target=link)
    except (OSError, ValueError) as error:
        return RankTableFile(path, error=unreadable_reason(error), link_target=link)


def read_rank_table(path: str, text: str) -> RankTable:
    """The table in ``text``. What is wrong inside a known form is kept in ``problems``.

    Raises: NotARankTable, with the line and column where it is no JSON, or with ``because`` for an unknown version.
    """
    from doctor.job.rank_table.parse import read_table  # most runs have no rank table

    return read_table(path, text)
