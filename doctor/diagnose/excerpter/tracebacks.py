"""Tracebacks of Python in a log, as the output of several ranks mixes them."""

import re

TRACEBACK_LINES = 400  # lines of one traceback
TRACEBACK_HEAD = "Traceback (most recent call last)"
EXCEPTION = re.compile(
    r"^(?:\[(?:rank|default)?\d+\]:?)?\s?(?P<exception>[A-Za-z_][\w.]{0,120})(?:: (?P<message>.*))?$"
)
LABEL = re.compile(
    r"^(?:\[[\w@,.-]{1,80}\](?:<std(?:out|err)>)?:? ?|\d{1,6}: )?"
    r"(?:\([\w .,=:<>-]{1,80}\) )?"
    r"(?:(?:ERROR|CRITICAL) \d\d-\d\d (?P<clock>\d\d:\d\d:\d\d) \[[\w./-]{1,80}:\d{1,6}\] ?)?"
)  # of ranks and actors, and the head that vLLM prints before each line of a traceback
INNER_LABEL = re.compile(r"\[(?:rank|default)?\d{1,6}\]:? $")


def label_of(text):
    """The label of a rank before the line, with which launchers tell the output of ranks apart."""
    match = LABEL.match(text)
    return match.group() if match else ""


def label_before_head(text):
    """The label right before the first line of a traceback, which a progress bar may have begun."""
    label = label_of(text)
    between = text[len(label) : text.find(TRACEBACK_HEAD)]
    match = INNER_LABEL.search(between[-200:])
    return match.group() if match and match.group() != between else label


def stream_of(label):
    """What stays the same in the label of all lines of one traceback."""
    match = LABEL.match(label)
    return label.replace(match.group("clock"), "", 1) if match and match.group("clock") else label


class OpenTracebacks:
    """The tracebacks whose exception was not printed yet: one for each label, such as ``[rank3]:``."""

    def __init__(self):
        self.lines_left = {}
        self.frames = set()  # of those, where the last line names the file of a frame

    def __len__(self):
        return len(self.lines_left)

    def open(self, text):
        """The first line of a traceback."""
        self.lines_left[stream_of(label_before_head(text))] = TRACEBACK_LINES

    def is_source(self, text):
        """Whether the line is that of the program that a traceback quotes below the name of its file."""
        label = label_of(text)
        return stream_of(label) in self.frames and text[len(label) :].startswith("    ")

    def read(self, text):
        """(whether an open traceback may end here, the match of its exception's line or None).

        That line is the first that is neither indented nor empty.
        """
        label = label_of(text)
        stream = stream_of(label)
        if stream not in self.lines_left:
            return False, None
        self.lines_left[stream] -= 1
        rest = text[len(label) :]
        self.frames.discard(stream)
        if rest.startswith('  File "'):
            self.frames.add(stream)
        if self.lines_left[stream] <= 0:
            del self.lines_left[stream]
            return False, None
        if not rest.strip() or rest.startswith((" ", "\t", "Traceback (most recent")):
            return False, None
        exception = EXCEPTION.match(rest)
        if exception:
            del self.lines_left[stream]
        return True, exception
