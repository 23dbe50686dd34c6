"""Signatures: what a line of a log means. Data in ``doctor/diagnose/signatures/*.toml``, and in a site's own folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

import msgspec

from doctor.engine import toml_compat
from doctor.engine.bounded_read import read_bounded
from doctor.engine.sanitize import file_name, printable_excerpt
from doctor.engine.texts import filled
from doctor.facts.kernel_faults import fault_rows, fault_text, fault_words

Role = Literal["root", "victim", "ambiguous", "link", "wrapper", "evidence", "benign"]
"""What the line says of the rank that printed it.

- ``root``: the fault is on this rank or its host; ``victim``: this rank waited for another, or lost it.
- ``link``: the fault is between this rank and the named peer; ``ambiguous``: either, other logs decide.
- ``wrapper``: text around another error; ``evidence``: progress or names.
- ``benign``: noise, or what the program prints as its data: nothing in the line is a failure.
"""
ERROR_ROLES: frozenset[Role] = frozenset({"root", "victim", "ambiguous", "link"})
"""Of errors: the others are no errors, or stand around one."""
Phase = Literal["init", "connect", "compile", "data", "exec", "exit"]
Trait = Literal[
    "about-others",
    "ends-all",
    "failure-report",
    "from-outside",
    "good-end",
    "group-rank",
    "has-other-ways",
    "launch-end",
    "less-specific",
    "lines-left-out",
    "peer-ended",
    "progress",
    "quoted",
    "restart",
    "unspecific",
]
"""What the rules know of a line beside its role.

- ``about-others``: a launcher or scheduler says it of a process that does not print it
- ``ends-all``: all ranks were ended from outside; that a rank was killed then shows nothing
- ``failure-report``: a launcher or scheduler says that a rank, or the job, ended badly
- ``from-outside``: something outside the job ended the process, or told a launcher to
- ``good-end``: the run, or a rank of it, ended well
- ``group-rank``: its ``rank`` is that in a communicator, which need not be the world
- ``has-other-ways``: the library may go on in another way, as without RDMA, or try again; or the line leaves open why.
  So the line alone is no certain cause
- ``launch-end``: mpirun or srun says how ranks ended; a rank that does so twice in one file was started twice
- ``less-specific``: says less than another fault of the same process; in the phase ``exit`` only how it ended
- ``lines-left-out``: the log lacks lines of this or of other processes: that a rank shows no error means nothing
- ``peer-ended``: the process of a peer had ended; the rank that prints it ends with an exception, never by a signal
- ``progress``: a step of the program: it goes on. Read only behind an error, and never from a host
- ``quoted``: the exception itself says what is wrong: its sentence, and where it arose, complete the title
- ``restart``: what stands before it belongs to an earlier attempt
- ``unspecific``: reports a failure without what failed: any other fault, of whichever process, says more
"""

Remedy = Literal["", "drain-host", "fix-host", "retry", "fix-program", "fix-settings", "give-memory"]
"""What a person, or a controller of jobs, does about the cause before the job runs again; empty: look further.

