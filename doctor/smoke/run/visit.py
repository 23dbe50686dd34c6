"""How the visit of a host ended: its agent answered, was lost, or sent nothing before the run ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from doctor.engine.fact import Visit
from doctor.engine.sanitize import strip_control_chars
from doctor.smoke.protocol import AgentHello
from doctor.smoke.run.channels import AgentEndpoint, Channels
from doctor.smoke.speed.line_rates import slowest_line
from doctor.transport import CommandResult, format_seconds
from doctor.transport.program import ProgramLost


def peer_address(endpoints: Mapping[str, AgentEndpoint], name: str) -> str:
    """The address at which another host than this agent's reached the controller; empty where none did."""
    others = (endpoint.address for endpoint in endpoints.values() if endpoint.host != endpoints[name].host)
    return next(filter(None, others), "")


def answered_visit(hello: AgentHello, sent: float, received: float, local: bool) -> Visit:
    """The visit of a host whose agent said hello. ``sent``, ``received``: seconds by the controller's clock."""
    return Visit(
        sent=sent,
        received=received,
        began=hello.now,
        ended=hello.now,
        python=hello.python,
        uid=hello.uid,
        name=hello.host,
        local=local,
    )


def failed_visit(lost: ProgramLost | None, noise: str, timeout: float, local: bool) -> Visit:
    """A visit without an answer, in the same words as when the collector makes it. ``timeout``: seconds."""
    from doctor.collect.protocol import no_answer_error

    if lost is None:
        return Visit("timeout", f"the command did not end within {format_seconds(timeout)}", local=local)
    if lost.code is None:
        return Visit(lost.kind, lost.text, lost.hint, local=local)
    why = no_answer_error(CommandResult(lost.code, noise.encode(), lost.err, 0.0, 0.0), begun=False)
    return Visit(why.kind, why.text, local=local)


def unanswered_visit(lost: ProgramLost | None, noise: str, blamed: bool, local: bool) -> Visit:
    """A visit that a failed run left without an answer.

    ``blamed``: the failure names this host's ranks. One that another host's failure cut off had no time to answer:
    nothing is known of it, and nothing is held against it.
    """
    if not blamed:  # what became of it afterwards is our own doing
        return Visit("budget", "the smoke run ended before this host answered", local=local)
    lost = lost or ProgramLost("it did not answer in time", "timeout")
    return Visit(lost.kind, f"{lost.text}{'; its output: ' if noise else ''}{noise}", lost.hint, local=local)


def host_addresses(channels: Channels, endpoints: Mapping[str, AgentEndpoint]) -> dict[str, list[str]]:
    """The IP addresses that the agents of each host have reported, loopback included."""
    addresses: dict[str, list[str]] = {endpoint.host: [] for endpoint in endpoints.values()}
    for name, hello in channels.hellos.items():
        if name in endpoints:
            addresses[endpoints[name].host] += [ip for interface in hello.addresses.values() for ip in interface]
    return addresses


def line_speeds(channels: Channels, endpoints: Mapping[str, AgentEndpoint]) -> dict[str, int]:
    """By host: Mb/s of its slowest interface; without those where it is not known."""
    return {
        endpoints[name].host: speed
        for name, hello in channels.hellos.items()
        if name in endpoints and (speed := slowest_line(hello.speeds, hello.addresses))
    }


def leftover_notes(channels: Channels) -> list[str]:
    """A note for each process that an agent could not end, at most four of a host."""
    return [
        f"{name}: process {pid} ({strip_control_chars(command, 60)}) could not be killed: state {state}"
        for name, processes in channels.leftover_processes.items()
        for pid, state, command in processes[:4]
    ]
