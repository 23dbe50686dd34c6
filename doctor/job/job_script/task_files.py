"""The recipes of a Makefile or a justfile as a job script, each line in its place. Pure; nothing of them is run.

Sources: GNU make, "Recipe Syntax" and "Setting Variables"
(https://www.gnu.org/software/make/manual/html_node/Setting.html); just, "Variables and Substitution"
(https://just.systems/man/en/).
"""

from __future__ import annotations

import re

_MAKE = re.compile(r"(?:GNU)?[Mm]akefile(?:\.\w+)?|[\w.-]+\.mk")
_JUST = re.compile(r"\.?[Jj]ustfile|[\w.-]+\.just")
_ASSIGNMENT = re.compile(r"\s*(export\s+)?(?:override\s+)?([A-Za-z_][\w-]*)\s*[:?+!]{0,2}=(.*)")
_OF_MAKE = re.compile(r"\$(?:[({]([A-Za-z_]\w{0,80})[)}]|\(shell ([^()\n]{0,400})\)|([({][^(){}\n]{0,400}[)}]|.))")
_OF_JUST = re.compile(r"\{\{\s{0,9}(?:([A-Za-z_][\w-]{0,80})|[^{}\n]{0,400}?)\s{0,9}\}\}")


def shell_of_recipes(text: str, path: str) -> str | None:
    r"""The script; None for another file.

    >>> shell_of_recipes("N ?= 8\nt:\n\t@torchrun --nproc-per-node=$(N) $$X.py $<\n", "Makefile")
    'N=8\n\ntorchrun --nproc-per-node=${N} $X.py "$(make)"'
    >>> shell_of_recipes('n := "8"\nt a:\n  torchrun --nproc-per-node={{n}} {{ a }}.py\n', "justfile")
    'n="8"\n\ntorchrun --nproc-per-node=${n} ${a}.py'
    """
    name = path.rpartition("/")[2]
    is_make = _MAKE.fullmatch(name) is not None
    if not is_make and not _JUST.fullmatch(name):
        return None
    lines: list[str] = []
    continued = False
    for line in text.splitlines():
        is_recipe = line.startswith("\t" if is_make else ("\t", " "))
        assigned = None if is_recipe else _ASSIGNMENT.fullmatch(line[:2000])
        if is_recipe:
            command = line.strip() if continued else re.sub(r"^[@+-]+", "", line.strip())
            lines.append(_OF_MAKE.sub(_from_make, command) if is_make else _OF_JUST.sub(_from_just, command))
        elif assigned:
            assigned_text = assigned[3].partition("#")[0].strip()
            value = _OF_MAKE.sub(_from_make, assigned_text) if is_make else assigned_text
            value = f'"{value}"' if is_make and re.search(r"[\s;|&<>()]", value) and '"' not in value else value
            lines.append((assigned[1] or "") + f"{assigned[2].replace('-', '_')}={value}")
        else:
            lines.append("")
        continued = is_recipe and line.endswith("\\")
    return "\n".join(lines)


def _from_make(match: re.Match[str]) -> str:
    if match[3] == "$":
        return "$"
    return f"${{{match[1]}}}" if match[1] else f"$({match[2]})" if match[2] else '"$(make)"'


def _from_just(match: re.Match[str]) -> str:
    return f"${{{match[1].replace('-', '_')}}}" if match[1] else '"$(just)"'
