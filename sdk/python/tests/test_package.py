"""The wheel, the generated code and the lock files."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_wheel(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("ckptd-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as z:
        names = z.namelist()
        (metadata,) = (z.read(n).decode() for n in names if n.endswith("/METADATA"))
    sources = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src").rglob("*.py*")}
    sources = {name for name in sources if not name.endswith(".pyc")}
    assert {n for n in names if n.startswith("ckptd/")} == sources | {"ckptd/py.typed"}
    assert "Requires-Python: >=3.10" in metadata
    assert sorted(re.findall("Requires-Dist: (.*)", metadata)) == [
        "ckptd-bin==0.1.0; extra == 'bin'",
        "h11<1,>=0.16",
        "langgraph-checkpoint<5,>=4.3; extra == 'langgraph'",
        "protobuf<8,>=6.30",
    ]
    # It runs from the wheel.
    run = [sys.executable, "-c", "import ckptd; print(ckptd.__version__, ckptd.__file__)"]
    done = subprocess.run(
        run, env={"PYTHONPATH": str(wheel)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("0.1.0 ")
    assert str(wheel) in done.stdout


def test_sync_client_is_current() -> None:
    made = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "make_sync.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr


def test_generated_code_runs_with_protobuf_6() -> None:
    for file in (ROOT / "src" / "ckptd" / "v1").glob("*_pb2.py"):
        version = re.search(r"Protobuf Python Version: (\d+)", file.read_text())
        assert version
        assert version[1] == "6"  # newer code does not import where protobuf is below 7


def test_lock_files_name_no_registry() -> None:
    for file in (ROOT / "requirements").glob("*.txt"):
        text = file.read_text()
        assert "--hash=sha256:" in text
        assert not re.search(r"https?:|--(extra-)?index-url|--find-links|@ ", text), file
