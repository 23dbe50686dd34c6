"""Run one attack campaign: ``python -m tests.attack GROUP COUNT [--seed SEED]``.

Each group is a module ``tests/attack/GROUP.py`` with ``campaign(count: int, seed: int) -> int``: it makes ``count``
attacks that follow from ``seed``, prints each one that succeeded, and returns how many did. Exit code 0: none.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import time

GROUPS = {
    "fix": "interrupted applies and undos on real hosts: restored exactly, or refused",
    "transport": "hosts that die, hang or lie under every transport, and launcher jobs",
    "hostile": "mutated inputs through every parser: no crash, no hang, no false OK",
    "interfaces": "random networks, variables and launchers: an error exactly where the real job dies",
    "healthy": "healthy fleets of many products: nothing is found but the differences they were made with",
    "kills": "SIGKILL at random moments of check, net, preflight, smoke, fix and watch: nothing stays on the hosts",
    "liars": "one host lies in each fact that a check takes of all: no other host is changed, accused or let off",
    "secrets": "real-looking secrets in logs, answers, scripts and words, through every command and format",
    "signals": "signals at random moments: one line, the right exit code",
}


def main(arguments: list[str] | None = None) -> int:
    """Run a group's campaign; return 0 where no attack succeeded, 1 where one did, 2 for a group without a module."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description="Run one seeded attack campaign.")
    parser.add_argument("group", choices=GROUPS, help="; ".join(f"{name}: {group}" for name, group in GROUPS.items()))
    parser.add_argument("count", type=int, help="number of attacks")
    parser.add_argument("--seed", type=int, default=0, help="what the attacks follow from (default 0)")
    options = parser.parse_args(arguments)
    module = f"tests.attack.{options.group}"
    if importlib.util.find_spec(module) is None:
        print(f"{options.group}: tests/attack/{options.group}.py is not here: no campaign to run", file=sys.stderr)
        return 2
    began = time.monotonic()
    failed: int = importlib.import_module(module).campaign(options.count, options.seed)
    took = time.monotonic() - began
    print(f"{options.group}: {options.count} attacks, seed {options.seed}: {failed} succeeded ({took:.0f} s)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
