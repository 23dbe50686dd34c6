"""Chooses lines of a log quickly: nearly all lines of a log are of a few shapes that match no signature.

The shape of a line is the line without digits and the letters a to f, so that numbers, addresses and times make no
difference. Whether a shape can match a signature is decided once, and remembered.
"""

import re

MAX_LINE = 4096  # bytes of a line that are looked at
MAX_SHAPES = 1 << 16  # shapes that are remembered; after that, all are forgotten
QUIET_HEADS = (b"[INFO]", b"[DEBUG]", b"[EVENT]", b"[TRACE]")  # how lines begin that report no error: CANN, MindSpore
LOUD_LINE = re.compile(rb"\n(?!\n|\[(?:INFO|DEBUG|EVENT|TRACE)\])")
DROPPED = b"0123456789abcdef"
GRAM = 4
NUMBER_HEAD = 3
RECORDING_MARKS = (b'"collective_seq_id"', b'"pg_config"', b'"pg_status"')
LABEL_BYTES = 1 << 20  # at the beginning of a file, in which labels are looked for
LAUNCHER_LABEL = re.compile(rb"^(?:(\d{1,6}): |\[\d{1,10},(\d{1,6})\](?:<std(?:out|err)>)?:)", re.MULTILINE)
RANK_WORD = re.compile(rb"(?<![A-Za-z_])[Rr]ank[ _=:]{0,2}(\d{1,6})(?![\d.])[^\n\r]*")  # once in a line


class ShapeIndex:
    """Literals, each with a value that stands for it, arranged for choosing lines."""

    def __init__(self, pairs):
        self.values = [value for _, value in pairs]
        self.reduced = {}
        self.numbers = {}  # literals that are numbers, which a shape does not show, by their first digits
        for index, (literal, value) in enumerate(pairs):
            reduced = literal.translate(None, DROPPED)
            if len(reduced) < 2:
                self.numbers.setdefault(literal[:NUMBER_HEAD], []).append((literal, value))
            else:
                self.reduced.setdefault(reduced, []).append(index)
        self.grams = covering_grams(self.reduced, GRAM)
        self.shapes = {}

    def candidates(self, line):
        """The values whose literals a line of this shape may contain; those of numbers are not among them."""
        shape = line.translate(None, DROPPED)
        cached = self.shapes.get(shape)
        if cached is None:
            if len(self.shapes) >= MAX_SHAPES:
                self.shapes.clear()
            cached = self.shapes[shape] = self.classify(shape)
        return cached

    def number_heads(self, block):
        """The first digits of literals that are numbers, as far as they occur somewhere in a block of lines."""
        return [head for head in self.numbers if head in block]

    def numbered(self, line, heads):
        """The values whose literal is a number that occurs in the line."""
        pairs = (pair for head in heads if head in line for pair in self.numbers[head])
        return tuple(value for literal, value in pairs if literal in line)

    def classify(self, shape):
        if not any(gram in shape for gram in self.grams):
            return ()
        matching = [index for literal, indexes in self.reduced.items() if literal in shape for index in indexes]
        return tuple(self.values[index] for index in sorted(matching))


def covering_grams(literals, length):
    """Few texts of at most this length of which each literal contains at least one; greedy."""
    uncovered = {}
    containing = {}
    for literal in literals:
        uncovered[literal] = set(literal[at : at + length] for at in range(max(1, len(literal) - length + 1)))
        for gram in uncovered[literal]:
            containing.setdefault(gram, set()).add(literal)
    chosen = []
    while uncovered:
        most = max(map(len, containing.values()))
        best = max(gram for gram, holders in containing.items() if len(holders) == most)
        chosen.append(best)
        for literal in list(containing[best]):
            for gram in uncovered.pop(literal):
                containing[gram].discard(literal)
                if not containing[gram]:
                    del containing[gram]
    return chosen


def searched_texts(literals):
    """Texts of which each literal contains at least one, those that take the least time to search a block for.

    ``bytes.find`` of CPython steps over a block by the length of the text, so that the time is as 1 / length: what two
    literals have in common is searched for only where that is less than what both take.
    """
    texts = set(literals)
    pairs = {}
    while True:
        best = (0.0, b"", b"", b"")
        for first in texts:
            for second in texts:
                if first < second:
                    pair = first, second
                    if pair not in pairs:
                        pairs[pair] = common_text(first, second)
                    if pairs[pair]:
                        saved = 1 / len(first) + 1 / len(second) - 1 / len(pairs[pair])
                        best = max(best, (saved, pairs[pair], first, second))
        if not best[0]:
            return sorted(texts)
        texts -= set(best[2:])
        texts.add(best[1])


def common_text(first, second):
    """The longest text that both contain, if it is so long that a search for it takes less time than one for both."""
    shortest = len(first) * len(second) // (len(first) + len(second)) + 1
    for length in range(min(len(first), len(second)), shortest - 1, -1):
        for at in range(len(first) - length + 1):
            if first[at : at + length] in second:
                return first[at : at + length]
    return b""


def line_starts(data, quiet_texts):
    """Where lines begin that can be an event: those that are not at INFO level, and those with a quiet text."""
    starts = [match.end() for match in LOUD_LINE.finditer(data)]
    if starts and starts[-1] == len(data):
        starts.pop()
    if not data.startswith(QUIET_HEADS):
        starts.insert(0, 0)
    quiet = set()
    for text in quiet_texts:
        at = data.find(text)
        while at >= 0:
            quiet.add(data.rfind(b"\n", 0, at) + 1)
            at = data.find(text, data.index(b"\n", at))
    return sorted(quiet.union(starts)) if quiet else starts


def whole_lines(blocks):
    """The blocks, cut after their last newline. The rest of a line that is longer than `MAX_LINE` is dropped.

    Of a line that a progress bar has written over and over, its last state is kept.
    """
    rest = b""
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
            rest = block[end:]
        else:
            rest += block
        if len(rest) > 4 * MAX_LINE:
            rest = shown_part(rest)[: MAX_LINE + 1]
    if rest:
        yield rest + b"\n"


def shown_part(line):
    """What a terminal shows of a line in the end: progress bars write each state over the one before, with a CR."""
    return line[line.rfind(b"\r", 0, len(line.rstrip(b"\r"))) + 1 :]


def is_recording(head):
    """Whether a file that begins like this may be a dump of a flight recorder: a pickle, or JSON with its keys."""
    if head[:1] == b"\x80":
        return len(head) > 2 and 2 <= head[1] <= 5
    return head.lstrip()[:1] == b"{" and any(mark in head for mark in RECORDING_MARKS)


def is_binary(block):
    """More than one byte in thirty is NUL; those at the beginning are what a truncated file keeps, and do not count."""
    probe = block.lstrip(b"\0")[:4096]
    return probe.count(b"\0") * 30 > len(probe)


def launcher_labels(data):
    """The ranks whose output a log holds: those with which srun or mpirun label each line, or that lines name.

    None where fewer than half of the lines show one. Of those that lines name, all from 0 on must be there, and two
    at least: a number behind the word may be anything else.
    """
    data = data[:LABEL_BYTES]
    lines = data.count(b"\n")
    matches = LAUNCHER_LABEL.findall(data)
    if 2 * len(matches) >= lines:
        return tuple(sorted(set(int(srun or mpi) for srun, mpi in matches)))
    ranks = RANK_WORD.findall(data)
    if 2 * len(ranks) < lines + data.count(b"\r"):
        return ()
    named = sorted(set(map(int, ranks)))
    return tuple(named) if len(named) > 1 and named == list(range(len(named))) else ()
