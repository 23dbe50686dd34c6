"""Writes every generated file anew: ``python -m tests.regen``, or ``hatch run regen``.

python -m tests.regen                help.txt, man page, completion, generated parts of pages, golden reports, schemas
python -m tests.regen --check        names what is stale, writes nothing, and exits 1 if there is any
python -m tests.regen --transcripts  the README's transcripts, too, from real runs on test hosts (root, torch)
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import msgspec

from doctor.cli.app import application
from doctor.cli.saved_pages import HELP
from doctor.diagnose.signature import COMPILED, FOLDER, digest_of
from doctor.engine.smoke_failures import FAILURE_KINDS
from doctor.engine.toml_compat import loads, toml_files
from doctor.fix.documents import FixedDocument, PlansDocument, UndoDocument
from doctor.fix.plan import FixPlan
from tests import help_pages, manual, readme, saved_pages, translations
from tests.report import golden

HELP_WIDTH = 80
"""Columns of help.txt."""

DOCUMENTS: dict[str, tuple[type[msgspec.Struct], str]] = {
    "doctor.plan/1": (FixPlan, "What `doctor fix --json` prints: what will be done on every host."),
    "doctor.fixed/1": (FixedDocument, "What `doctor fix ID --apply --json` prints: what became of an applied plan."),
    "doctor.undo/1": (UndoDocument, "What `doctor fix --undo ID --json` prints: what became of each step's undo."),
    "doctor.plans/1": (PlansDocument, "What `doctor fix --list --json` prints: every saved plan, oldest first."),
}
"""The type and the purpose of each document."""


def json_schema(name: str) -> dict[str, object]:
    """The JSON Schema of a document of `DOCUMENTS`. Raises: KeyError.

    >>> json_schema("doctor.plans/1")["properties"]["schema"]
    {'const': 'doctor.plans/1'}
    """
    document, purpose = DOCUMENTS[name]
    (schema,), definitions = msgspec.json.schema_components([document], ref_template="#/$defs/{name}")
    top = definitions.pop(schema["$ref"].rpartition("/")[2])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:cluster-doctor:{name}",
        "title": name,
        "description": f"{purpose} Within version 1, keys are only added.",
        "type": "object",
        "properties": {**top["properties"], "schema": {"const": name}},
        "required": sorted({*top["required"], "schema"}),
        "$defs": definitions,
    }


def help_text(*argv: str, width: int = HELP_WIDTH) -> str:
    """What the command line prints for these words."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        application(argv)([*argv], prog_name="doctor", terminal_width=width)
    return out.getvalue()


def schema_file(name: str) -> Path:
    """The JSON Schema of a document, such as ``doctor.plan/1``."""
    return Path(str(files("doctor.report") / "schema" / f"{name.replace('/', '.')}.json"))


def report_schema() -> str:
    """The schema of a report, which is written by hand but for the kinds of failures."""
    schema = json.loads(schema_file("doctor.report/1").read_text("utf-8"))
    schema["$defs"]["trouble"]["properties"]["kind"]["enum"] = list(FAILURE_KINDS)
    return json.dumps(schema, indent=2) + "\n"


def compiled_signatures() -> str:
    """All signatures of the package as JSON, one a line, with the digest of the files that hold them."""
    texts = [path.read_bytes() for path in toml_files(FOLDER)]
    rows = [row for text in texts for row in loads(text.decode())["signature"]]
    lines = ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    return f'{{"digest":"{digest_of(texts)}","signatures":[\n{lines}\n]}}\n'


def generated() -> Iterator[tuple[Path, str | None]]:
    """Every generated file and what it should hold; None for one that should not exist."""
    yield Path(HELP), help_text("--help")
    for name in DOCUMENTS:
        yield schema_file(name), json.dumps(json_schema(name), indent=2) + "\n"
    yield schema_file("doctor.report/1"), report_schema()
    yield COMPILED, compiled_signatures()
    yield translations.COMPILED, translations.compiled()
    yield saved_pages.FILE, saved_pages.content()
    yield from help_pages.pages()
    for page in (*readme.PAGES, *readme.CHINESE):
        yield page, readme.refreshed(page)
    yield from manual.generated()
    reports = {golden.FOLDER / name: make() for name, make in golden.files()}
    yield from reports.items()
    brief = reports[golden.FOLDER / "npu_fleet.zh80-brief.txt"]
    yield help_pages.README, help_pages.with_report(brief)
    yield from ((path, None) for path in golden.FOLDER.glob("*.txt") if path not in reports)


def stale() -> Iterator[tuple[Path, str | None]]:
    """Those whose content is another one."""
    for path, content in generated():
        if content != (path.read_text("utf-8") if path.exists() else None):
            yield path, content


def write(path: Path, content: str | None) -> None:
    if content is None:
        path.unlink()
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")


def main(argv: list[str]) -> int:
    unknown = set(argv) - {"--check", "--transcripts"}
    if unknown:
        print(f"{unknown.pop()}: expected --check or --transcripts", file=sys.stderr)
        return 2
    if "--transcripts" in argv:
        from tests import transcripts

        transcripts.write()
    files = 0
    for path, content in stale():  # each is written before the next is made: reports are made with the catalogue
        files += 1
        print(f"{'stale' if '--check' in argv else 'wrote'} {path.relative_to(readme.ROOT)}")
        if "--check" not in argv:
            write(path, content)
    return 1 if files and "--check" in argv else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
