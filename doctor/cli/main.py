"""The `doctor` command: the ways in and out of the program."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import typer

SAVED = ("--help", "-h", "list", "explain")
"""First words of what may be answered from files: see `doctor.cli.saved_pages`."""


def help_page(argv: list[str]) -> str:
    """The file that holds the help that these words ask for; empty where the parser makes it."""
    from doctor.engine.language import is_english

    if argv in (["--help"], ["-h"]):
        from doctor.cli.saved_pages import HELP

        return HELP if is_english() else localized_help("doctor")
    before = argv[: argv.index("--")] if "--" in argv else argv
    if is_english() or not before or os.path.basename(argv[0]) != argv[0]:
        return ""
    if "--help-all" in before:
        return localized_help(f"{argv[0]}-all")
    return localized_help(argv[0]) if {"--help", "-h"}.intersection(before) else ""


def localized_help(command: str) -> str:
    """The saved help of a command in the language of this process; empty where there is none."""
    from doctor.engine.language import FOLDER, language

    path = os.path.join(FOLDER, language(), "help", f"{command}.txt")
    return path if os.path.isfile(path) else ""


def run_fast_path(argv: list[str]) -> bool:
    """Answers ``--help``, ``list`` and ``explain NAME`` without loading the command line parser, and refuses no words
    with the help: a job script whose command is an empty variable has checked nothing.
    """
    from doctor.engine.streams import print_stderr, write_stdout

    saved_help = help_page(argv or ["--help"])
    if saved_help:
        with open(saved_help, encoding="utf-8") as file:
            text = file.read()
        if not argv:
            print_stderr(text, end="")
            sys.exit(2)
        write_stdout(text)
    elif argv[:1] == ["list"] and not any(word.startswith("-") or "/" in word for word in argv):
        from doctor.cli.fast_list import check_list

        write_stdout(check_list(argv[1:]))
    elif argv[:1] == ["explain"] and len(argv) == 2:
        from doctor.cli.fast_explain import explanation

        page = explanation(argv[1])
        if page is not None:
            write_stdout(page)
        return page is not None
    else:
        return False
    return True


def main() -> None:
    """The `doctor` command. Signals are handled before anything else is loaded, but for an answer of milliseconds."""
    if sys.argv[1:2] and sys.argv[1] in SAVED and "_DOCTOR_COMPLETE" not in os.environ:
        try:
            answered = _write_saved(sys.argv[1:])
        except KeyboardInterrupt:
            sys.exit(130)
        if answered:
            return
    import gc

    from doctor.engine import interrupts

    gc.set_threshold(50_000, 20, 100)  # the facts of many hosts stay: to look for garbage among them takes a tenth more
    argv = _from_command(sys.argv[1:])
    if argv[:1] == ["preflight"]:
        from doctor.preflight import early_end

        early_end.install(argv)
    else:
        interrupts.raise_on_stop()
    try:
        run_guarded(_command)
    finally:
        if argv[:1] == ["preflight"]:
            early_end.wait_for_end()
        interrupts.hold(argv)
        # A process that ends looks for garbage first, in all that it ever loaded, for as long as it took to begin.
        gc.freeze()


def _from_command(argv: list[str]) -> list[str]:
    """The words from the command on; ``--lang`` may stand before it."""
    while argv and argv[0].partition("=")[0] == "--lang":
        argv = argv[1 if "=" in argv[0] else 2 :]
    return argv


def _write_saved(argv: list[str]) -> bool:
    """Whether a saved page has answered."""
    from doctor.cli.saved_pages import saved_answer

    page = saved_answer(argv, os.environ)
    if page is None:
        return False
    from doctor.engine.streams import exit_code_of_output, write_stdout

    write_stdout(page, own=True)
    if code := exit_code_of_output(0):
        sys.exit(code)
    return True


def _command() -> None:
    from doctor.engine.language import take_option

    arguments = take_option(sys.argv[1:], os.environ)
    if "_DOCTOR_COMPLETE" in os.environ:
        from doctor.cli import complete

        complete.run()
    elif not run_fast_path(arguments):
        if arguments[:1] != ["smoke"]:
            _parse_and_run(arguments)
            return
        from doctor.smoke.run.early_start import end_early, start_early

        start_early(arguments[1:], os.environ)
        try:
            _parse_and_run(arguments)
        finally:
            end_early()


def _parse_and_run(arguments: list[str]) -> None:
    from doctor.cli.app import COMPLETION_OPTIONS, application
    from doctor.cli.launch_source import take_launch_line

    argv = take_launch_line(arguments)
    # A completion script is for the command `doctor`, also when `python -m doctor` prints it.
    prog_name = "doctor" if set(COMPLETION_OPTIONS).intersection(argv) else None
    try:
        run_parser(application(argv), argv, prog_name)
    finally:
        if notifier := sys.modules.get("doctor.session.notify.notifier"):
            notifier.await_notifications()


def run_parser(app: typer.Typer, argv: Sequence[str], prog_name: str | None) -> None:
    """Runs the command of ``argv`` and ends the process, as ``app`` does, which would write errors on its own."""
    from typer.main import get_command

    try:
        code = get_command(app).main(args=list(argv), prog_name=prog_name or "doctor", standalone_mode=False)
    except Exception as error:  # noqa: BLE001 - it goes on, but for what the parser refuses
        from doctor.cli.parser_errors import end_refused

        end_refused(error, argv)
    sys.exit(code if isinstance(code, int) else 0)


def run_guarded(run: Callable[[], None]) -> None:
    """Turns every exception into a documented exit code, without a traceback; none is 0 where the output was lost."""
    from doctor.engine.streams import exit_code_of_output

    code: int | str | None = 0
    try:
        run()
    except SystemExit as stop:
        code = stop.code
    except Exception as error:  # noqa: BLE001 - the rim: our own bug becomes one line, a file, and exit code 70
        code = _report_error(error)
    if code is None or isinstance(code, int):
        code = exit_code_of_output(code or 0)
    if code:
        sys.exit(code)


def _report_error(error: Exception) -> int:
    """Tells of an error in one line. Returns the exit code."""
    from doctor.engine.errors import CommandError, InputError
    from doctor.engine.language import localized_filled
    from doctor.engine.streams import note_full_output, print_stderr
    from doctor.engine.texts import filled

    if isinstance(error, FileNotFoundError) and not _has_folder():
        error = InputError("the working folder no longer exists; expected another one: `cd <folder>`")
    if isinstance(error, CommandError):
        print_stderr(filled("doctor: {0}", localized_filled(str(error))))
        return error.exit_code
    if note_full_output(error):
        return 0
    from doctor.session.console import report_own_bug

    return report_own_bug(error)


def _has_folder() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()
