from __future__ import annotations

from pathlib import Path

import pytest

from doctor.engine.result import Outcome
from doctor.engine.smoke_summary import SmokeSummary
from doctor.smoke.model import Baseline
from doctor.smoke.results.figures import collective_speeds
from doctor.smoke.speed.baseline import read_baseline, save_baseline
from tests.checks.smoke import collectives, judged, page, ran

NAME = "smoke_fleet_slow"


def outcome(times: float, **more: object) -> Outcome:
    """Against a baseline that was so many times as fast."""
    known = collective_speeds(ran(4, 2), collectives(ran(4, 2)))
    busbw = {f"{speed.op} {speed.bytes} {speed.group}": speed.busbw * times for speed in known}
    run = ran(4, 2, baseline=Baseline("gloo", 2, 4, busbw), **more)
    return judged(NAME, run, collectives(run))


def test_as_fast_as_before() -> None:
    assert outcome(1.3).complete and not outcome(1.3).findings


def test_a_fleet_that_is_slow_as_a_whole() -> None:
    [one] = outcome(3.0, pressure={"w1": ("w1: steal.",)}).findings
    assert one.hosts == ()
    assert one.values["ratio"] == 3.0
    assert str(one).endswith("expected 472 MB/s. w1: steal.")
    assert "--save-baseline" in page(NAME, one)


def test_what_cannot_be_compared_is_skipped() -> None:
    run = ran(2, 1, baseline=Baseline("gloo", 2, 4, {}))
    assert judged(NAME, run, collectives(run)).skipped
    assert judged(NAME, ran(4, 2), collectives(ran(4, 2))).skipped


def test_a_baseline_is_read_as_it_was_saved(tmp_path: Path) -> None:
    speeds = collective_speeds(ran(4, 2), collectives(ran(4, 2)))
    summary = SmokeSummary("gloo", {"w1": 2, "w2": 2}, "complete", 9.0, 1.0, collective_speeds=speeds)
    save_baseline(tmp_path / "good", summary)
    assert read_baseline(tmp_path / "good").busbw[f"all_reduce {1 << 20} world"] > 0
    for text in ("{", "[]", '{"backend": "gloo"}'):
        (tmp_path / "bad").write_text(text)
        with pytest.raises(ValueError, match="expected a file of --save-baseline"):
            read_baseline(tmp_path / "bad")
