"""What questions find on a host without the standard library's slow modules: the same as these find."""

from __future__ import annotations

import glob
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from doctor.remote.runtime.notation import to_json
from doctor.remote.runtime.processes import run_tool
from doctor.remote.runtime.reading import find_tool, matches, matching_paths
from tests.facts.garbage import JSON

NAMES = st.text(alphabet="ab.-19", min_size=1, max_size=6).filter(lambda name: name not in (".", ".."))
PATTERNS = st.lists(st.sampled_from(["a", "b", ".", "-", "1", "*", "[0-9]"]), min_size=1, max_size=6).map("".join)


@given(st.lists(NAMES, max_size=6), PATTERNS)
def test_a_pattern_matches_what_glob_matches(names: list[str], pattern: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            Path(folder, name).touch()
        assert matching_paths(f"{folder}/{pattern}") == sorted(glob.glob(f"{folder}/{pattern}"))


@pytest.mark.parametrize(
    "pattern", ["/proc/sys/net/ipv4/*/all/rp_filter", "/proc/[0-9]*/comm", "/etc/*/../passwd", "/no/*"]
)
def test_patterns_in_folders(pattern: str) -> None:
    expected = {path for path in glob.glob(pattern) if f"/{os.getpid()}/" in path or "[" not in pattern}
    assert expected <= set(matching_paths(pattern))


def test_a_name_with_a_newline_is_no_digit() -> None:
    assert not matches("davinci\n", "davinci[0-9]*")


@pytest.mark.parametrize("name", ["sh", "no-such-tool", "/bin/sh", "/etc/passwd", "bin"])
def test_a_tool_is_found_where_which_finds_it(name: str) -> None:
    path = "/nowhere:/:/usr/bin:/bin"
    assert find_tool(name, path) == shutil.which(name, path=path)


@given(JSON)
@example(float("inf"))
@example([float("-inf")])
def test_json_is_read_as_what_it_was(value: Any) -> None:
    assert json.loads(to_json(value)) == json.loads(json.dumps(value))


def test_a_value_that_is_no_json_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes is not JSON"):
        to_json([b"x"])


def test_a_tool_ends_with_code_and_both_outputs() -> None:
    program = "import sys; sys.stdout.write('o' * 200000); sys.stderr.write('e' * 200000); sys.exit(3)"
    assert run_tool([sys.executable, "-c", program], {}, 60) == (3, b"o" * 200000, b"e" * 200000)


def test_a_tool_that_is_late_is_ended() -> None:
    with pytest.raises(OSError, match="no answer in 0"):
        run_tool(["/bin/sleep", "1000"], {}, 0.2)


def test_a_byte_that_is_not_utf_8_is_replaced() -> None:
    assert json.loads(to_json({"a\udcff": ["b\udcfe\ud800", "\U0001f600 \\udcff"]})) == {
        "a?": ["b??", "\U0001f600 \\udcff"]
    }
