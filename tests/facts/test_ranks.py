"""The rank table on a host."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.fact import Absent, Output
from doctor.facts.root_info import RankTableOnHost, hash_rank_table
from tests.facts.answers import answered, learned


def rank_table_on_host(path: str) -> Any:
    return answered(RankTableOnHost, hash_rank_table({"rank_table": path}))


def test_a_table_that_is_there(tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    table.write_bytes(b"{}")
    expected = hashlib.sha256(b"{}").hexdigest()
    assert rank_table_on_host(str(table)) == RankTableOnHost(path=str(table), present=True, sha256=expected)


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    for path in (str(tmp_path / "none"), "/etc/passwd/table"):
        assert rank_table_on_host(path) == RankTableOnHost(path=path, present=False, sha256="")


def test_no_table_was_given() -> None:
    assert type(rank_table_on_host("")) is Absent
    assert type(answered(RankTableOnHost, hash_rank_table({}))) is Absent


@given(st.one_of(st.none(), st.text(), st.fixed_dictionaries({"path": st.just("/t")})))
def test_anything_else_is_unreadable(value: Any) -> None:
    assert isinstance(answered(RankTableOnHost, value), Absent)


@given(st.binary(max_size=200))
def test_noise_is_unreadable(noise: bytes) -> None:
    assert isinstance(learned(RankTableOnHost, {"": Output(out=noise.decode("utf-8", "replace"))}), Absent)
