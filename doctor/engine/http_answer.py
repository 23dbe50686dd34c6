"""One HTTP request: its answer is read up to a limit, and no redirect is followed."""

from __future__ import annotations

import urllib.request
from typing import Any


def http_answer(request: urllib.request.Request, seconds: float, limit: int) -> bytes:
    """At most ``limit`` bytes of what the request's URL answers.

    Raises: OSError, http.client.HTTPException, ValueError; urllib.error.HTTPError, an OSError, also for a redirect.
    """
    with urllib.request.build_opener(_NoRedirect()).open(request, timeout=seconds) as answer:
        data: bytes = answer.read(limit)
        return data


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry a message or a token to an address that was not asked for."""

    def redirect_request(self, *_: Any) -> None:
        return None
