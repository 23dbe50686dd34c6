"""What the job is meant to be: its rank table and its launch settings. Values only; nothing is asked of a host."""

from doctor.job.env_vars import Setting, unusable
from doctor.job.host_matching import family, placed
from doctor.job.launch_config import Launch, PortRange
from doctor.job.rank_table.model import (
    Count,
    Problem,
    Rank,
    RankTable,
    RankTableFile,
    Server,
    SuperPod,
    address,
    few,
    read_rank_table,
)
from doctor.job.rank_table.strict_json import NotARankTable

__all__ = [
    "Count",
    "Launch",
    "NotARankTable",
    "PortRange",
    "Problem",
    "Rank",
    "RankTable",
    "RankTableFile",
    "Server",
    "Setting",
    "SuperPod",
    "address",
    "family",
    "few",
    "placed",
    "read_rank_table",
    "unusable",
]
