"""Facts: typed values read from what a host's tools printed.

A fact is a value, `Absent` (the tool or file is not there) or `Unreadable` (it is, and did not answer).
`read` gets the raw answer of the fact's probe and returns the value, or raises one of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, ClassVar, Generic, Literal, TypedDict, TypeVar

import msgspec

from doctor.engine.secrets import hide_secrets
from doctor.engine.texts import beginning, filled

F = TypeVar("F")
Kind = Literal["run", "read", "ask", "visit", "smoke", "network-test"]


class Absent(Exception):
    """The tool, file or device is not there: a check that needs it does not apply."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.args == getattr(other, "args", None)

    def __hash__(self) -> int:
        return hash((type(self), self.args))


class Unreadable(Absent):
    """The fact exists but could not be read: a check that needs it is *unknown*, with this reason.

    ``root_cause`` names the check that reports the root cause, if one does. ``by_trial``: see `Reason`.
    """

    def __init__(self, reason: str, root_cause: str = "", by_trial: bool = False) -> None:
        super().__init__(reason)
        self.root_cause, self.by_trial = root_cause, by_trial

    @classmethod
    def of_each(cls, unread: Mapping[str, str], nothing: str = "") -> Unreadable:
        """Where no device could be read: one reason for all, or the first with its device. ``nothing``: of none.

        >>> Unreadable.of_each({"eth0": "cut off", "eth1": "no answer"})
        Unreadable('eth0: cut off (and 1 more)')
        """
        part, why = next(iter(unread.items()), ("", nothing))
        return cls(
            why if len({*unread.values()}) < 2 else filled("{0}: {1} (and {2} more)", part, why, len(unread) - 1)
        )


