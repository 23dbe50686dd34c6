"""Tracebacks of Python in a log, as the output of several ranks mixes them."""

import re

from doctor.diagnose.excerpter.line_choice import MPIRUN_LABEL
from doctor.remote.runtime.stack_frames import is_of_program

TRACEBACK_LINES = 400  # lines of one traceback
TRACEBACK_HEAD = "Traceback (most recent call last)"
HEADS = (TRACEBACK_HEAD, "'RAY_IGNORE_UNHANDLED_ERRORS=1'): ray::")  # the second: of Ray, instead of the first
EXCEPTION = re.compile(
    r"^(?:\[(?:rank|default)?\d+\]:?)?\s?(?P<exception>[A-Za-z_][\w.]{0,120})(?:: (?P<message>.*))?$"
)
LABEL = re.compile(
    rf"^(?:{MPIRUN_LABEL} ?|\[[\w@,.:-]{{1,80}}\]:? ?|\d{{1,6}}: )?"
    r"(?:\([\w .,=:<>-]{1,80}\) )?"
    r"(?:(?:ERROR|CRITICAL) \d\d-\d\d (?P<clock>\d\d:\d\d:\d\d) \[?[\w./-]{1,80}:\d{1,6}\] ?)?"
)  # of ranks and actors, and the head that vLLM prints before each line of a traceback
LABEL_END = re.compile(r"(?:[^\w\s]\s{0,8}|[\t|]|\dZ )$")  # of a label that is not known
PREFIX_LENGTH = 120
MAX_LABELS = 1000  # that are learned in one log
DIGITS = re.compile(r"\d{1,19}")
MOVING = re.compile(r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|\d{9,19}")  # in a label: clocks, which differ from line to line
NAMED_AS_ERROR = re.compile(r"(?:Error|Exception|Interrupt|Timeout|Failed|Failure|Exhausted|Died)\w{0,20}$")
RAY_ORIGIN = re.compile(
    r"\(pid=(?P<pid>\d{1,10}), ip=(?P<host>[\d.]{7,15})[,)]"
)  # where the exception was raised that ray shows in the traceback of another process: RayTaskError
IGNORED = re.compile(r"Exception ignored (?:in|while|from|on)\b|--- Logging error ---")
FRAME = re.compile(
    r'(?P<indent> {0,40}?)(?:  |\t| )File "(?P<path>[^"]{1,400})", line (?P<line>\d{1,7})'
    r"(?:, in (?P<function>[\w.<>]{1,80}))?"
)
STAGE = re.compile(
    r"(?P<data>torch/utils/data/|-packages/(?:datasets|webdataset|streaming|nvidia/dali)/|mindspore/dataset/"
    r"| in (?:__getitem__|collate_fn|_?preprocess_\w+|load_dataset|get_datasets?|build_(?:\w{1,30}_)?datasets?)\b)"
    r"|(?P<weights> in (?:from_pretrained|_?load_(?:state_dict|weights|model|checkpoint|pretrained|sharded)\w*)\b"
    r"|torch/serialization\.py in _?load)"
    r"|(?P<saving> in _?save_(?:\w{1,40}_)?(?:pretrained|checkpoint|state|model)\w*"
    r"|/safetensors/torch\.py in (?:save_|_flatten|_tobytes)|torch/serialization\.py in (?:_?save|__exit__))"
    r"|(?P<settings>(?:/os\.py|<frozen os>) in __getitem__|/argparse\.py |/omegaconf/|/hydra/_internal/|/pydantic/"
    r"| in (?:_?parse_\w*args\w*|_?validate_\w*args|validate_config\w*|verify_\w*config|__post_init__)\b)"
    r"|(?P<compiler>torch/_(?:inductor|dynamo)/(?!eval_frame)|/triton/(?:compiler|backends)/)"
    r"|(?P<backward> in backward\b|torch/autograd/__init__\.py )"
    r"|(?P<optimizer>torch/optim/|/apex/optimizers/| in (?:optimizer_step|_take_model_step|clip_grad_norm_?)\b)"
    r"|(?P<wrapping>torch/nn/parallel/distributed\.py in __init__|/fsdp/\w{1,60}\.py in (?:__init__|_auto_wrap)"
    r"|deepspeed/(?:__init__\.py in initialize|runtime/engine\.py in __init__)| in _?prepare_(?:model|\w{1,9}speed)\b)"
    r"|(?P<forward>torch/nn/(?:modules/module|functional)\.py | in (?:forward|_?forward_\w+)\b)"
    r"|(?P<building> in (?:build_model|get_model|model_provider|setup_model\w*|_?init(?:ialize)?_model|init_weights)\b)"
    r"|(?P<collective>torch/distributed/(?:distributed_c10d|c10d_logger)\.py )"
    r"|(?P<group>torch/distributed/elastic/rendezvous/| in (?:init_process_group|init\w{0,12}_distributed\w*)\b)"
    r"|(?P<import><frozen importlib|importlib/__init__\.py )"
)  # of frames, as `path in function`: what the program did there
HEADLESS_LINES = 4  # at the beginning of a log: a frame in one of them is of a traceback whose first line was cut off
NO_PLACE = ("", False, "")
REFUSED = re.compile(r"\d{1,4} validation errors? for ")  # how pydantic counts what it refuses, and says it below
BELOW = 3  # lines below that of an exception, in which its message may go on
INNER_LABEL = re.compile(r"\[(?:rank|default)?\d{1,6}\]:? $")


def label_of(text):
    """The label of a rank before the line, with which launchers tell the output of ranks apart."""
    match = LABEL.match(text)
    return match.group() if match else ""


def head_at(text):
    """Where the line says that a traceback follows; -1: it does not."""
    return max(map(text.find, HEADS))


def label_before_head(text):
    """The label right before the first line of a traceback, which a progress bar may have begun."""
    label = label_of(text)
    between = text[len(label) : head_at(text)]
    match = INNER_LABEL.search(between[-200:])
    return match.group() if match and match.group() != between else label


def stage_of(frame):
    """What the program does in a frame, as `STAGE` names it; empty where the frame does not show it."""
    path = frame.group("path").replace("\\", "/")
    stage = STAGE.search(path + " in " + (frame.group("function") or ""))
    return stage.lastgroup if stage else ""


def stream_of(label):
    """What stays the same in the label of all lines of one traceback."""
    return MOVING.sub("", label)


def goes_on_below(exception):
    """Whether the message of an exception, by the match of its line, stands in the lines below. Python prints a name
    without a colon where there is no message.
    """
    message = exception.group("message")
    return message is not None and (not message.strip() or REFUSED.match(message) is not None)


class OpenTracebacks:
    """The tracebacks whose exception was not printed yet: one for each label, such as ``[rank3]:``.

    What stands before the first line of one, and is no label that is known, may be a label, too: that of a collector
    of logs, or of pdsh. The line behind it tells which: it begins with it, or it does not.
    """

    def __init__(self):
        self.lines_left = {}
        self.frames = set()  # of those, where the last line names the file of a frame
        self.unfinished = set()  # of those, where the last line is one of a frame
        self.headless = set()  # of those, whose first line is not in the log
        self.harmless = set()  # of those, that end nothing, as the line before them says
        self.prefix = None  # the pattern of a label that is not known
        self.labels_left = MAX_LABELS
        # By label: file and line of the last frame, that of the program before those of libraries; whether it is the
        # program's; and the indent before all lines, as of a traceback that a launcher quotes in its report.
        self.places = {}
        self.place = ""  # that of the traceback which ended last
        self.statements = {}  # by label: the line of source below the last frame
        self.statement = ""  # that of the traceback which ended last
        self.stages = {}  # by label: what the program did in the innermost frame that shows it
        self.stage = ""  # that of the traceback which ended last
        self.rivals = {}  # of two that one first line may have begun: the other

    def __len__(self):
        return len(self.lines_left)

    def label_of(self, text):
        """The label before the line, known or learned."""
        match = self.prefix.match(text) if self.prefix else None
        return match.group() if match else label_of(text)

    def open(self, text):
        before = text[: head_at(text)]
        stream = stream_of(label_before_head(text))
        self.begin(stream)
        if (
            self.labels_left
            and 0 < len(before) <= PREFIX_LENGTH
            and LABEL_END.search(before)
            and before not in (label_of(text), stream)
        ):
            self.labels_left -= 1
            self.prefix = re.compile(DIGITS.sub(r"\\d{1,19}", re.escape(before)))
            other = stream_of(before)
            self.begin(other)
            if other != stream:
                self.rivals.update({stream: other, other: stream})

    def open_headless(self, text):
        """A frame, or its source, at the beginning of a log: the first line of its traceback was cut off."""
        label, stream = label_of(text), stream_of(label_of(text))
        source = INNER_LABEL.match(label) and text.startswith("    ", len(label))
        if (source or FRAME.match(text[len(label) :])) and stream not in self.lines_left:
            self.begin(stream)
            self.headless.add(stream)

    def begin(self, stream):
        self.lines_left[stream] = TRACEBACK_LINES
        self.places.pop(stream, None)
        self.statements.pop(stream, None)
        self.stages.pop(stream, None)
        self.headless.discard(stream)
        self.harmless.discard(stream)
        self.rivals.pop(self.rivals.pop(stream, ""), None)

    def end(self, stream):
        for kept in (self.frames, self.unfinished, self.headless):
            kept.discard(stream)
        self.lines_left.pop(stream, None)
        self.place = self.places.pop(stream, NO_PLACE)[0]
        self.statement = self.statements.pop(stream, "")
        self.stage = self.stages.pop(stream, "")
        self.rivals.pop(self.rivals.pop(stream, ""), None)

    def note_place(self, stream, frame):
        """Where the exception arose: the last frame of the program itself, else of a library; and in which stage."""
        self.stages[stream] = stage_of(frame) or self.stages.get(stream, "")
        place, of_program, _ = self.places.get(stream, NO_PLACE)
        if is_of_program(frame.group("path")) or not of_program:
            place = "/".join(frame.group("path").replace("\\", "/").split("/")[-2:]) + ":" + frame.group("line")
        self.places[stream] = (place, of_program or is_of_program(frame.group("path")), frame.group("indent"))

    def note_harmless(self, text, before):
        """Of the traceback that the line opened, from the lines before it: whether it ends nothing."""
        stream = stream_of(label_before_head(text))
        alike = (line for line in reversed(before) if stream_of(label_before_head(line)) == stream)
        if IGNORED.search(next(alike, "")):
            self.harmless.add(stream)

    def is_harmless(self, text):
        return stream_of(self.label_of(text)) in self.harmless

    def is_telling_frame(self, text):
        """Whether the line names a place of the program in an open traceback, or shows what it did."""
        label = self.label_of(text)
        match = FRAME.match(text[len(label) :])
        if match is None or stream_of(label) not in self.lines_left:
            return False
        return is_of_program(match.group("path")) or stage_of(match) != ""

    def holds(self, text):
        return stream_of(self.label_of(text)) in self.lines_left

    def is_source(self, text):
        """Whether the line is that of the program that a traceback quotes below the name of its file."""
        label = self.label_of(text)
        begin = self.places.get(stream_of(label), NO_PLACE)[2] + "    "
        return stream_of(label) in self.frames and text[len(label) :].startswith(begin)

    def ends_within(self, text):
        """Whether the log whose last line this is ends within a traceback."""
        label = self.label_of(text)
        return stream_of(label) in self.unfinished and text[len(label) :].startswith("  ")

    def read(self, text):
        """(whether an open traceback may end here, the match of its exception's line or None).

        That line is the first that is neither indented nor empty.
        """
        label = self.label_of(text)
        stream = stream_of(label)
        if stream not in self.lines_left:
            return False, None
        self.lines_left[stream] -= 1
        rest = text[len(label) :]
        if rest.startswith((" ", "\t")) and (stream in self.frames or rest.lstrip().startswith("assert ")):
            self.statements[stream] = rest.strip()
        self.frames.discard(stream)
        frame = FRAME.match(rest)
        if frame:
            self.frames.add(stream)
            self.note_place(stream, frame)
            if stream in self.rivals:
                self.end(self.rivals[stream])
        if self.lines_left[stream] <= 0:
            self.end(stream)
            return False, None
        indent = self.places.get(stream, NO_PLACE)[2]
        rest = rest[len(indent) :] if rest.startswith(indent) else rest
        if not rest.strip() or rest.startswith((" ", "\t", "Traceback (most recent")):
            if frame:
                self.unfinished.add(stream)
            return False, None
        exception = EXCEPTION.match(rest)
        self.unfinished.discard(stream)
        if exception and stream in self.headless and not NAMED_AS_ERROR.search(exception.group("exception")):
            self.end(stream)
            return False, None
        if exception:
            self.end(stream)
        return True, exception
