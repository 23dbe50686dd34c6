"""A few attacks of the campaign in every run; ``python -m tests.attack fix 100`` makes more of them."""

from __future__ import annotations

import pytest

from tests.attack import fix

pytestmark = pytest.mark.hosts


def test_a_sample_of_interrupted_fixes(capsys: pytest.CaptureFixture[str]) -> None:
    assert fix.campaign(2, seed=1) == 0, capsys.readouterr().out
