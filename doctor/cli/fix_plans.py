"""What the deeds of `doctor fix` share: saved plans, the ways to their hosts, the question before anything is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from doctor.cli.host_options import Ways
from doctor.engine.errors import CommandError, InputError
from doctor.fix import store
from doctor.fix.context import How
from doctor.session.console import write
from doctor.transport import Transport
from doctor.transport.open import open_transport

if TYPE_CHECKING:
    from doctor.transport.options import Options as SshOptions


def ways_of(how: How, given: Ways) -> Ways:
    """The ways of the plan, but for what the command line says."""
    usual = Ways()._asdict()
    said = {name: value for name, value in given._asdict().items() if value != usual[name]}
    return Ways(**{**usual, **how.ways, **said})


@contextmanager
def reached(how: How, name: str, ssh: SshOptions) -> Iterator[Transport]:
    transport = open_transport(how.local, name, ssh, how.hosts)
    try:
        yield transport
    finally:
        transport.close()


@contextmanager
def holding(place: Path) -> Iterator[None]:
    """Nobody else applies this plan or takes it back meanwhile. Raises: CommandError."""
    with ExitStack() as stack:
        kept(lambda: stack.enter_context(store.held(place)))
        yield


def kept(work: Callable[[], Any]) -> Any:
    """What lies in the folder of plans. Raises: CommandError."""
    try:
        return work()
    except store.NoPlan as error:
        raise InputError(str(error)) from None
    except OSError as error:
        raise InputError(f"the journal cannot be written: {error.strerror}; nothing was changed") from None


def ask(question: str) -> None:
    """Raises: CommandError, unless the answer is yes."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was changed", 10)


def write_json(document: dict[str, Any]) -> None:
    write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
