"""Chooses lines of a log quickly: nearly all lines of a log are of a few shapes that match no signature.

The shape of a line is the line without digits and the letters a to f, so that numbers, addresses and times make no
difference. Whether a shape can match a signature is decided once, and remembered.
"""

import heapq
import re

MAX_LINE = 4096  # bytes of a line that are looked at
MAX_SHAPES = 1 << 16  # shapes that are remembered; after that, all are forgotten
MAX_KEPT = 512  # bytes of a shape, or of a word of one, that is remembered: a longer one hardly comes again
QUIET_HEADS = (b"[INFO]", b"[DEBUG]", b"[EVENT]", b"[TRACE]")  # how lines begin that report no error: CANN, MindSpore
DROPPED = b"0123456789abcdef"
ENCODED = bytes(set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+/="))  # base64, without digits
MIN_ENCODED = 40  # letters of a word of a shape, from which on it is base64
GRAM = 6
NUMBER_GRAM = 2
RECORDING_MARKS = (b'"collective_seq_id"', b'"pg_config"', b'"pg_status"')
LABEL_BYTES = 1 << 20  # at the beginning of a file, in which labels are looked for
RANK_LINES = 4  # that name each of the ranks, on average: few errors do not tell whose output a log holds
CTIME = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \w{3} {1,2}\d{1,2} [\d:]{8} \d{4}"
MPIRUN_LABEL = (
    rf"(?:{CTIME}|\[{CTIME}\])?\[(?:(?:[\w.-]{{1,80}}@)?\d{{1,10}},(?:mpirank:)?)?(\d{{1,6}})(?:,[\w.-]{{1,80}})?\]"
    r"(?:\[[\w.-]{1,80}:\w{1,10}\])?<std(?:out|err|diag)>:"
)  # `[1,3]<stdout>:` of Open MPI 4, and of 5 `[3]<stdout>: `, `[prterun-n1-7@1,3]<stdout>: `, `[1,3][n1:7]<stdout>: `
LAUNCHER_LABEL = re.compile(rf"^(?:(\d{{1,6}}): |{MPIRUN_LABEL})".encode(), re.MULTILINE)
RANK_WORD = re.compile(  # once in a line; what is searched for begins with what a search finds at once
    rb"ank(?<=[Rr]ank)(?<![A-Za-z_][Rr]ank)[ _=:]{0,2}(\d{1,6})(?![\d.])[^\n\r]*"
)


class ShapeIndex:
    """Values, each with the texts that a line must contain to be chosen for it; the first text is the most telling.

    Of lines at INFO level, only those that contain one of `quiet_texts` are chosen. `encoded`: texts are looked for
    in base64 as well.
    """

    def __init__(self, pairs, quiet_texts=(), encoded=False):
        self.values = [value for _, value in pairs]
        self.quiet_texts = sorted(set(quiet_texts))
        self.reduced_quiet = set(text.translate(None, DROPPED) for text in quiet_texts)
        self.reduced = {}  # of the first text: the index of each value, with its other texts
        numbers = {}  # first texts whose shape is nearly empty, such as numbers
        for index, (texts, value) in enumerate(pairs):
            first = texts[0].translate(None, DROPPED)
            if max(map(len, first.split()), default=0) < 2:
                numbers.setdefault(texts[0], []).append(value)
            else:
                others = [text.translate(None, DROPPED) for text in texts[1:]]
                self.reduced.setdefault(first, []).append((index, others))
        self.texts = dict(covering_grams(self.reduced, GRAM))
        self.grams_by_word = WordGrams(self.texts, encoded)
        self.numbers = [NumberSearch(gram, numbers) for gram, _ in covering_grams(numbers, NUMBER_GRAM)]
        self.shapes = {}

    def candidates(self, line):
        """The values whose texts a line of this shape may contain; those of numbers are not among them."""
        return self.of_shape(line.translate(None, DROPPED))

    def of_shape(self, shape):
        cached = self.shapes.get(shape)
        if cached is None:
            if len(self.shapes) >= MAX_SHAPES:
                self.shapes.clear()
            cached = self.classify(shape)
            if len(shape) <= MAX_KEPT:
                self.shapes[shape] = cached
        return cached

    def classify(self, shape):
        matches = set().union(*map(self.grams_by_word.__getitem__, shape.split()))
        if not matches or (shape.startswith(QUIET_HEADS) and not any(text in shape for text in self.reduced_quiet)):
            return ()
        rows = (row for gram in matches for text in self.texts[gram] if text in shape for row in self.reduced[text])
        matching = [index for index, others in rows if all(text in shape for text in others)]
        return tuple(self.values[index] for index in sorted(matching))

    def hot_shapes(self, shapes):
        """The values of the shapes that have any, by shape."""
        values = ((shape, self.of_shape(shape)) for shape in set(shapes))
        return {shape: chosen for shape, chosen in values if chosen}

    def numbered(self, data):
        """The values whose first text is a number, by the index of the line in which it stands."""
        matches = {}
        for search in self.numbers:
            search.add_to(matches, data)
        return matches

    def is_quiet(self, line):
        """Whether the line is at INFO level, and contains no text for which such lines are looked at."""
        return line.lstrip(DROPPED).startswith(QUIET_HEADS) and not any(text in line for text in self.quiet_texts)


class WordGrams(dict):  # type: ignore[type-arg]
    """For each word of a shape, which of the texts it contains; what free text has in common are its words."""

    def __init__(self, texts, encoded):
        super().__init__()
        self.encoded = encoded
        self.by_length = {}
        for text in texts:
            self.by_length.setdefault(len(text), set()).add(text)

    def __missing__(self, word):
        if len(self) >= MAX_SHAPES:
            self.clear()
        is_long = not self.encoded and len(word) > MIN_ENCODED  # base64; a path has more slashes, others other signs
        if is_long and word.count(b"/") * 16 <= len(word) and not word.translate(None, ENCODED):
            return ()
        matches = []
        for length, texts in self.by_length.items():
            matches += texts.intersection([word[at : at + length] for at in range(len(word) - length + 1)])
        if len(word) <= MAX_KEPT:
            self[word] = matches
        return matches


class NumberSearch:
    """Finds numbers that have some digits in common."""

    def __init__(self, gram, numbers):
        places = [(text, text.index(gram)) for text in numbers if gram in text]
        heads = set(text[:at] for text, at in places)
        head = heads.pop() if len(heads) == 1 else b""
        self.rows = [(text, at - len(head), numbers[text]) for text, at in places]
        tails = sorted(set(text[at + len(gram) :] for text, at in places))
        self.pattern = re.compile(re.escape(head + gram) + b"(?:" + b"|".join(map(re.escape, tails)) + b")")

    def add_to(self, matches, data):
        """The values of the numbers that stand in the data, by the index of the line."""
        line, counted = 0, 0
        for match in self.pattern.finditer(data):
            for text, offset, values in self.rows:
                at = match.start() - offset
                if at >= 0 and data.startswith(text, at):
                    line += data.count(b"\n", counted, at)
                    counted = at
                    chosen = matches.setdefault(line, [])
                    chosen += [value for value in values if value not in chosen]


def split_block(data):
    """The lines of a block that ends with a newline, and their shapes."""
    return lines_of(data), shapes_of(data)


def lines_of(data):
    """The lines of a block that ends with a newline."""
    lines = data.split(b"\n")
    del lines[-1]
    return lines


def shapes_of(data):
    """The shapes of the lines of a block: most blocks need no line itself."""
    return lines_of(data.translate(None, DROPPED))


def has_long_line(data):
    """Whether a line of the block is longer than `MAX_LINE`: from each line's begin to the last end within reach."""
    begin = 0
    while begin < len(data):
        end = data.rfind(b"\n", begin, begin + MAX_LINE + 1)
        if end < 0:
            return True
        begin = end + 1
    return False


def covering_grams(literals, length):
    """Few texts of at most this length, each with the literals whose longest word has it and none before; greedy."""
    uncovered = {}
    containing = {}
    for literal in literals:
        word = max(literal.split(), key=len, default=literal)
        uncovered[literal] = set(word[at : at + length] for at in range(max(1, len(word) - length + 1)))
        for gram in uncovered[literal]:
            containing.setdefault(gram, set()).add(literal)
    counts = [(-len(holders), gram) for gram, holders in containing.items()]
    heapq.heapify(counts)
    chosen = []
    while uncovered:
        count, best = heapq.heappop(counts)
        holders = containing[best]
        if len(holders) < -count:  # others have covered some of its literals since
            heapq.heappush(counts, (-len(holders), best))
            continue
        chosen.append((best, sorted(holders)))
        for literal in list(holders):
            for gram in uncovered.pop(literal):
                containing[gram].discard(literal)
    return chosen


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
    """More than one byte in thirty is NUL; long runs, which a truncated file keeps or a crash leaves, do not count."""
    probe = re.sub(rb"^\0+|\0{64,}", b"", block)[:4096]
    return block.startswith(b"\x7fELF") or probe.count(b"\0") * 30 > len(probe)


def launcher_labels(data):
    """The ranks whose output a log holds: those with which srun or mpirun label each line, or that lines name.

    None where fewer than half of the lines show one. Of those that lines name, all from 0 on must be there, two at
    least, and each in some lines: a number behind the word may be anything else, and an error may name another rank.
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
    repeated = len(ranks) >= RANK_LINES * len(named)
    return tuple(named) if repeated and len(named) > 1 and named == list(range(len(named))) else ()
