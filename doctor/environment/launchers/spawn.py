"""torch.multiprocessing.spawn: the program passes each process its rank as an argument.

Source: PyTorch, torch.multiprocessing, "Spawning subprocesses": the function is called with the process's number, and
no variable is set. MASTER_ADDR and MASTER_PORT are the program's own.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from doctor.environment.launcher import LaunchedRank, RankLauncher
from doctor.environment.launchers import environment
from doctor.environment.variables import EnvironmentVariables

_INHERITED = ("MASTER_ADDR", "MASTER_PORT", "DEVICE_ID")


class Spawn(RankLauncher):
    """Ranks that torch.multiprocessing.spawn starts."""

    name = "spawn"
    title = "torch.multiprocessing.spawn"

    def read(self, variables: EnvironmentVariables) -> LaunchedRank:
        """See `RankLauncher.read`. ``variables``: those of `arguments_as_variables`."""
        launched = environment.LAUNCHER.read(variables)
        return msgspec.structs.replace(
            launched,
            launcher=self,
            launch_id=f"spawn {launched.launch_id}",
            launchers=(self.name,),
            problems=tuple(dict.fromkeys(variables.problems)),
        )


def arguments_as_variables(
    environ: Mapping[str, str], rank: int, world_size: int, local_rank: int | None = None
) -> EnvironmentVariables:
    """A spawned process's numbers as `environment` reads them; of the program's variables, where it meets.

    >>> arguments_as_variables({"RANK": "7", "MASTER_PORT": "29500"}, 1, 4).environ
    {'MASTER_PORT': '29500', 'RANK': '1', 'WORLD_SIZE': '4', 'LOCAL_RANK': '1'}
    """
    inherited = {name: environ[name] for name in _INHERITED if name in environ}
    local = rank if local_rank is None else local_rank
    numbers = {"RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(local)}
    return EnvironmentVariables({**inherited, **numbers})


LAUNCHER = Spawn()
