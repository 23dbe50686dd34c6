"""Paths that a launch line gives to its program: of data, and of results."""

from __future__ import annotations

import re

from doctor.job.launch_line import LaunchLine
from doctor.job.training.configurations import Arguments

_READ = re.compile(
    r"\b(?:data(?:sets?)?|corpus|train|valid(?:ation)?|val|test|eval|inputs?|tokenizer|vocab|merges?|load|resume|restore|"
    r"from|pretrained|weights|(?:base-)?model(?:-(?:name-or-)?path)?$)\b(?!.*cache)"
)
_WRITTEN = re.compile(r"\b(?:out|outputs?|saved?|logs?|logging|tensorboard|results?|dump|export|write)\b")
"""Names of options whose path a program reads, and of those to which it writes: others tell nothing."""
_IS_PATH = re.compile(r"\.{0,2}/[^$`*?{}]+\Z")
_IS_FOLDER = re.compile(r"(?:out|output|save|dir|folder)\Z")
_MOST_PATHS = 32


def named_data(line: LaunchLine) -> tuple[list[str], list[str]]:
    """Paths that the program reads, and paths to which it writes, by the names of their options; at most 32 each.

    >>> named_data(LaunchLine(text="", arguments=("--data", "/d/x.bin", "--save-dir=./out", "--lr", "1/2")))
    (['/d/x.bin'], ['./out'])
    """
    arguments = Arguments(line.arguments, line.unresolved_arguments, "")
    options = {**arguments.options, **arguments.overrides}
    named = [(name.replace("_", "-"), option.value) for name, option in options.items()]
    named += [("data", word) for word in arguments.positional]
    paths = [(name, path) for name, path in named if isinstance(path, str) and "://" not in path]
    written = [(name, path) for name, path in paths if _WRITTEN.search(name)]
    results = [path for name, path in written if _IS_PATH.match(path) or _IS_FOLDER.search(name)]
    inputs = [
        path for name, path in paths if _READ.search(name) and _IS_PATH.match(path) and (name, path) not in written
    ]
    return inputs[:_MOST_PATHS], results[:_MOST_PATHS]
