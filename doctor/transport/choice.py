"""Which way to the hosts. A transport is loaded when it is chosen: that of SSH takes its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from doctor.transport import Transport
    from doctor.transport.options import Options


def open_transport(local: bool, name: str, options: Options) -> Transport:
    """This machine's own, or the one of this name."""
    if local:
        from doctor.transport.local import Local

        return Local()
    if name == "openssh":
        from doctor.transport.openssh import OpenSsh

        return OpenSsh(options)
    from doctor.transport.ssh import Ssh

    return Ssh(options)
