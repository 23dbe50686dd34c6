"""Names of checks and areas on the command line: several options, or several names with commas between them."""

from __future__ import annotations

import pytest

from doctor.cli.shared_options import _split_names
from tests.test_cli import doctor


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], []),
        (["kernel"], ["kernel"]),
        (["kernel,disk-full", "links"], ["kernel", "disk-full", "links"]),
        ([" kernel , disk-full,", ","], ["kernel", "disk-full"]),
    ],
)
def test_words_are_split_at_commas(words: list[str], names: list[str]) -> None:
    assert _split_names(words) == names


def test_an_unknown_name_among_several_is_named_alone() -> None:
    result = doctor("check", "--select", "disk-full,disk-ful", "--ignore", "kernel,links")
    assert result.returncode == 2 and b"named 'disk-ful'; did you mean disk-full?" in result.stderr