class Output(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one command, file or question came to on a host."""

    ended: Literal["exited", "absent", "timeout", "error"] = "exited"
    """exited: with ``code``. absent: no such tool, file or device. error: could not be started or read, see ``err``."""
    code: int = 0
    """Exit status; -N for death by signal N."""
    out: str = ""
    err: str = ""
    cut: bool = False
    """The output exceeded the probe's limit; ``out`` or ``err`` holds the beginning."""
    seconds: float = 0.0


class Visit(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The result of the connection to a host."""

    failure: str = ""
    """Empty when the collector answered; else a `doctor.transport.TransportErrorKind`."""
    text: str = ""
    """The failure in one sentence."""
    hint: str = ""
    """A command or setting that fixes it."""
    sent: float = 0.0
    """Our clock, seconds since the epoch, just before the collector was started."""
    received: float = 0.0
    """Our clock when its answer had come."""
    began: float = 0.0
    """The host's clock when the collector began."""
    ended: float = 0.0
    """The host's clock when it answered."""
    python: str = ""
    uid: int = -1
    name: str = ""
    """The host's own name for itself."""
    local: bool = False
    address: str = ""
    """By which we reached it over SSH, or tried to where it has one alone; empty where that is not known."""


class ProbeArguments(TypedDict, total=False):
    """What a question on a host gets: the fields of `doctor.engine.record.ProbeInputs`, which says what they are.

    Beside them what a run does not keep: ``login``, how the launcher logs in (`doctor.job.launch_line.logins`), and
    ``environ``, the job's variables that are read at a start (`doctor.job.variables.at_start`), ``program``, the file
    that its launch line starts, ``is_started``, that it is run itself, or its ``module``, ``output``, where its
    launcher writes logs, ``counts_gpus``, that the GPUs of a host are its number of ranks, ``files``, the
    configurations that the line names, ``inputs``, what its program reads, and ``results``, what that
    writes to; ``likely``, those of these paths that a shell on each host may start elsewhere, ``.`` for its folder;
    ``by_login``, that such shells start the ranks; ``services``, those of schedulers that may start them.
    In round 2 also, by the name of the fact that is ``asked`` for, what its `Fact.plan` returned for this host.
    """

    asked: str
    hosts: list[str]
    python: str
    master_addr: str
    announces_name: bool
    ports: list[int]
    rank_table: str
    folders: list[str]
    temporary_folder: str
    paths: list[str]
    login: dict[str, Any] | None
    environ: dict[str, str]
    program: str
    is_started: bool
    module: tuple[str, ...]
    output: str
    counts_gpus: bool
    files: list[str]
    inputs: list[str]
    results: list[str]
    likely: list[str]
    by_login: bool
    services: list[str]
    job: str


class Probe(msgspec.Struct, frozen=True):
    """The command or file that one fact is read from. See `run`, `read`, `ask`, `visit`, `smoke`, `network_test`."""

    kind: Kind
    text: str = ""
    """run: a ``sh`` command."""
    paths: tuple[str, ...] = ()
    """read: files or globs."""
    function: Callable[[ProbeArguments], Any] | None = None
    """ask: what is sent as source."""
    requires: str = ""
    """The tool, or for ask the path, that must be found on the host, else the fact is Absent."""
    each: str = ""
    """A glob; the command runs once a match, ``$1`` being the number that ends its name."""
    root: bool = False
    """Complete only as root: with ``--sudo`` it runs through ``sudo -n``."""
    job: bool = False
    """Read where the job runs: inside the container when ``--within`` is given."""
    lane: str = ""
    """Commands of one lane never run at the same time on one host (vendor tools that take a lock)."""
    timeout: float = 10.0
    """Seconds, for each command."""
    limit: int = 65536
    """Bytes kept of stdout, and of stderr, for each command or file."""
    repeats: bool = False
    """The command itself calls a vendor's tool once for each device, some 0.2 s each."""
    lanes: int = 0
    """With ``each``: into so many the lane is divided by device number, which run at the same time; 0 is undivided."""
    inventory: type[DeviceList] | None = None
    """The fact that lists the devices; each of them must have an answer."""
    stand_in: str = ""
    """With ``each`` and ``requires``: a file of settings ``key_N=value``. Where the file is there and the tool is not,
    each device's output is ``absent`` and holds its lines of the file."""
    only_with: tuple[str, ...] = ()
    """ask: it is sent where one of these arguments is given; else the answer is ``{}``."""

    @property
    def always_answered(self) -> tuple[str, ...]:
        """The names of outputs that every record has, on every host: none of devices, and of a glob's files.

        >>> read("/proc/swaps", "/sys/class/net/*/mtu").always_answered
        ('/proc/swaps',)
        """
        if self.kind == "read":
            return tuple(path for path in self.paths if "*" not in path)
        return ("",) if self.kind in ("run", "ask") and not self.each else ()

    @property
    def may_be_absent(self) -> bool:
        """A host may lack what it asks for: a tool, a file or devices; a question that requires nothing has an answer.

        >>> ask(print).may_be_absent, ask(print, requires="/dev/kmsg").may_be_absent
        (False, True)
        """
        return self.kind not in ("run", "ask") or bool(self.requires or self.each)


def run(
    command: str,
    *,
    requires: str = "",
    each: str = "",
    root: bool = False,
    job: bool = False,
    lane: str = "",
    timeout: float = 10.0,
    limit: int = 65536,
    repeats: bool = False,
    lanes: int = 0,
    inventory: type[DeviceList] | None = None,
    stand_in: str = "",
) -> Probe:
    """A command for ``sh -c``; with ``each`` it runs once a device and finds the device's number in ``$1``."""
    return Probe(
        "run", command, (), None, requires, each, root, job, lane, timeout, limit, repeats, lanes, inventory, stand_in
    )


def read(*paths: str, root: bool = False, job: bool = False, limit: int = 65536) -> Probe:
    """Files, read without starting a process. A glob stands for all that it matches.

    The answer has one output a file, by its path; a plain path that does not exist is ``absent``.
    """
    return Probe("read", paths=paths, root=root, job=job, limit=limit)


def ask(
    function: Callable[[ProbeArguments], Any],
    *,
    requires: str = "",
    root: bool = False,
    job: bool = False,
    timeout: float = 10.0,
    only_with: tuple[str, ...] = (),
) -> Probe:
    """A Python function, sent to the host as source: standard library of 3.6 only.

    What it names of its own module goes with it: functions, constants in capitals, modules that are imported there. It
    gets the run's given values (a dict) and returns something that JSON can hold. Where the path ``requires`` does
    not exist, no process is started for it.
    """
    return Probe(
        "ask",
        function=function,
        requires=requires,
        root=root,
        job=job,
        timeout=timeout,
        limit=1 << 20,
        only_with=only_with,
    )


def visit() -> Probe:
    """Runs nothing: the fact is read from the connection to the host."""
    return Probe("visit")


def smoke() -> Probe:
    """Runs nothing: the smoke run stores the reports of its ranks in the host's record."""
    return Probe("smoke")


def network_test() -> Probe:
    """Runs nothing: the network test stores what each host tried in the host's record."""
    return Probe("network-test")


OWN_ROUND = ("smoke", "network-test")
"""Kinds of probes that the collector has no part in: a round of its own fills in the outputs."""


NOT_COLLECTED = "was not collected in this run"


class ProbeAnswer(Mapping[str, Output]):
    """All outputs of one probe on one host: by path, by device number, or a single one under ``""``."""

    def __init__(
        self, outputs: Mapping[str, Output], label: str = "", visit: Visit | None = None, always: Collection[str] = ()
    ) -> None:
        self._outputs = outputs
        self._always = always
        self.label = label
        """The probe as text, for messages."""
        self.visit = visit or Visit()
        """The connection to the host and its result: input of a `visit` probe."""

    def __getitem__(self, key: str) -> Output:
        return self._outputs[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def text(self, key: str = "", *, codes: tuple[int, ...] = (0,)) -> str:
        """Stdout of an output that ended well.

        Raises: Absent when there is nothing there; Unreadable on a timeout, an error, a cut answer, an exit status that
        is not among ``codes``, and where the record lacks what the collector always answers.
        """
        if key not in self._outputs and "" not in self._outputs:
            if key in self._always:
                raise Unreadable(NOT_COLLECTED)
            raise Absent(filled("{0} does not exist", self.label or "it"))
        # Where sudo or the container failed, one output under "" stands for all that was asked.
        output = self._outputs.get(key, self._outputs.get("", Output()))
        name = key if key.startswith("/") else self.label or "the command"
        if output.ended == "absent":
            raise Absent(output.err or filled("{0} does not exist", name))
        why = unusable_reason(output, codes)
        if why:
            raise Unreadable(filled("{0}: {1}", name, why))
        return output.out

    def json(self) -> Any:
        """The value that an `ask` function returned. Raises like `text`."""
        text = self.text()
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise Unreadable(filled("{0}: not JSON: {1}", self.label, error)) from None

    def devices(self) -> Iterator[tuple[int, Output]]:
        """The outputs of an ``each`` probe, by device number, in order.

        Raises: Absent when the tool or every device is missing.
        """
        if "" in self._outputs:
            self.text()
        for number in sorted(int(key) for key in self._outputs if key.isdecimal()):
            yield number, self._outputs[str(number)]


def not_reached(failure: str, text: str) -> Unreadable:
    """Why nothing is known of a host, and which check holds the cause. An expired budget is not the host's fault, and a
    host that left no file may be well.
    """
    causes = {"no-python": "python3-missing", "budget": "", "no-file": ""}
    state = "unknown" if failure == "no-file" else "not reached"
    return Unreadable(filled("{0}: {1}", state, text), causes.get(failure, "host-unreachable"))


def unusable_reason(output: Output, codes: tuple[int, ...] = (0,)) -> str:
    """Why an output cannot be used, or the empty string."""
    if output.ended == "timeout":
        return filled("no answer in {0} s", f"{output.seconds:.0f}")
    if output.ended in ("error", "absent"):
        return hide_secrets(output.err.strip()) or "could not be read"
    if output.cut:
        return "output exceeds the limit"
    if output.code not in codes:
        lines = hide_secrets(output.err.strip() or output.out.strip()).splitlines()  # one of them is shown
        ended = (
            filled("killed by signal {0}", -output.code) if output.code < 0 else filled("exit status {0}", output.code)
        )
        return filled("{0} ({1})", beginning(lines[-1].strip(), 200), ended) if lines else ended
    return ""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all facts: the subclass's docstring defines it, ``probe`` reads it."""

    probe: ClassVar[Probe]
    needs: ClassVar[tuple[type[Fact], ...]] = ()
    """Facts of the first round that `plan` needs: this fact is collected in a second round."""
    shares: ClassVar[type[Fact] | None] = None
    """The fact whose outputs this one is read from too: its probe runs once for both."""
    is_shared: ClassVar[bool] = True
    """Hosts that answered alike have one object in common. False where a host is recognised by its object."""
    not_planned_reason: ClassVar[str] = "no other host to test against"
    """Why a host gets no probe in the second round although everything that `plan` needs could be read."""
    is_trial: ClassVar[bool] = False
    """Of the second round: hosts try what other checks read. Where there is no such round, its check does not apply."""
    settles_doubt: ClassVar[bool] = False
    """Of the second round: `plan` names no host unless the first has left a doubt; a quick look takes it too."""

    unread: dict[str, str] = {}
    """Parts of the fact that could not be read (``"NPU 3"``) and why: every check that uses it reports them unknown."""

    @classmethod
    def output_name(cls) -> str:
        """The name under which a host's record has the outputs."""
        return (cls.shares or cls).__name__

    @classmethod
    def read(cls, answer: ProbeAnswer) -> Fact:
        """The fact's value: unless a fact has a way of its own, the JSON of its `ask` function, field by field.

        Raises: Absent, Unreadable.
        """
        return msgspec.convert(answer.json(), cls)

    @classmethod
    def plan(cls, fleet_facts: Mapping[type[Fact], PerHost[Any]]) -> Mapping[str, object]:
        """The arguments of each host in the second round, under the fact's name. A host not named is left out.

        ``fleet_facts`` holds each fact of `needs`, of the hosts that it could be read on.
        """
        raise NotImplementedError


class ProvenFact(Fact, frozen=True):
    """A fact of the second round in which hosts prove who they are, with keys that the record does not keep."""

    @classmethod
    def verified(cls, claims: dict[str, Any], host: str, tasks: Mapping[str, Any]) -> dict[str, Any]:
        """What the record keeps of a host's answer: the names that are proven, by the tasks of all hosts."""
        raise NotImplementedError


class DeviceList(Fact, frozen=True):
    """A fact that lists a host's devices: another fact, whose probe names it, must have an answer of each."""

    def unanswered(self, outputs: Mapping[str, Output]) -> tuple[str, ...]:
        """The devices that the outputs of such a probe have no answer of, as `Fact.unread` names them."""
        raise NotImplementedError


NO_ANSWER = "it is there, and the host's record has no answer of it"


class PerHost(Mapping[str, F], Generic[F]):
    """One fact of every host that it could be read on, in inventory order."""

    def __init__(self, values: Mapping[str, F]) -> None:
        self._values = dict(values)

    def __getitem__(self, host: str) -> F:
        return self._values[host]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"PerHost({self._values!r})"
