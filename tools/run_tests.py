# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""run_tests.py PART...: run parts of the test suite, all of them even if one
fails, and end with what they counted together: "N passed, N failed, N skipped".

Parts: ``python`` (tests/, against the installed package), ``c`` (the plain C
library, and again under sanitizers), ``guest`` (real kernels and their dumps),
``sanitized`` (what tests/c/python-asan.sh runs under sanitizers).
"""

import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from typing import NamedTuple


class Counts(NamedTuple):
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def plus(self, other: "Counts") -> "Counts":
        return Counts(*(a + b for a, b in zip(self, other)))


def run_pytest(*args: str) -> Counts:
    """Counts from pytest's own report, so that nothing is read off a line that
    it prints for people."""
    with tempfile.TemporaryDirectory() as directory:
        report = os.path.join(directory, "report.xml")
        code = subprocess.call(
            [sys.executable, "-m", "pytest", *args, f"--junitxml={report}"]
            + ["-o", "junit_family=xunit1"]
        )
        try:
            suites = ET.parse(report).getroot().iter("testsuite")
        except (OSError, ET.ParseError):
            return Counts(failed=1)
        counts = Counts()
        for suite in suites:
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped = int(suite.get("skipped", 0))
            passed = int(suite.get("tests", 0)) - failed - skipped
            counts = counts.plus(Counts(passed, failed, skipped))
    # A run that could not collect, was interrupted, or had nothing to run.
    if code != 0 and counts.failed == 0:
        counts = counts.plus(Counts(failed=1))
    return counts


def run_c() -> Counts:
    counts = Counts()
    for target in ("test", "asan"):
        process = subprocess.Popen(
            ["make", "--no-print-directory", "-k", "-C", "tests/c", target],
            stdout=subprocess.PIPE,
            universal_newlines=True,
        )
        seen = Counts()
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            match = re.search(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", line)
            if match:
                seen = seen.plus(Counts(*(int(n or 0) for n in match.groups())))
        if process.wait() != 0 and seen.failed == 0:
            seen = seen.plus(Counts(failed=1))
        counts = counts.plus(seen)
    return counts


def main(parts: "list[str]") -> int:
    total = Counts()
    for part in parts:
        print(f"== {part}", flush=True)
        if part == "python":
            counts = run_pytest("tests", "--ignore=tests/guest")
        elif part == "c":
            counts = run_c()
        elif part == "guest":
            counts = run_pytest("tests/guest")
        elif part == "sanitized":
            os.environ["HYPOTHESIS_PROFILE"] = "quick"
            counts = run_pytest(
                "tests/test_lifetime.py",
                "tests/test_open_bad_input.py",
                "tests/test_translate.py",
                "tests/test_oracle.py",
            )
        else:
            sys.exit(f"there is no part {part!r}")
        print(f"{part}: {counts.passed} passed, {counts.failed} failed, "
              f"{counts.skipped} skipped", flush=True)
        total = total.plus(counts)
    if total.passed == 0:
        print("no test ran")
        total = total.plus(Counts(failed=1))
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
