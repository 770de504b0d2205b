"""The example."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import suite

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "approval.py"
PRINTS = """\
question: Refund 30 EUR?
begin ended with code -9
resumed: ['plan: refund 30 EUR', 'approval: yes', 'act: refunded']
rewound: ['plan: refund 30 EUR'] next: approve
forked: ['plan: refund 30 EUR', 'approval: no', 'act: nothing']
checkpoints: 7
resume ended with code 0
"""


def test_approval(program: Path, tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(suite.SOURCE), "CKPTD_BIN": str(program)}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE), str(tmp_path / "data")],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == PRINTS, done.stderr
