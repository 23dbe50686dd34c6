"""Shell text as commands, without running any: what only a shell can compute stays unresolved."""

from doctor.job.shell.script_evaluation import evaluate
from doctor.job.shell.word import ShellCommand, ShellText, UnreadText, Word

__all__ = ["ShellCommand", "ShellText", "UnreadText", "Word", "evaluate"]
