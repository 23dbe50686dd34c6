"""Lines in a stream of bytes."""


class LineBuffer:
    """Cuts a stream into lines. Of an incomplete line no more than the last `limit` bytes are kept; 0: all."""

    def __init__(self, limit=0):
        self.limit, self.rest = limit, bytearray()

    def split(self, piece):
        """The lines that are complete now, without their newlines."""
        self.rest += piece
        lines = []
        if b"\n" in piece:
            *lines, rest = bytes(self.rest).split(b"\n")
            self.rest = bytearray(rest)
        if self.limit:
            del self.rest[: -self.limit]
        return lines
