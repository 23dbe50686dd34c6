"""Modules that are put before the text of each program that needs them (`doctor.remote.bootstrap`).

Standard library only, Python 3.6 and later, ASCII. They import only each other, by ``from doctor.remote.runtime.x
import name``. What is imported here is loaded on every host: slow modules are imported in the function that needs them.
"""
