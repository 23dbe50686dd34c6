"""The job's intended settings: its rank table and its launch settings. Reads no host."""

from doctor.job.host_matching import match_servers, product_family, table_family
from doctor.job.launch_config import LaunchConfig, PortRange
from doctor.job.rank_table.file import RankTableFile, read_rank_table
from doctor.job.rank_table.model import (
    Rank,
    RankTable,
    RankTableProblem,
    Server,
    StatedCount,
    SuperPod,
    limit_items,
    parse_address,
)
from doctor.job.rank_table.strict_json import NotARankTable
from doctor.job.variable_names import misspelt
from doctor.job.variable_values import EnvSetting, invalid_settings

__all__ = [
    "EnvSetting",
    "LaunchConfig",
    "NotARankTable",
    "PortRange",
    "Rank",
    "RankTable",
    "RankTableFile",
    "RankTableProblem",
    "Server",
    "StatedCount",
    "SuperPod",
    "invalid_settings",
    "limit_items",
    "match_servers",
    "misspelt",
    "parse_address",
    "product_family",
    "read_rank_table",
    "table_family",
]
