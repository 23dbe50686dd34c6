"""The page of a signature for `doctor explain`, and the list of all for `doctor list --signatures`. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from doctor.diagnose.render.log_values import with_commands
from doctor.diagnose.signature import Signature
from doctor.engine.language import localized, phrase
from doctor.engine.output_encoding import display_width
from doctor.report.layout.finding_table import cut
from doctor.report.layout.formatting import bracketed, wrapped

_ROLES = {
    "root": "the fault is on the rank or host that prints it",
    "victim": "the printing rank waited for another one, or lost it",
    "ambiguous": "either; the logs of other ranks decide",
    "link": "the fault is between the printing rank and the named peer",
    "wrapper": "text around another error",
    "evidence": "names a rank, a device or a setting; no fault",
    "benign": "noise; never a cause",
    "peer": "the fault is with the host that the line names",
    "job": "the fault is in the settings of the job",
    "own": "the fault is on the rank or host that prints it",
}
"""By role, and by what a line decides."""


def signature_page(signature: Signature, playbooks: Iterable[str], width: int) -> str:
    """The page; lines have at most ``width`` columns, except patterns, examples and commands."""
    heading = f"{signature.id}{localized(': ')}{localized(signature.title)}"
    lines = [heading, "=" * min(display_width(heading), width), ""]
    if signature.codes:
        lines += [phrase("Codes: {codes}", codes=", ".join(signature.codes))]
    printers = ", ".join(signature.components) or localized("any")
    lines += wrapped(
        phrase("Printed by: {components}; phase {phase}.", components=printers, phase=signature.phase), width
    )
    meaning = localized(_ROLES[signature.decides or signature.role])
    lines += wrapped(phrase("Role: {role}: {meaning}.", role=signature.role, meaning=meaning), width)
    if signature.note:
        lines += ["", *wrapped(localized(signature.note), width)]
    for title, items in (
        ("Likely causes", signature.causes),
        ("Confirm", signature.confirm),
        ("Fix", signature.fix),
        ("Follows from it", signature.explains),
        ("Checks before the next job", signature.checks),
        ("Playbooks", tuple(playbooks)),
        ("Patterns", tuple(dict.fromkeys(pattern.text for pattern in signature.compiled))),
        ("Example", tuple(sample.text.split("\n")[0][:300] for sample in signature.samples[:1])),
        ("Sources", signature.sources),
    ):
        if items:
            title_text = localized(title)
            lines += ["", title_text, "-" * display_width(title_text)]
            for text in map(with_commands, map(localized, items)):
                lines += [f"  {text}"] if title in ("Patterns", "Example") else wrapped(f"- {text}", width)
    return "\n".join(lines) + "\n"


def signature_list(signatures: Iterable[Signature], width: int) -> str:
    """One line for each signature, of at most ``width``; 0: as long as it is."""
    rows = [(signature.id, ",".join(signature.codes), localized(signature.title)) for signature in signatures]
    columns = max((len(row[0]) for row in rows), default=0)
    lines = []
    for name, codes, title in rows:
        line = f"{name:<{columns}}  {title}" + bracketed(codes)
        lines.append(cut(line, width) if width else line)
    return "".join(line + "\n" for line in lines)
