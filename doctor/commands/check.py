"""`doctor check`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from doctor.cli import Refused, write
from doctor.commands.chosen import Names, Not, Sites, catalogue, chosen

if TYPE_CHECKING:
    from doctor.declaration import Check
    from doctor.examine import Examination, Options
    from doctor.inventory import Inventory
    from doctor.model import Report
    from doctor.record import Run

TABLE_VARIABLES = ("RANK_TABLE_FILE", "MINDSPORE_HCCL_CONFIG_PATH")


def command(
    nodes: Annotated[str | None, typer.Argument(metavar="[HOSTS]", help="Hosts, as in node[001-064],gpu7.")] = None,
    hosts: Annotated[str | None, typer.Option("--hosts", metavar="NODES", help="The same as HOSTS.")] = None,
    hostfile: Annotated[
        str | None, typer.Option(metavar="FILE", help="Hosts from an MPI or DeepSpeed hostfile.")
    ] = None,
    rank_table: Annotated[
        str | None, typer.Option(metavar="FILE", help="The job's rank table: judged, and its hosts.")
    ] = None,
    exclude: Annotated[
        str | None, typer.Option("--exclude", "-x", metavar="NODES", help="Leave these hosts out.")
    ] = None,
    no_hosts: Annotated[bool, typer.Option("--no-hosts", help="Visit no host: judge the rank table alone.")] = False,
    select: Names = [],  # noqa: B006 - typer's way
    ignore: Not = [],  # noqa: B006
    checks: Sites = [],  # noqa: B006
    product: Annotated[str, typer.Option(metavar="A1|A2|A3", help="NPU family, where no host tells.")] = "",
    python: Annotated[str, typer.Option(metavar="PATH", help="The job's Python interpreter on the hosts.")] = "",
    ranks_per_host: Annotated[int, typer.Option(metavar="N", min=0, help="Ranks of the job on each host.")] = 0,
    master_addr: Annotated[str, typer.Option(metavar="HOST", help="The job's MASTER_ADDR.")] = "",
    master_port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="The job's MASTER_PORT.")] = 0,
    within: Annotated[
        str, typer.Option(metavar="WORDS", help='Look inside the container: "docker exec -i NAME".')
    ] = "",
    sudo: Annotated[bool, typer.Option("--sudo", help="Read with sudo -n what only root can read.")] = False,
    transport: Annotated[str, typer.Option(metavar="ssh|openssh", help="How hosts are reached.")] = "ssh",
    ssh_config: Annotated[str, typer.Option("--ssh-config", "-F", metavar="FILE", help="As ssh -F.")] = "",
    user: Annotated[str, typer.Option("--user", "-l", metavar="NAME", help="Log in as.")] = "",
    port: Annotated[int, typer.Option("--port", "-p", metavar="PORT", min=0, max=65535, help="SSH port.")] = 0,
    identity: Annotated[list[str], typer.Option("--identity", "-i", metavar="FILE", help="Private key.")] = [],  # noqa: B006
    ask_pass: Annotated[bool, typer.Option("--ask-pass", help="Ask for the SSH password.")] = False,
    accept_new: Annotated[
        bool, typer.Option("--accept-new", help="Accept host keys never seen before, and remember them.")
    ] = False,
    connect_timeout: Annotated[float, typer.Option(metavar="S", min=0, help="Seconds to connect; 0: ssh's own.")] = 0,
    timeout: Annotated[float, typer.Option(metavar="S", min=1, help="Seconds for a host's answer.")] = 60.0,
    budget: Annotated[float, typer.Option(metavar="S", min=0, help="Seconds for the whole run; 0 is none.")] = 0.0,
    workers: Annotated[int, typer.Option(metavar="N", min=0, help="Hosts at once; 0 chooses.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep what the hosts said, for --from.")] = None,
    from_file: Annotated[Path | None, typer.Option("--from", metavar="FILE", help="Judge a saved run again.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 11 when there are warnings.")] = False,
    fail_on: Annotated[str, typer.Option(metavar="error|warning", help="What makes the run fail.")] = "error",
    on_unknown: Annotated[str, typer.Option(metavar="fail|warn|ok", help="What an unknown outcome is.")] = "fail",
    color: Annotated[str, typer.Option(metavar="auto|always|never", help="Colour.")] = "auto",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every check, every host, every reason.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback of our own bugs.")] = False,
) -> None:
    """Check hosts: read each one over SSH, judge, report.

    Hosts come from the first of: HOSTS, --hostfile, --rank-table, DOCTOR_HOSTS, DOCTOR_HOSTFILE, SLURM_JOB_NODELIST,
    RANK_TABLE_FILE; else this host alone.

    Exit codes: 0 healthy, 10 failed, 11 warnings (--strict), 12 unknown, 2 usage, 70 a bug of doctor, 78 nothing to
    check or unreadable input, 130 and 143 interrupted.
    """
    asked = locals().copy()
    _one_of("--transport", transport, ("ssh", "openssh"))
    _one_of("--fail-on", fail_on, ("error", "warning"))
    _one_of("--on-unknown", on_unknown, ("fail", "warn", "ok"))
    _one_of("--color", color, ("auto", "always", "never"))
    _one_of("--product", product, ("", "A1", "A2", "A3"))
    known = catalogue(checks)
    picked = chosen(known, select, ignore, roots=True)
    if from_file:
        report = _replay(from_file, picked)
        stopped: BaseException | None = None
    else:
        examination = _examine(asked, picked)
        report, stopped = examination.report, examination.stopped
        if save:
            _save(save, examination.run)
    from doctor.verdict import exit_code

    code = exit_code(report, strict=strict, on_unknown=on_unknown, fail_on=fail_on)  # type: ignore[arg-type]
    if stopped is not None:
        code = stopped.code if isinstance(stopped, SystemExit) and isinstance(stopped.code, int) else 130
    _print(report, known, code, asked)
    raise typer.Exit(code)


def _one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise Refused(f"{option} {value!r}: expected {', '.join(word for word in known if word)}", 2)


def _examine(asked: dict[str, Any], picked: list[Check]) -> Examination:
    from doctor.examine import examine

    inventory, options = _inventory(asked), _options(asked)
    from doctor.report.progress import Progress

    progress = Progress(len(inventory.hosts), sys.stderr)
    try:
        return examine(
            inventory,
            picked,
            options,
            os.environ,
            rank_table=asked["rank_table"] or "",
            progress=progress.step,
        )
    finally:
        progress.close()


def _inventory(asked: dict[str, Any]) -> Inventory:
    from doctor.inventory import Inventory, InventoryError, Options, take

    if asked["nodes"] and asked["hosts"]:
        raise Refused("HOSTS and --hosts are both given: expected one of them", 2)
    if asked["no_hosts"]:
        if not (asked["rank_table"] or any(os.environ.get(name) for name in TABLE_VARIABLES)):
            raise Refused("--no-hosts leaves nothing to check; expected --rank-table FILE with it")
        return Inventory((), "no host was looked at")
    names = ("hostfile", "rank_table", "exclude")
    wanted = Options(
        hosts=asked["nodes"] if asked["nodes"] is not None else asked["hosts"], **{name: asked[name] for name in names}
    )
    try:
        return take(wanted, os.environ, lambda path: Path(path).read_text("utf-8"))
    except InventoryError as error:
        raise Refused(str(error)) from None


def _options(asked: dict[str, Any]) -> Options:
    from doctor.collector import words
    from doctor.examine import Options
    from doctor.transport.options import Options as SshOptions

    try:
        words(asked["within"])
    except ValueError as error:
        raise Refused(f"--within {asked['within']!r}: {error}; expected words as a shell would split them", 2) from None
    ssh = SshOptions(
        config=asked["ssh_config"],
        user=asked["user"],
        port=asked["port"],
        identity=tuple(asked["identity"]),
        connect_timeout=asked["connect_timeout"] or None,
        accept_new=asked["accept_new"],
        password=_password() if asked["ask_pass"] else "",
    )
    names = ("product", "python", "ranks_per_host", "master_addr", "master_port")
    return Options(
        **{name: asked[name] for name in ("transport", "sudo", "within", "timeout", "budget", "workers")},
        ssh=ssh,
        launch={name: asked[name] for name in names if asked[name]},
    )


def _password() -> str:
    if not sys.stdin.isatty():
        raise Refused("--ask-pass needs a terminal to ask on", 2)
    from getpass import getpass

    return getpass("SSH password: ")


def _replay(path: Path, picked: list[Check]) -> Report:
    from doctor.examine import replay
    from doctor.record import BadRun, load

    try:
        return replay(load(path.read_bytes(), str(path)), picked)
    except OSError as error:
        raise Refused(f"--from {path}: {error.strerror}") from None
    except BadRun as error:
        raise Refused(f"--from {error}") from None


def _save(path: Path, run: Run) -> None:
    """Writes the run whole or not at all, readable for its owner alone. A failure is said, and changes no verdict."""
    import tempfile

    import msgspec

    from doctor.record import redacted

    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent or ".")
    except OSError as error:
        typer.echo(f"doctor: --save {path}: {error.strerror}; the run was not saved", err=True)
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(redacted(run)) + b"\n")
        os.replace(name, path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        typer.echo(f"doctor: --save {path}: {error.strerror}; the run was not saved", err=True)


def _print(report: Report, known: list[Check], code: int, asked: dict[str, Any]) -> None:
    if asked["as_json"]:
        from doctor.report.json import encode

        return write(encode(report, code).decode("utf-8"))
    from doctor.report import look

    seen = look.choose(sys.stdout, asked["color"], os.environ)
    pages = {one.name: one for one in known}
    if seen.tty:
        from doctor.report import text

        return write(text.render(report, pages, look=seen, verbose=asked["verbose"], code=code))
    from doctor.report import plain

    return write(plain.render(report, pages, look=seen, verbose=asked["verbose"], code=code))
