"""What the job is meant to be: its rank table and its launch settings. Values only; nothing is asked of a host."""

from doctor.intent.launch import Launch, PortRange
from doctor.intent.placement import family, placed
from doctor.intent.rank_table import (
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
from doctor.intent.settings import Setting, unusable
from doctor.intent.table_json import NotARankTable

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
