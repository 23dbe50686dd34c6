from __future__ import annotations

from typing import Any

from tests.checks.smoke import page
from tests.checks.trained import DP2TP2, DP4, TP4, Trained, healthy, leading, off

NAME = "smoke_mask_repeated"


def repeated(trained: Trained, *generators: str, first: int = 0) -> Trained:
    """Every data-parallel rank draws what the first one does."""

    def change(event: Any) -> dict[str, Any] | None:
        data = trained.place(event)[1]
        if not data or event.step < first:
            return None
        rng = {name: value - data * (name in generators) for name, value in event.rng.items()}
        return {"rng": rng, "masks": off(event.masks)}

    return trained.steps(change)


def test_other_draws_for_other_data() -> None:
    healthy(NAME)


def test_one_seed_for_all() -> None:
    trained = repeated(Trained(DP4, DP2TP2, TP4), "python", "numpy", "torch", "device", "dropout")
    finding = trained.only_finding(NAME)
    assert finding.values["generators"] == ["device", "dropout", "numpy", "python", "torch"]
    assert finding.values["layouts"] == ["dp4", "dp2 tp2"]
    assert leading(trained) == {NAME}


def test_one_generator_alone() -> None:
    finding = repeated(Trained(DP4), "numpy").only_finding(NAME)
    assert finding.values["generators"] == ["numpy"]
    assert finding.hosts == ("w1", "w2")
    assert str(finding) == (
        "on all data-parallel ranks numpy's draws are those of the first one, for other data, from step 0 on (in dp4)"
    )
    assert "seed of numpy" in page(NAME, finding)


def test_one_rank_has_the_seed_of_another() -> None:
    trained = Trained(DP4)
    trained.steps(lambda event: {"rng": {**event.rng, "python": event.rng["python"] - 2}} if event.rank == 3 else None)
    trained.steps(lambda event: {"masks": off(event.masks)} if event.rank == 3 else None)
    finding = trained.only_finding(NAME)
    assert (finding.values["ranks"], finding.hosts) == ([3], ("w2",))
    assert str(finding).startswith(
        "rank 3 (w2; dp3): python's draws are those of rank 1, for other data, from step 0 on"
    )


def test_the_first_step() -> None:
    assert repeated(Trained(DP4), "torch", first=1).only_finding(NAME).values["step"] == 1


def test_a_shard_that_is_read_twice_is_another_matter() -> None:
    """Who reads the same rows draws the same numbers for them."""
    trained = Trained(DP4)
    first = {event.step: event for event in trained.events if getattr(event, "blocks", None) and event.rank == 0}

    def change(event: Any) -> dict[str, Any] | None:
        same = first[event.step]
        return {name: getattr(same, name) for name in ("blocks", "ids", "masks", "rng")} if event.rank == 1 else None

    assert leading(trained.steps(change)) == {"smoke_shards_wrong"}
