"""Makes src/ckptd/_sync from src/ckptd/_async. With --check it only says what is not current."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "src" / "ckptd"
CONFIG = ROOT.parent.parent / "pyproject.toml"
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
    # What a comment says of tasks is true of threads.
    (r"\bTasks may share it\b", "Threads may share it"),
    (r"\bfor one task at a time\b", "for one thread at a time"),
]


def sync(text: str) -> str:
    """Return the sync form of an async module."""
    for pattern, becomes in RULES:
        text = re.sub(pattern, becomes, text)
    # Shorter lines break elsewhere, and Generator is not sorted where AsyncGenerator is.
    return ruff(ruff(NOTE + text, "check", "--select", "I", "--fix", "--quiet"), "format")


def ruff(text: str, *command: str) -> str:
    """Return what ruff makes of a module."""
    args = [sys.executable, "-m", "ruff", *command, "--config", str(CONFIG)]
    args += ["--stdin-filename", str(ROOT / "_sync" / "x.py"), "-"]
    done = subprocess.run(args, input=text, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True)
    return done.stdout


def main() -> int:
    """Make the files, or compare them."""
    stale = 0
    for source in sorted((ROOT / "_async").glob("*.py")):
        if source.name in BY_HAND:
            continue
        target = ROOT / "_sync" / source.name
        text = sync(source.read_text())
        if target.exists() and target.read_text() == text:
            continue
        if "--check" in sys.argv:
            print(f"{target} is not current: run tools/make_sync.py")
            stale = 1
        else:
            target.write_text(text)
    return stale


if __name__ == "__main__":
    sys.exit(main())
