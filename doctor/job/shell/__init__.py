"""Shell text as commands, without running any: what only a shell can compute stays unresolved."""

from doctor.job.shell.script_evaluation import ShellCommand, ShellText, evaluate
from doctor.job.shell.word import UnreadText, Word

__all__ = ["ShellCommand", "ShellText", "UnreadText", "Word", "evaluate"]
