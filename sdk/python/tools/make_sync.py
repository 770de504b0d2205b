"""Makes src/ckptd/_sync from src/ckptd/_async. With --check it only lists stale files."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE, TARGET = (ROOT / "src" / "ckptd" / name for name in ("_async", "_sync"))
BY_HAND = {"__init__.py", "net.py"}
NOTE = "# Made from _async by tools/make_sync.py. Change it there.\n"

RULES = [
    (r"AsyncGenerator\[(\w[\w.]*), None\]", r"Generator[\1, None, None]"),
    (r"\bAsyncGenerator\b", "Generator"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsync([A-Z])", r"\1"),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\baclose\b", "close"),
    (r"\b_async\b", "_sync"),
    (r"\bTasks can share it\b", "Threads can share it"),
    (r"\bfor one task at a time\b", "for one thread at a time"),
]


def sync(text: str) -> str:
    """Return the sync form of an async module, not formatted."""
    for pattern, becomes in RULES:
        text = re.sub(pattern, becomes, text)
    return NOTE + text


def make(folder: Path) -> None:
    """Make all modules in a folder."""
    for source in SOURCE.glob("*.py"):
        if source.name not in BY_HAND:
            (folder / source.name).write_text(sync(source.read_text()))
    # Lines get shorter, and Generator sorts differently than AsyncGenerator.
    ruff = [sys.executable, "-m", "ruff"]
    config = ["--quiet", "--config", str(ROOT / "pyproject.toml"), str(folder)]
    subprocess.run([*ruff, "check", "--select", "I", "--fix", *config], check=True)
    subprocess.run([*ruff, "format", *config], check=True)


def main() -> int:
    """Make the files, or compare them."""
    stale = 0
    with tempfile.TemporaryDirectory() as made:
        make(Path(made))
        for source in sorted(Path(made).glob("*.py")):
            target = TARGET / source.name
            if target.exists() and target.read_text() == source.read_text():
                continue
            if "--check" in sys.argv:
                print(f"{target} is stale: run tools/make_sync.py")
                stale = 1
            else:
                target.write_text(source.read_text())
    return stale


if __name__ == "__main__":
    sys.exit(main())
