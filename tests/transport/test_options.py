"""How many hosts at once, and what must never be shown."""

from __future__ import annotations

import resource

import pytest

from doctor.transport.options import SshOptions, kept_connections, workers


@pytest.fixture
def open_files(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    limit = {"soft": 1024}
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit["soft"], limit["soft"]))
    return limit


@pytest.mark.parametrize(
    ("soft", "hosts", "width"),
    [(1024, 1000, 240), (1024, 16, 16), (100_000, 1000, 256), (64, 1000, 1), (resource.RLIM_INFINITY, 300, 256)],
)
def test_the_width_follows_the_limit_on_open_files(
    open_files: dict[str, int], soft: int, hosts: int, width: int
) -> None:
    open_files["soft"] = soft
    assert workers(hosts) == width


def test_kept_connections_leave_files_for_new_ones(open_files: dict[str, int]) -> None:
    assert kept_connections() == 480


def test_the_password_is_never_shown() -> None:
    options = SshOptions(user="bob", password="secret")
    assert "secret" not in repr(options) + str(options)
    assert "user='bob'" in repr(options)
