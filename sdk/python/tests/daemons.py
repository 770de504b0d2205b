"""Builds and starts the programs of the project."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trustme

ROOT = Path(__file__).resolve().parents[3]
SERVE_AT_MOST = "600"  # seconds a daemon lives if the test does not end it


def build(name: str, package: str) -> Path:
    """Build a program of the module; the Go cache makes that quick."""
    target = ROOT / "bin" / "python" / name
    subprocess.run(
        ["go", "build", "-o", str(target), package],
        cwd=ROOT,
        check=True,
        env={**os.environ, "CGO_ENABLED": "0"},
    )
    return target


@dataclass
class Daemon:
    """A running daemon and its addresses."""

    process: subprocess.Popen[str]
    folder: Path
    socket: str
    tcp: str
    ca: str = ""

    @property
    def token(self) -> str:
        """The first token: a writer for user local of tenant default."""
        return (self.folder / "data.token").read_text().strip()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@contextlib.contextmanager
def serve(
    program: Path, *flags: str, tls: bool = False, folder: Path | None = None
) -> Iterator[Daemon]:
    """Run a daemon on a socket and on TCP."""
    made = Path(tempfile.mkdtemp(prefix="ckptd-"))  # short: a socket's path has 103 bytes at most
    folder = folder or made
    ca = ""
    if tls:
        authority = trustme.CA()
        cert = authority.issue_cert("127.0.0.1", "localhost")
        ca = str(folder / "ca.pem")
        authority.cert_pem.write_to_path(ca)
        cert.private_key_pem.write_to_path(str(folder / "key.pem"))
        for i, blob in enumerate(cert.cert_chain_pems):
            blob.write_to_path(str(folder / "cert.pem"), append=i > 0)
        flags = (*flags, "--cert", str(folder / "cert.pem"), "--cert-key", str(folder / "key.pem"))
    command = ["timeout", SERVE_AT_MOST, str(program), "serve", "--data", str(folder / "data")]
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", *flags],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout
        tcp = ""
        for line in process.stdout:
            if m := re.search(r"address (https?://\S+)", line):
                tcp = m[1]
            if tcp and line.startswith("  curl") and "/Load" in line:
                break
        else:
            raise AssertionError(f"no daemon: {(folder / 'log').read_text()}")
        yield Daemon(process, folder, f"unix://{folder}/data.sock", tcp, ca)
    finally:
        process.terminate()
        process.wait(60)
        if process.stdout:
            process.stdout.close()
        shutil.rmtree(made, ignore_errors=True)
