"""Runs the program: python -m ckptd_bin."""

import os
import subprocess
import sys

from ckptd_bin import program


def main() -> None:
    """Become the program, or run it where a process cannot become another."""
    command = [program(), *sys.argv[1:]]
    if os.name != "nt":
        os.execv(command[0], command)
    sys.exit(subprocess.call(command))


main()
