# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""On running kernels: boots a guest for each series, runs live/ in it, once, and
reports file by file what its tests said."""

import shlex
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from . import kernels, machine

FILES = sorted(path.name for path in (machine.HERE / "live").glob("test_*.py"))
TIMEOUT = 900

_results = {}


def results(series):
    """The test cases that ran in the guest, by file, and what was printed."""
    if series not in _results:
        with tempfile.TemporaryDirectory() as directory:
            share = Path(directory)
            command = [sys.executable, "-m", "pytest", "tests/guest/live", "-v"]
            command += ["-p", "no:cacheprovider", "--durations=10"]
            command += [f"--junitxml={machine.SHARE}/report.xml"]
            result = machine.run(
                kernels.get(series), shlex.join(command), timeout=TIMEOUT, share=share
            )
            by_file = {name: [] for name in FILES}
            report = share / "report.xml"
            if not report.exists():
                pytest.fail(f"no report from the guest\n{result.output}")
            for case in ET.parse(report).getroot().iter("testcase"):
                module = case.get("classname", "").split(".live.")[-1].split(".")[0]
                by_file.setdefault(f"{module}.py", []).append(case)
        _results[series] = by_file, result
    return _results[series]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("series", kernels.chosen_series())
def test_in_a_guest(series, file, record_property):
    by_file, result = results(series)
    cases = by_file[file]
    failed = [
        f"{case.get('classname')}.{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    assert not failed, f"{failed}\n{result.output}"
    passed = [case for case in cases if case.find("skipped") is None]
    record_property("passed_in_guest", len(passed))
    print(f"kernel {series}, {file}: {len(passed)} tests passed in the guest")
    assert passed, result.output


@pytest.mark.parametrize("series", kernels.chosen_series())
def test_everything_in_the_guest_belongs_to_a_file_and_passed(series):
    by_file, result = results(series)
    assert sorted(by_file) == FILES
    assert result.status == 0, result.output
