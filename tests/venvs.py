# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Virtual environments in build/ with this package and other versions of its clients.

Each is made once, and again when what is installed in it has changed.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Sequence

CHECKOUT = Path(__file__).resolve().parent.parent


def _hash(*words: str) -> str:
    """Of all that goes into an environment: names, versions, our sources."""
    digest = hashlib.sha256()
    paths = [CHECKOUT / name for name in ("setup.py", "pyproject.toml", "MANIFEST.in")]
    paths += sorted((CHECKOUT / "ext").glob("*.[ch]"))
    paths += sorted((CHECKOUT / "python" / "drgn_fastmem").glob("*.py*"))
    for word in words:
        digest.update(word.encode() + b"\0")
    for path in paths:
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def make(
    name: str,
    packages: Sequence[str],
    *,
    python: str = sys.executable,
    system_packages: bool = False,
) -> Path:
    """build/NAME with the packages and, without its dependencies, this one.

    :return: the environment's Python.
    """
    directory = CHECKOUT / "build" / name
    stamp = directory / "made-of"
    made_of = _hash(python, str(system_packages), *packages)
    executable = directory / "bin" / "python"
    if stamp.is_file() and stamp.read_text() == made_of and executable.exists():
        return executable
    shutil.rmtree(directory, ignore_errors=True)
    options = ["--system-site-packages"] * system_packages
    _run(python, "-m", "venv", *options, str(directory))
    pip = [str(executable), "-m", "pip", "install", "--quiet"]
    pip += ["--disable-pip-version-check"]
    if packages:
        _run(*pip, *packages)
    _run(*pip, "--no-deps", str(CHECKOUT))
    stamp.write_text(made_of)
    return executable


def _run(*command: str) -> None:
    result = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}:\n{result.stdout}")
