"""How many examples a property test draws: a sample in each run, new ones every time; all of them with ``--full``."""

from __future__ import annotations

import hypothesis

SAMPLE = 0.25
"""The part of the examples that a run without ``--full`` draws."""

LEAST = 10


def register_profiles() -> None:
    """The profiles of hypothesis: ``sample`` and ``full``. No time limits: a loaded machine is no fault of the code."""
    everything = hypothesis.settings.get_profile("default").max_examples
    hypothesis.settings.register_profile("full", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
    hypothesis.settings.register_profile(
        "sample", hypothesis.settings.get_profile("full"), max_examples=int(everything * SAMPLE)
    )


def examples(full: int) -> int:
    """``max_examples`` of a test that draws ``full`` examples with ``--full``.

    >>> examples(60) in (15, 60)
    True
    """
    everything = hypothesis.settings.get_profile("full").max_examples
    return min(full, max(LEAST, full * hypothesis.settings().max_examples // everything))
