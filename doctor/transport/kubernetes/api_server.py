"""Requests to the API server by the account of this pod: its token and certificate, and no program beside Python.

For what a pod does about its own node. All that enters other pods goes by kubectl (`kubectl.py`), which also knows the
other ways to log in. Where the account lies: Kubernetes, "Accessing the Kubernetes API from a Pod".
"""

from __future__ import annotations

import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any

import msgspec

from doctor.engine.bounded_read import read_bounded
from doctor.engine.decoding import prepare_decoding
from doctor.engine.http_answer import http_answer
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.transport import TransportError, TransportErrorKind, transport_error
from doctor.transport.kubernetes import kubectl
from doctor.transport.kubernetes.pods import decoded

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MERGE = "application/strategic-merge-patch+json"
_MAX_ANSWER = 64 << 20
_MAX_TOKEN = 1 << 16
_RETRY_SECONDS = 0.5
_BUSY = frozenset((429, 500, 502, 503, 504))
"""Statuses of an API server that may take the same request soon."""


class Conflict(Exception):
    """Somebody else has changed the object since it was read."""


class ApiServer:
    """The API server of this pod's cluster; each request is tried again until ``seconds`` have passed since now."""

    def __init__(self, seconds: float, environ: Mapping[str, str] = os.environ, account: Path | None = None) -> None:
        """Raises: TransportError, where this process is in no pod with an account."""
        host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise transport_error("error", "this process is in no pod of Kubernetes")
        account = account or ACCOUNT
        self._deadline = time.monotonic() + seconds
        self._url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        try:
            self._token = read_bounded(account / "token", _MAX_TOKEN).decode("ascii").strip()
            self._context = ssl.create_default_context(cafile=str(account / "ca.crt"))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it cannot be read"
            raise transport_error("error", filled("this pod has no account for the API server: {0}", reason)) from None
        # Python 3.13 refuses certificates without extensions that those of many clusters lack; the chain is verified.
        self._context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)

    def request(self, method: str, path: str, document: Any = None, kind: str = "application/json") -> dict[str, Any]:
        """The object that is answered. ``document``: what is sent, of this ``kind``.

        Raises: TransportError; Conflict, where the deadline has not passed yet.
        """
        data = None if document is None else msgspec.json.encode(document)
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json", "Content-Type": kind}
        while True:
            request = urllib.request.Request(self._url + path, data=data, headers=headers, method=method)
            left = self._deadline - time.monotonic()
            try:
                return decoded(http_answer(request, max(left, 1.0), _MAX_ANSWER, self._context), dict[str, Any])
            except urllib.error.HTTPError as error:
                with error:
                    problem, again = _refusal(error), error.code in _BUSY
                if error.code == 409 and self._deadline - time.monotonic() > _RETRY_SECONDS:
                    raise Conflict from None
            except (OSError, HTTPException, ValueError) as error:
                problem = _absence(error)
                again = problem.kind != "auth"
            if not again or self._deadline - time.monotonic() < _RETRY_SECONDS:
                raise problem from None
            time.sleep(_RETRY_SECONDS)


class _Status(msgspec.Struct, frozen=True):
    """What is answered in the place of an object: apimachinery, pkg/apis/meta/v1/types.go (Status)."""

    message: str = ""
    reason: str = ""


def _refusal(error: urllib.error.HTTPError) -> TransportError:
    """The API server's reason, in the words that kubectl's would have."""
    try:
        status = msgspec.json.decode(error.read(1 << 16), type=_Status)
    except (msgspec.MsgspecError, OSError, HTTPException, UnicodeError, RecursionError):
        status = _Status()
    if not status.message:
        return transport_error("error", filled("the API server answers with HTTP status {0}", error.code))
    return kubectl.complaint(b"Error from server (%b): %b" % (status.reason.encode(), status.message.encode()))


def _absence(error: Exception) -> TransportError:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        detail = strip_control_chars(reason.verify_message, 200)
        return transport_error("auth", filled("the API server's certificate is not accepted: {0}", detail))
    if isinstance(reason, TimeoutError):
        return transport_error("dropped", "the API server does not answer in time")
    kind: TransportErrorKind = "refused" if isinstance(reason, ConnectionRefusedError) else "lost"
    text = reason.strerror if isinstance(reason, OSError) and reason.strerror else type(reason).__name__
    return transport_error(kind, filled("the API server is not reached: {0}", strip_control_chars(text, 120)))


prepare_decoding(_Status)
