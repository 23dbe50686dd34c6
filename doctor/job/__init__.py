"""The job's intended settings: its rank table and its launch settings. Reads no host. Loaded by what is used of it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from doctor.engine.addresses import parse_address as parse_address
    from doctor.engine.record import RankTableFile as RankTableFile
    from doctor.job.host_matching import match_servers as match_servers
    from doctor.job.host_matching import product_family as product_family
    from doctor.job.host_matching import table_family as table_family
    from doctor.job.launch_config import LaunchConfig as LaunchConfig
    from doctor.job.launch_config import PortRange as PortRange
    from doctor.job.rank_table import read_rank_table as read_rank_table
    from doctor.job.rank_table.model import Rank as Rank
    from doctor.job.rank_table.model import RankTable as RankTable
    from doctor.job.rank_table.model import RankTableProblem as RankTableProblem
    from doctor.job.rank_table.model import Server as Server
    from doctor.job.rank_table.model import StatedCount as StatedCount
    from doctor.job.rank_table.model import SuperPod as SuperPod
    from doctor.job.rank_table.model import limit_items as limit_items
    from doctor.job.rank_table.strict_json import NotARankTable as NotARankTable
    from doctor.job.variable_names import misspelt as misspelt
    from doctor.job.variable_values import EnvSetting as EnvSetting
    from doctor.job.variable_values import invalid_settings as invalid_settings

_NAMES = {
    "doctor.engine.addresses": ("parse_address",),
    "doctor.engine.record": ("RankTableFile",),
    "doctor.job.host_matching": ("match_servers", "product_family", "table_family"),
    "doctor.job.launch_config": ("LaunchConfig", "PortRange"),
    "doctor.job.rank_table": ("read_rank_table",),
    "doctor.job.rank_table.model": (
        "Rank",
        "RankTable",
        "RankTableProblem",
        "Server",
        "StatedCount",
        "SuperPod",
        "limit_items",
    ),
    "doctor.job.rank_table.strict_json": ("NotARankTable",),
    "doctor.job.variable_names": ("misspelt",),
    "doctor.job.variable_values": ("EnvSetting", "invalid_settings"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'doctor.job' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value
