"""What hosts and programs compress is read whole and within a limit, or not at all."""

import base64
import zlib

import pytest

from doctor.engine.decoding import StreamTooLarge, inflate
from doctor.watch.data.records import MAX_BITMAP, indices_of


def test_a_whole_stream_of_the_limit() -> None:
    assert inflate(zlib.compress(b"x" * 100), 100) == b"x" * 100


def test_one_that_stands_for_more() -> None:
    with pytest.raises(StreamTooLarge, match="larger than 99 bytes"):
        inflate(zlib.compress(b"x" * 100), 99)


@pytest.mark.parametrize("data", [b"", b"no stream", zlib.compress(bytes(range(256)))[:-9]])
def test_no_stream_or_a_part_of_one(data: bytes) -> None:
    with pytest.raises(ValueError, match="zlib stream"):
        inflate(data, 1000)


def test_a_bitmap_of_samples_that_is_cut_or_too_large_is_unknown_and_not_a_shorter_list() -> None:
    """A rank whose record is damaged is not one that has left samples out."""

    def packed(data: bytes) -> dict[str, str]:
        return {"bits": base64.b64encode(data).decode()}

    full = zlib.compress(bytes([5, 255, *range(200)]))
    assert {0, 2, 8} <= (indices_of(packed(full)) or frozenset())
    assert indices_of(packed(full[:-9])) is None
    assert indices_of(packed(zlib.compress(b"\1" * (MAX_BITMAP + 1)))) is None
