from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from doctor.facts.smoke.training import ReferenceBlocks
from tests.checks.smoke import BLOCK_NUMBER, page
from tests.checks.trained import DP2TP2, DP4, TP4, Trained, healthy, leading

NAME = "smoke_shards_wrong"


def reads(trained: Trained, read: dict[int, Sequence[int]], message: bool = True) -> Trained:
    """These ranks read other blocks of the eight; without ``message`` they give the numbers of their own."""

    def change(event: Any) -> dict[str, Any] | None:
        if event.rank not in read:
            return None
        blocks = tuple(read[event.rank])
        ids = tuple(BLOCK_NUMBER * (event.step + 1) + block for block in blocks)
        masks = tuple(BLOCK_NUMBER * (event.step + 101) + block for block in blocks)
        return {"blocks": blocks if message else event.blocks, "ids": ids, "masks": masks}

    return trained.steps(change)


def test_every_block_once() -> None:
    healthy(NAME)


def test_a_share_that_is_read_twice() -> None:
    trained = reads(Trained(DP4), {3: (0, 1)})
    finding = trained.only_finding(NAME)
    assert finding.hosts == ("w2",)
    assert finding.values["ranks"] == [3]
    assert str(finding) == (
        "rank 3 (w2; dp3): the data of step 0 are blocks rank 3: 0-1, expected rank 3: 6-7; blocks 0-1 are read twice "
        "and 6-7 not at all, of 8 (in dp4)"
    )
    assert leading(trained) == {NAME}
    assert "look at rank 3 (w2; dp3) first" in " ".join(page(NAME, finding).split())


def test_shares_that_overlap() -> None:
    finding = reads(Trained(DP4), {2: (3, 4)}).only_finding(NAME)
    assert finding.values["twice"] == "3"
    assert finding.values["missing"] == "5"


def test_a_block_that_nobody_reads() -> None:
    finding = reads(Trained(DP4), {3: (6,)}).only_finding(NAME)
    assert "blocks 7 of 8 are not read" in str(finding)


def test_shares_that_changed_places() -> None:
    finding = reads(Trained(DP4), {0: (2, 3), 1: (0, 1)}).only_finding(NAME)
    assert finding.values["ranks"] == [0, 1]
    assert "every block is read once, by the wrong rank" in str(finding)


def test_tokens_tell_more_than_what_the_rank_says_of_them() -> None:
    finding = reads(Trained(DP4), {1: (4, 5)}, message=False).only_finding(NAME)
    assert finding.values["read"] == {"rank 1": "4-5"}


def test_one_rank_of_a_model_reads_something_else() -> None:
    finding = reads(Trained(DP2TP2), {1: (4, 5, 6, 7)}).only_finding(NAME)
    assert finding.values["ranks"] == [1]
    assert "dp0 tp1" in finding.values["who"]


def test_tokens_of_no_block() -> None:
    trained = Trained(TP4).steps(
        lambda event: {"ids": (1, *event.ids[1:])} if event.rank == 2 and event.step == 1 else None
    )
    finding = trained.only_finding(NAME)
    assert finding.values["step"] == 1
    assert finding.values["read"] == {"rank 2": "1-7 and unknown ones"}


def test_two_blocks_with_the_same_tokens_are_told_apart_by_their_masks() -> None:
    trained = Trained(DP4)
    trained.spoil(ReferenceBlocks, lambda event: {"ids": (*event.ids[:5], event.ids[1], *event.ids[6:])})
    trained.steps(lambda event: {"ids": (event.ids[0], event.ids[0] - 3)} if event.rank == 2 else None)
    assert not trained.findings(NAME)
    assert reads(trained, {3: (0, 1)}).only_finding(NAME).values["read"] == {"rank 3": "0-1"}
