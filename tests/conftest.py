# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""What all Python tests share: the package under test is the installed one, drgn
starts without our plugin, helpers can be imported, inputs are made on the spot."""

import os
from pathlib import Path
import subprocess
import sys

import pytest

TESTS = Path(__file__).resolve().parent
CHECKOUT = TESTS.parent
sys.path.insert(0, str(TESTS))

# The plugin would attach to every Program, and drgn alone is the oracle. Tests
# of the plugin start a Python of their own.
os.environ["DRGN_FASTMEM"] = "off"
# For users' machines; here an ELF core means drgn's own reader.
os.environ.pop("DRGN_USE_LIBKDUMPFILE_FOR_ELF", None)

try:
    import hypothesis
except ImportError:
    hypothesis = None
else:
    # Nothing is remembered between runs: what fails once fails for everybody.
    common = dict(deadline=None, database=None, print_blob=False)
    hypothesis.settings.register_profile(
        "default", derandomize=True, max_examples=600, **common
    )
    hypothesis.settings.register_profile(
        "quick", derandomize=True, max_examples=60, **common
    )
    hypothesis.settings.register_profile("thorough", max_examples=20_000, **common)
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_report_header(config):
    import drgn_fastmem

    return [
        f"drgn_fastmem: {drgn_fastmem.__file__}",
        "drgn: " + (_version("drgn") or "not installed"),
    ]


def pytest_sessionstart(session):
    import drgn_fastmem

    source = CHECKOUT / "python"
    if source in Path(drgn_fastmem.__file__).resolve().parents:
        raise pytest.UsageError(
            f"these tests are for the installed package, not for {source}; "
            "install it with: pip install ."
        )


def _version(name):
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@pytest.fixture
def core_file(tmp_path):
    """core_file(text, name="core") writes a core file and returns its path."""
    import core_text

    def write(text, name="core"):
        path = tmp_path / name
        path.unlink(missing_ok=True)
        core_text.write(path, text)
        return str(path)

    return write


@pytest.fixture
def run_python():
    """run_python(code, *args, env={}) runs code in a Python of its own, which has
    to come to its end; returns the CompletedProcess with text output."""

    def run(code, *args, env={}, check=True, timeout=60, **kwargs):
        path = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), **env}
        environment = {k: v for k, v in environment.items() if v is not None}
        process = subprocess.run(
            [sys.executable, "-c", code, *map(str, args)],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            **kwargs,
        )
        if check and process.returncode != 0:
            pytest.fail(
                f"exit status {process.returncode}\n{process.stdout}{process.stderr}"
            )
        return process

    return run
