"""Builds the program with Go, and puts it into the wheel as a script.

GOOS and GOARCH choose another system than this one. The wheel has no code for a version of Python,
so one wheel for each system is enough.
"""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The program is static, so it runs with glibc and musl. Go names the oldest systems: Linux 3.2,
# which every manylinux_2_17 has, and macOS 12.
PLATFORMS = {
    "linux/amd64": "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
    "linux/arm64": "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
    "darwin/arm64": "macosx_12_0_arm64",
    "windows/amd64": "win_amd64",
}


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds the program to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the program."""
        module = Path(self.root, "..", "..")
        asked = subprocess.check_output(["go", "env", "-json", "GOOS", "GOARCH"], cwd=module)
        goos, goarch = (json.loads(asked)[name] for name in ("GOOS", "GOARCH"))
        if f"{goos}/{goarch}" not in PLATFORMS:
            raise RuntimeError(
                f"there is no wheel for {goos}/{goarch}: only for {', '.join(PLATFORMS)}"
            )
        name = "ckptd.exe" if goos == "windows" else "ckptd"
        self.made = tempfile.mkdtemp()
        program = Path(self.made, name)
        self.app.display_info(f"building ckptd for {goos}/{goarch}")
        subprocess.check_call(["bash", "packaging/program.sh", goos, goarch, program], cwd=module)
        build_data["shared_scripts"] = {str(program): name}
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{PLATFORMS[f'{goos}/{goarch}']}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the program: the wheel has it."""
        shutil.rmtree(self.made, ignore_errors=True)
