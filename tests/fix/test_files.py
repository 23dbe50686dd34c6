"""What a step makes of a file."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.fix.file_edits import edited_content, file_diff
from doctor.remedy.playbook import PlaybookStep


def lined(old: bytes | None, line: str, replaces: str = "") -> bytes | None:
    return edited_content(old, PlaybookStep(1, "", file="/x", line=line, replaces=replaces))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, b"a = 2\n"),
        (b"", b"a = 2\n"),
        (b"b\n", b"b\na = 2\n"),
        (b"b", b"b\na = 2\n"),
        (b"a = 2\n", b"a = 2\n"),
        (b"a = 2", b"a = 2"),
        (b"x\na = 1\ny\n", b"x\na = 2\ny\n"),
        (b"x\na=0\ny\na = 1\n", b"x\na = 2\ny\n"),
        (b"a = 1\na = 2\n", b"a = 2\n"),
        (b"a = 1", b"a = 2\n"),
        (b"# a = 1\n", b"# a = 1\na = 2\n"),
        (b"a = 1\r\nb\r\n", b"a = 2\r\nb\r\n"),
        (b"\xff\x00\x0c\n\xc2\x85 a = 1\n", b"\xff\x00\x0c\n\xc2\x85 a = 1\na = 2\n"),
    ],
)
def test_a_line_is_there_once_in_the_place_of_what_it_replaces(old: bytes | None, new: bytes) -> None:
    assert lined(old, "a = 2", r"^a\s*=") == new


def test_a_line_that_replaces_nothing_is_put_at_the_end_once() -> None:
    assert lined(b"x\n", "y") == b"x\ny\n"
    assert lined(b"y\nx\n", "y") == b"y\nx\n"


def test_lines_that_match_go() -> None:
    step = PlaybookStep(1, "", file="/x", remove="^swap")
    assert edited_content(b"a\nswap 1\nb\nswap 2", step) == b"a\nb\n"
    assert edited_content(None, step) is None


def test_a_whole_file_ends_with_its_last_line() -> None:
    assert edited_content(b"old", PlaybookStep(1, "", file="/x", text="new")) == b"new\n"
    assert edited_content(None, PlaybookStep(1, "", file="/x", text="")) == b""


@given(st.one_of(st.none(), st.binary(), st.text().map(str.encode)))
def test_it_is_done_once_and_touches_no_other_line(old: bytes | None) -> None:
    new = lined(old, "key = 1", r"^key\s*=")
    assert new is not None
    assert lined(new, "key = 1", r"^key\s*=") == new

    def others(data: bytes) -> list[bytes]:
        return [line for line in data.split(b"\n") if line and not re.search(rb"^key[ \t\n\r\f\v]*=", line)]

    assert others(new) == others(old or b"")
    assert new.split(b"\n").count(b"key = 1") + new.split(b"\n").count(b"key = 1\r") == 1


def test_a_difference_shows_what_changes_and_no_escapes() -> None:
    lines = file_diff("/etc/x", b"a\nb\x1b[31m\n", b"a\nc\n")
    assert lines == ["--- /etc/x", "+++ /etc/x", "@@ -1,2 +1,2 @@", " a", "-b\\x1b[31m", "+c"]
    assert file_diff("/etc/x", None, b"a\n")[0] == "--- /etc/x (not there)"
    assert file_diff("/etc/x", b"a", b"a") == []
