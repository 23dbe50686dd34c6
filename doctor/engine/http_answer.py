"""One HTTP request: its answer is read up to a limit, and no redirect is followed."""

from __future__ import annotations

import ssl
import urllib.request
from typing import Any


def http_answer(
    request: urllib.request.Request, seconds: float, limit: int, context: ssl.SSLContext | None = None
) -> bytes:
    """At most ``limit`` bytes of what the request's URL answers. ``context``: what it trusts.

    Raises: OSError, http.client.HTTPException, ValueError; urllib.error.HTTPError, an OSError, also for a redirect.
    """
    trusts = (urllib.request.HTTPSHandler(context=context),) if context else ()
    with urllib.request.build_opener(_NoRedirect(), *trusts).open(request, timeout=seconds) as answer:
        data: bytes = answer.read(limit)
        return data


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry a message or a token to an address that was not asked for."""

    def redirect_request(self, *_: Any) -> None:
        return None
