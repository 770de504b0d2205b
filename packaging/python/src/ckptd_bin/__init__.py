"""The program ckptd, as a package."""

import os
import sysconfig
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

__all__ = ["program"]

_NAME = "ckptd.exe" if os.name == "nt" else "ckptd"


def program() -> str:
    """Return the path of the program that was installed with this package."""
    tried = list(dict.fromkeys(str(path.resolve()) for path in _candidates()))
    for path in tried:
        if os.path.isfile(path):
            return path
    raise FileNotFoundError(
        f"the program of ckptd-bin is missing: install it again (looked for {', '.join(tried)})"
    )


def _candidates() -> Iterator[Path]:
    try:
        for file in distribution("ckptd-bin").files or ():
            if file.name == _NAME:
                yield Path(str(file.locate()))
    except PackageNotFoundError:
        pass
    yield Path(sysconfig.get_path("scripts"), _NAME)
    yield Path(__file__).parents[1] / "bin" / _NAME  # pip install --target
