"""The formats of the kernel's messages, out of a copy of Linux: which of them each row of the table of faults knows.

`python -m tests.vendor_tables linux PATH` shows what a newer Linux prints otherwise, and what it prints newly.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from doctor.facts.kernel_faults import KernelFaultRow, compiled_pattern, fault_rows, says
from doctor.facts.kernel_log import ERROR_LEVEL
from tests.facts.kernel_samples import messages_of

LEVELS = {"emerg": 0, "alert": 1, "crit": 2, "err": 3, "error": 3, "warn": 4, "warning": 4, "notice": 5, "info": 6}
_LEVEL = re.compile(r"(?:^|_)(emerg|alert|crit|error|err|warning|warn|notice|info)(?:_once|_ratelimited|_rl|_dev)?$")
_KERN = re.compile(r"KERN_(EMERG|ALERT|CRIT|ERR|WARNING|NOTICE|INFO)\b")
_STRING = r'"(?:[^"\\\n]|\\.)*"'
_CALL = re.compile(
    rf"\b(?P<name>\w{{2,40}})\(\s*(?P<before>[^\";{{}}]{{0,160}}?)(?P<text>{_STRING}(?:\s*{_STRING}){{0,5}})", re.S
)
_CONVERSION = re.compile(
    r"%(?:%|[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j)?(?P<kind>[a-zA-Z])[A-Za-z]{0,3})"
)
VALUES = {"d": "-110", "i": "-110", "u": "3", "x": "1f", "X": "1F", "s": "name", "p": "0000:3b:00.0", "c": "a"}
"""What stands for a conversion where a format is put before the table."""
LEAST = 8
"""Characters of its own that a format has, or it would be found everywhere."""


COLUMNS = "row\tlevel\tfile\tformat"


class KernelFormat(NamedTuple):
    """One message that a driver may print."""

    path: str
    level: int
    text: str

    @property
    def literal(self) -> str:
        """What is the same in each such message."""
        return _CONVERSION.sub("", self.text).strip()

    @property
    def pattern(self) -> re.Pattern[str]:
        """Finds the message in a record of the log."""
        pieces = [
            re.escape(piece) for piece in re.split(_CONVERSION.pattern.replace("?P<kind>", "?:"), self.text.strip())
        ]
        return re.compile(".{0,80}?".join(pieces))

    @property
    def example(self) -> str:
        """The message with some value for each conversion."""
        return _CONVERSION.sub(lambda match: VALUES.get(match["kind"] or "", "%"), self.text).strip()


def formats_of(path: str, source: str) -> Iterator[KernelFormat]:
    r"""The messages of one file in C, from notice level on.

    >>> list(formats_of("a.c", 'dev_err(&dev->dev, "reset failed: "\n"%d\\n", ret);'))
    [KernelFormat(path='a.c', level=3, text='reset failed: %d')]
    """
    for call in _CALL.finditer(source):
        kern, name = _KERN.search(call["before"]), _LEVEL.search(call["name"])
        if not (kern or name):
            continue
        level = LEVELS[(kern[1] if kern else name[1] if name else "").lower()]
        text = "".join(piece[1:-1] for piece in re.findall(_STRING, call["text"]))
        text = text.replace("\\n", "").replace('\\"', '"').replace("\\t", " ")
        shape = KernelFormat(path, level, text)
        if len(shape.literal) >= LEAST and level <= LEVELS["info"]:
            yield shape


def named_files(source: str, paths: Iterable[str], folders: bool = True) -> list[str]:
    """The files of a tree that a row's ``source`` names: by the end of its path, or, with ``folders``, a folder's.

    A name that stands alone, such as main.c, is that of the folder before it, where the folder has one.
    """
    in_c = [f"/{path}" for path in paths if path.endswith(".c")]
    found, folder = set[str](), ""
    for word in (each.rstrip(".,:;") for each in re.split(r"[\s,;()]+", source)):
        if word.endswith(".c"):
            ending = [path for path in in_c if path.endswith(f"/{word}")]
            found.update([path for path in ending if f"/{folder}/" in path] or ending)
            folder = word.rpartition("/")[0] or folder
        elif "/" in word:
            folder = word
            found.update(path for path in in_c if folders and f"/{folder}/" in path)
    return sorted(path[1:] for path in found)


def text_of_files(repository: str, paths: Iterable[str]) -> dict[str, str]:
    """Files of the newest commit. Raises: CalledProcessError."""
    texts = {}
    for path in paths:
        shown = subprocess.run(["git", "-C", repository, "show", f"HEAD:{path}"], check=True, capture_output=True)
        texts[path] = shown.stdout.decode("utf-8", "replace")
    return texts


def release(makefile: str) -> str:
    """As ``6.12.57``."""
    numbers = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL) = (\d+)$", makefile, re.M))
    return ".".join(numbers[name] for name in ("VERSION", "PATCHLEVEL", "SUBLEVEL"))


def is_found(row: KernelFaultRow, shape: KernelFormat) -> bool:
    """A row finds some message of the format, also behind a driver, which is called as its folder, and its device."""
    folders = shape.path.split("/")[1:-1]
    drivers = (
        f"{name}{end} {device}: " for name in folders for end in ("", "_core") for device in (VALUES["p"], f"{name}0")
    )
    return any(compiled_pattern(row.pattern).search(before + shape.example) for before in ("", *drivers))


def kernel_formats(repository: str) -> str:
    """The file recorded/kernel_formats.tsv: rows of the table with their formats, and formats that no row has."""
    listed = subprocess.run(
        ["git", "-C", repository, "ls-tree", "-r", "--name-only", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.split()
    rows = [row for row in fault_rows().values() if not row.unlisted and "github.com" not in row.source]
    files = {row.id: named_files(row.source, listed) for row in rows}
    texts = text_of_files(repository, [*sorted({path for paths in files.values() for path in paths}), "Makefile"])
    shapes = {path: list(dict.fromkeys(formats_of(path, text))) for path, text in texts.items()}
    note = "A row with - has a message of other releases, or one that is put together of pieces."
    lines = [f"# Linux {release(texts['Makefile'])}. {note} Written by python -m tests.vendor_tables.", COLUMNS]
    for row in rows:
        of_row = [shape for path in files[row.id] for shape in shapes[path]]
        for sample in messages_of(row.id):
            found = [shape for shape in of_row if shape.pattern.search(sample)]
            best = max(found, key=lambda shape: len(shape.literal), default=None)
            line = f"{row.id}\t{best.level}\t{best.path}\t{best.text}" if best else f"{row.id}\t-\t-\t{sample[:120]}"
            lines += [line] * (line not in lines)
    own = sorted({path for row in rows for path in named_files(row.source, listed, folders=False)})
    lines += [f"(none)\t{shape.level}\t{path}\t{shape.text}" for path in own for shape in _unlisted(shapes[path], rows)]
    return "\n".join(lines) + "\n"


def _unlisted(shapes: Iterable[KernelFormat], rows: Iterable[KernelFaultRow]) -> Iterator[KernelFormat]:
    """Errors by which a driver says that a device fails, and which only the rows for unlisted messages find."""
    for shape in shapes:
        text = shape.text
        is_failure = shape.level <= ERROR_LEVEL and says("failing", text) and not says("harmless", text)
        if is_failure and not any(is_found(row, shape) for row in rows):
            yield shape
