"""Commands of a shell that compute values, or set up what a program inherits. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from doctor.job.shell.word import Word

_SETS_UP = (
    ": . [ [[ awk basename cat cd cut date declare dirname echo egrep exit export expr false free getent grep hash "
    "head hostname id ip local ls lscpu mkdir ml module nproc popd printenv printf pushd pwd readlink readonly "
    "realpath return scontrol sed seq set shift shopt shuf sleep sort source tail taskset test tr true type typeset "
    "ulimit umask uname uniq unset wait wc which whoami"
)
SETS_UP = frozenset(_SETS_UP.split())
"""Commands that compute values, or set up what a program inherits."""
ACTIVATES = {
    **dict.fromkeys(("conda", "mamba", "micromamba", "pyenv", "spack"), ("activate", "deactivate")),
    "nvidia-smi": ("-L", "--list-gpus", "--query-gpu"),
}
"""And the first words with which others do."""
_COUNTS = re.compile(r"import torch *(?:[;,\n] *)?print\(torch\.(?:cuda|npu|xpu)\.device_count\(\)\) *")
"""Python text that only counts devices."""
_SUBSTITUTION = re.compile(r"s([/|,#@])(?:\\.|(?!\1)[^\\])*\1(?:\\.|(?!\1)[^\\])*\1[gIip0-9]*")
_CHANGES = {
    "awk": re.compile(r'system|getline|>>? ?"|\| ?"|\|&|print(?:(?!print)[^}>])*>|(?:^| )-i'),
    "date": re.compile(r"(?:^| )(?:-s|--set|-f|--file)"),
    "hostname": re.compile(r"(?:^| )[^-\s]"),
    "ip": re.compile(r"(?:^| )(?:-b|add|append|change|del(?:ete)?|exec|flush|replace|save|set)\b"),
    "scontrol": re.compile(r"^(?:-\S+ )*(?!show|host|list|vers|ping)[a-z]"),
    "sed": re.compile(r"(?:^| )(?:-i|--in-place|-[a-zA-Z]*f|--file)|(?:^|[;{}0-9$/] ?)[eEwW](?:$|[ ./;}])"),
    "sort": re.compile(r"(?:^| )(?:-[a-zA-Z]*o|--o|--c)"),
    "uniq": re.compile(r"(?:^| )[^-\s]\S* (?:\S+ )*[^-\s]"),
}
"""Arguments with which such a command changes the host or starts another one."""


def sets_up(argv: Sequence[Word]) -> bool:
    """Whether a command is one of them."""
    if not argv:  # all its words are variables that are not set
        return True
    name, *rest = argv
    if name.unresolved:
        return False
    if name.text in ACTIVATES:
        return bool(rest) and rest[0].text.partition("=")[0] in ACTIVATES[name.text]
    if len(rest) == 2 and rest[0].text == "-c" and name.text.startswith("python"):
        return _COUNTS.fullmatch(rest[1].text) is not None
    text, rule = " ".join(word.text for word in rest), _CHANGES.get(name.text)
    if rule and rule.search(_SUBSTITUTION.sub("", text) if name.text == "sed" else text):
        return False
    return name.text in SETS_UP and (name.text != "taskset" or "-p" in [word.text for word in rest])