- ``drain-host``: no job runs on the host until its hardware is repaired; ``fix-host``: a setting or service of the host
- ``fix-settings``: the settings of the job; ``give-memory``: less use of memory, or more of it
- ``fix-program``: a further try fails alike; ``retry``: nothing of the job has failed
"""

FOLDER = Path(__file__).with_name("signatures")
COMPILED = FOLDER / "compiled.json"
"""What the files of the folder hold, in the form that is read most quickly; ``python -m tests.regen`` writes it."""
MAX_BYTES = 1 << 20
"""Bytes of one file of signatures."""
MIN_LITERAL = 3
"""Characters. A pattern must contain a literal of this length, with which lines are chosen before it is tried."""


class SignatureError(Exception):
    """One line: the file, the signature, what is wrong, and what was expected."""


class Sample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line that the signature matches."""

    text: str
    verbatim: bool = False
    """True for a line of a public log; False where values were filled in around a literal message."""


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    r"""One kind of log line.

    Named groups of ``patterns`` become the values of an event. These names have a meaning for the rules:

    - of the printing rank: ``rank``, ``local_rank``, ``device``, ``host``, ``address``, ``pid``,
      ``world_size``, ``group``, ``exit_code``
    - of the operation: ``op``, ``tag``, ``seq``, ``count``, ``timeout_s``, ``timeout_ms``, ``enqueued``, ``completed``
    - of the printing rank within the communicator of the line: ``own_group_rank``
    - of the rank that it waits for: ``peer_rank``, ``peer_group_rank``, ``peer_host``, ``peer_device``,
      ``peer_address``, ``peer_endpoint`` (``address<port>`` or ``host/device``), ``host_name`` (with a port)
    - of the culprit, where the library itself names it: ``culprit_rank``, ``culprit_ranks`` (comma-separated),
      ``culprit_host``, ``culprit_device``, ``culprit_pid``, ``culprit_pod``, ``culprit_nodes`` (of MindSpore's cluster)
    - of an argument that the ends of a collective compare: ``parameter``, ``own_value``, ``peer_value``
    - of a row of Slurm's accounting: ``slurm_job``, ``slurm_step``; of a message of srun: ``job``
    """

    id: str
    title: str
    role: Role
    phase: Phase
    patterns: tuple[str, ...]
    """Python regular expressions, searched in one line of at most 4,096 characters."""
    kernel_faults: tuple[str, ...] = ()
    """Rows of ``doctor/facts/kernel_faults.toml``: messages of the kernel that say the same."""
    action: Remedy = ""
    components: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    """Error codes of the vendor, such as EI0002."""
    explains: tuple[str, ...] = ()
    """Signatures that follow from this one, on this or on other ranks."""
    causes: tuple[str, ...] = ()
    """Likely causes, the likeliest first."""
    confirm: tuple[str, ...] = ()
    """Commands or observations that confirm a cause."""
    fix: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    """Checks of `doctor check` that find the cause before a job."""
    playbooks: tuple[str, ...] = ()
    note: str = ""
    sources: tuple[str, ...] = ()
    """URLs, or a repository and a file, of the vendor's text."""
    samples: tuple[Sample, ...] = ()
    quiet: bool = False
    """Also looked for in lines that CANN and MindSpore print at INFO, DEBUG, EVENT or TRACE level."""
    traits: tuple[Trait, ...] = ()
    about_others_if: tuple[str, ...] = ()
    """Texts: a line that contains one of them has the trait ``about-others``."""
    decides: Literal["", "peer", "link", "job", "own"] = ""
    """The line shows why what it explains failed, and where that lies: with the host that it names, with the link
    between that and the rank that prints it, with the settings of the job, or with the host of that rank alone. It is
    a variant of what it explains.
    """
    reports: Literal["", "certain", "likely"] = ""
    """A driver, monitor or scheduler says that a process, pod or task ended: a cause, with this confidence."""
    field_of: tuple[str, ...] = ()
    """Signatures with ``reports`` whose lines this one completes: it names the pod, pid or host that they are about."""
    field_lines: tuple[int, int] = (0, 0)
    """How many lines before and behind such a report the field may stand."""
    timeout: str = ""
    """The setting whose time had passed where the line says that a wait ended: the layer's own, as a user names it."""
    code_table: Literal["", "cann", "cuda", "grpc", "hccl", "http", "ibv", "mindie", "nccl", "ucs"] = ""
    """Of ``error_codes.toml``: it names the number in the group ``code``."""
    wrong_beside: tuple[str, ...] = ()
    """Signatures of the same process beside which this one is reported wrongly by the library."""

    @property
    def is_of_launch(self) -> bool:
        """It says that a launcher could not start ranks: what ends afterwards follows from that."""
        return bool(self.reports) and self.phase == "init"

    @property
    def is_about_launch(self) -> bool:
        """As `is_of_launch`, or it completes another line."""
        return self.is_of_launch or bool(self.field_of)

    @cached_property
    def compiled(self) -> tuple[Pattern, ...]:
        """Each pattern with the literal that selects lines for it."""
        of_kernel = (Pattern(fault_text(name), (word,)) for name in self.kernel_faults for word in fault_words([name]))
        return (*(Pattern(text, literals(text)) for text in self.patterns), *of_kernel)


class Pattern(msgspec.Struct, frozen=True, dict=True):
    """A pattern, and texts that every line it matches contains, the longest first."""

    text: str
    literals: tuple[str, ...]

    @property
    def literal(self) -> str:
        """The longest one."""
        return self.literals[0]

    @cached_property
    def encoded(self) -> tuple[bytes, ...]:
        """The literals as they stand in a log."""
        return tuple(literal.encode() for literal in self.literals)

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """Compiled when the first line contains the literal: a log needs few of some hundred. Raises: re.error."""
        return re.compile(self.text)


class _SignatureFile(msgspec.Struct, forbid_unknown_fields=True):
    signature: list[Signature]


class _Compiled(msgspec.Struct):
    digest: str
    """Of the files that it was made from; with others it is not read."""
    signatures: list[Signature]


def load_signatures(folders: Sequence[Path] = ()) -> dict[str, Signature]:
    """All signatures by id: the bundled ones, then those of ``folders``.

    Raises: SignatureError for a file that cannot be read, a rule that is broken, or an id that exists twice.
    """
    loaded: dict[str, Signature] = {}
    for signature in _bundled():
        _enter(loaded, FOLDER, signature)
    for path in (path for folder in folders for path in _signature_files(folder)):
        for signature in _read(path):
            validate_signature(path, signature)
            _enter(loaded, path, signature)
    for signature in loaded.values():
        for field in ("explains", "wrong_beside", "field_of", "kernel_faults"):
            names: tuple[str, ...] = getattr(signature, field)
            allowed = fault_rows() if field == "kernel_faults" else loaded
            absent = next((name for name in names if name not in allowed), "")
            if absent:
                problem = f"{field} {printable_excerpt(absent)!r}"
                raise SignatureError(filled("{0}: {1}; expected a signature's id", signature.id, problem))
    return loaded


