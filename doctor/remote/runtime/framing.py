"""Separates a program's answers from a login shell's output by a marker that is unique to the request.

A whole record stands between two lines, ``MARKER`` and ``MARKER end``; a program that answers more than once puts
``MARKER`` and a blank before each line.
"""


def frame(marker, text):
    """A record as it is printed, behind a line feed that ends a line which a login shell left open."""
    return "\n%s\n%s\n%s end\n" % (marker, text, marker)


def split_frame(text, marker):
    """(what stands before the record, the record, whether it has begun and ended).

    The record is None when it has not ended.
    """
    before, begun, rest = text.partition("\n" + marker + "\n")
    record, closed, _ = rest.partition("\n" + marker + " end\n")
    return before, record if begun and closed else None, bool(begun)


def marked_line(marker, data):
    """One line of a program that answers in lines, as bytes."""
    return b"%s %s\n" % (marker, data)
