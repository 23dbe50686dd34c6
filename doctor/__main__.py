"""``python -m doctor``: the same as the command."""

from doctor.engine.import_path import leave_working_folder

leave_working_folder()

from doctor.cli.main import main  # noqa: E402  # behind the line above, which decides where it looks

main()