def _enter(loaded: dict[str, Signature], path: Path, signature: Signature) -> None:
    if signature.id in loaded:
        raise SignatureError(
            filled("{0}: {1} exists twice; expected an id of its own", file_name(path), f"{signature.id!r}")
        )
    loaded[signature.id] = signature


def _signature_files(folder: Path) -> list[Path]:
    try:
        return toml_compat.toml_files(folder)
    except OSError as error:
        raise SignatureError(
            filled("{0}: {1}; expected a folder with signatures", file_name(folder), error.strerror)
        ) from None


def validate_signature(path: Path, signature: Signature) -> None:
    """Raises: SignatureError for a signature that breaks a rule; ``path`` is the file that it is in."""
    where = f"{file_name(path)}: {printable_excerpt(signature.id)}"
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", signature.id):
        raise SignatureError(filled("{0}: expected an id of lower-case words joined by hyphens", where))
    for text in signature.patterns:
        try:
            re.compile(text)
        except re.error as error:
            raise SignatureError(
                filled("{0}: {1}; expected a regular expression: {2}", where, error, printable_excerpt(text))
            ) from None
        if len(longest_literal(text)) < MIN_LITERAL:
            raise SignatureError(
                filled("{0}: expected {1} literal characters in {2}", where, MIN_LITERAL, printable_excerpt(text))
            )
    if not signature.patterns:
        raise SignatureError(filled("{0}: expected at least one pattern", where))


@cache
def _bundled() -> Sequence[Signature]:
    """Those that come with the package, read once for all catalogs; tests validate them."""
    paths = _signature_files(FOLDER)
    try:
        texts = [read_bounded(path, MAX_BYTES) for path in paths]
        compiled = msgspec.json.decode(read_bounded(COMPILED), type=_Compiled)
    except (OSError, msgspec.MsgspecError):
        compiled = None
    if compiled and compiled.digest == digest_of(texts):
        return compiled.signatures
    return [signature for path in paths for signature in _read(path)]


def digest_of(texts: Sequence[bytes]) -> str:
    """Of the contents of these files, in their order."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(hashlib.sha256(text).digest())
    return digest.hexdigest()[:32]


def _read(path: Path) -> Sequence[Signature]:
    try:
        data = toml_compat.loads(read_bounded(path, MAX_BYTES).decode())
        return msgspec.convert(data, _SignatureFile).signature
    except OSError as error:
        raise SignatureError(
            filled("{0}: {1}; expected a readable file of signatures", file_name(path), error.strerror)
        ) from None
    except (ValueError, msgspec.ValidationError, RecursionError) as error:
        raise SignatureError(
            filled("{0}: {1}; expected signatures", file_name(path), printable_excerpt(str(error), 200))
        ) from None


def longest_literal(pattern: str) -> str:
    r"""The longest text that each match of ``pattern`` contains; empty where there is none.

    >>> longest_literal(r"Timed out waiting (?P<ms>\d+)ms for")
    'Timed out waiting '
    """
    return literals(pattern)[0]


def literals(pattern: str) -> tuple[str, ...]:
    r"""The texts that each match of ``pattern`` contains, the longest first; an empty one where there is none.

    Groups and classes are not looked into, and a top-level ``|`` leaves nothing that is certain.

    >>> literals(r"Timed out waiting (?P<ms>\d+)ms for")
    ('Timed out waiting ', 'ms for')
    """
    runs: list[str] = [""]
    index = 0
    while index < len(pattern):
        letter = pattern[index]
        if letter == "|":
            return ("",)
        if letter == "\\" and pattern[index + 1 : index + 2] and not pattern[index + 1].isalnum():
            letter, width, literal = pattern[index + 1], 2, True
        elif letter == "(":
            width, literal = _group_width(pattern, index), False
        elif letter == "[":
            width, literal = _class_width(pattern, index), False
        else:
            width = 2 if letter == "\\" else 1
            literal = letter not in "\\.^$*+?{}()[]"
        repeat = _repeat_width(pattern, index + width)
        if literal and not repeat:
            runs[-1] += letter
        else:
            runs.append("")
        index += width + repeat
    longest = max(runs, key=len)
    return longest, *sorted({run for run in runs if len(run) >= MIN_LITERAL} - {longest})


def _group_width(pattern: str, start: int) -> int:
    depth = 0
    index = start
    while index < len(pattern):
        letter = pattern[index]
        if letter == "\\":
            index += 2
            continue
        if letter == "[":
            index += _class_width(pattern, index)
            continue
        depth += (letter == "(") - (letter == ")")
        index += 1
        if not depth:
            break
    return index - start


def _class_width(pattern: str, start: int) -> int:
    index = start + 1 + (pattern[start + 1 : start + 2] == "^")
    index += pattern[index : index + 1] == "]"
    while index < len(pattern) and pattern[index] != "]":
        index += 2 if pattern[index] == "\\" else 1
    return index + 1 - start


def _repeat_width(pattern: str, start: int) -> int:
    """The width of a repetition at ``start``: ``*``, ``+?``, ``{2,3}``; 0 where there is none."""
    loaded = re.match(r"(?:[*+?]|\{[\d,]*\})\??", pattern[start : start + 20])
    return loaded.end() if loaded else 0
