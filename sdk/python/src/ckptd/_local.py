"""Starts a daemon for a store on this machine, and shares it among processes."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ckptd._config import env
from ckptd.errors import CkptdError, InvalidError, UnreachableError

# The longest path of a Unix socket, in bytes.
_LONGEST = 103
# Exit code of `ckptd serve` if another process has the store open.
_IN_USE = 7
# How long a daemon can take to start, or to end after its last connection, in seconds.
_PATIENCE = 20.0


def find_program(program: str | os.PathLike[str] | None = None) -> str:
    """Return the path of the `ckptd` program.

    It is the argument, else CKPTD_BIN, else that of the package ckptd-bin, else the one in PATH.
    """
    for given, name in ((program, "the argument program"), (env("BIN"), "CKPTD_BIN")):
        if given:
            found = shutil.which(os.fspath(given))
            if found is None:
                raise InvalidError(f"{name} is {os.fspath(given)!r}, which is not a program")
            return found
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("ckptd-bin") or ():
            if file.name in ("ckptd", "ckptd.exe"):
                return str(file.locate())
    found = shutil.which("ckptd")
    if found is None:
        raise InvalidError(
            "the ckptd program is not installed: pip install ckptd[bin], add it to PATH, "
            "or name it with program= or CKPTD_BIN"
        )
    return found


def socket_path(data: Path) -> Path:
    """Return the path of the socket: next to the store or, if that is too long, a short one."""
    path = data.with_name(data.name + ".sock")
    if len(os.fsencode(path)) <= _LONGEST:
        return path
    folder = Path(tempfile.gettempdir()) / f"ckptd-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise InvalidError(f"{folder} must be a directory that only its owner, you, can access")
    return folder / (hashlib.sha256(os.fsencode(data)).hexdigest()[:32] + ".sock")


class LocalDaemon:
    """The daemon of a store, which ends by itself when no process is connected."""

    def __init__(
        self,
        data: str | os.PathLike[str],
        *,
        program: str | os.PathLike[str] | None = None,
        until_unused: float = 30.0,
    ) -> None:
        if not hasattr(socket, "AF_UNIX") or not hasattr(os, "getuid"):
            raise InvalidError("local() needs Unix sockets: run `ckptd serve` and use its URL")
        self._data = Path(os.path.realpath(data))
        self._program = program
        self._until_unused = until_unused
        self._lock = threading.Lock()
        self._socket = socket_path(self._data)
        self._log = self._data.with_name(self._data.name + ".log")
        #: Its address.
        self.url = f"unix://{self._socket}"

    def start(self) -> None:
        """Start the daemon, unless one runs."""
        with self._lock:
            deadline = time.monotonic() + _PATIENCE
            while not self._listens():
                code = self._serve(deadline)
                if code is None:
                    return
                if code != _IN_USE:
                    raise UnreachableError(f"`ckptd serve` failed with code {code}: {self._said()}")
                if time.monotonic() > deadline:
                    raise UnreachableError(
                        f"another process has {self._data} open, and does not listen "
                        f"on {self._socket}: stop it, or connect to its URL"
                    )
                time.sleep(0.02)  # another process won, or a daemon is just ending

    def restarter(
        self, then: Callable[[CkptdError, float], None] | None
    ) -> Callable[[CkptdError, float], None]:
        """Return the on_retry of a client that starts the daemon again after it ended."""

        def on_retry(error: CkptdError, wait: float) -> None:
            if isinstance(error, UnreachableError):
                self.start()
            if then is not None:
                then(error, wait)

        return on_retry

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.settimeout(1.0)
            try:
                s.connect(str(self._socket))
            except OSError:
                return False
            return True

    def _serve(self, deadline: float) -> int | None:
        """Start a daemon, and return its exit code, or None once it listens."""
        command = [find_program(self._program), "serve", "--data", str(self._data)]
        command += ["--socket", str(self._socket), "--listen", "none", "--log-level", "warn"]
        command += ["--until-unused", f"{self._until_unused}s"]
        if self._socket.parent != self._data.parent:
            command += ["--admin-socket", "none"]  # its path would be too long, too
        elsewhere = ("CKPTD_SERVER", "CKPTD_TOKEN", "CKPTD_TOKEN_FILE")
        self._data.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._mark = log.tell()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={k: v for k, v in os.environ.items() if k not in elsewhere},
                start_new_session=True,  # it outlives this process, and Ctrl-C
            )
        # Without this thread the daemon would remain a zombie until this process ends.
        threading.Thread(target=process.wait, name="ckptd serve", daemon=True).start()
        while time.monotonic() < deadline:
            code = process.poll()
            if code is not None:
                return code
            if self._listens():
                return None
            time.sleep(0.005)
        raise UnreachableError(f"`ckptd serve` did not listen on {self._socket} in time")

    def _said(self) -> str:
        with self._log.open("rb") as log:
            log.seek(self._mark)
            lines = log.read(4096).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"see {self._log}"
