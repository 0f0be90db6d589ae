# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Inside a guest: processes and files that stay as they are, and the running kernel
opened by drgn alone and by drgn with ours."""

import os
import signal
import subprocess
import sys
import time

import drgn
import drgn_fastmem
import pytest

from .. import reads
from .plain import Plain

VMLINUX = os.environ["GUEST_VMLINUX"]


@pytest.fixture(scope="session", autouse=True)
def load(tmp_path_factory):
    directory = tmp_path_factory.mktemp("load")
    command = [sys.executable, "-m", "tests.guest.load", str(directory)]
    process = subprocess.Popen(
        [*command, "--processes=40", "--files=2000"], start_new_session=True
    )
    while not (directory / "ready").exists():
        assert process.poll() is None
        time.sleep(0.2)
    yield
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def running_kernel():
    prog = drgn.Program()
    prog.set_kernel()
    assert drgn_fastmem.attachment(prog) is None
    prog.load_debug_info([VMLINUX])
    return prog


@pytest.fixture(scope="session")
def alone():
    return running_kernel()


@pytest.fixture(scope="session")
def attached():
    prog = running_kernel()
    drgn_fastmem.attach(prog)
    assert drgn_fastmem.attachment(prog) == "native"
    return prog


@pytest.fixture(scope="session")
def mem(attached):
    return drgn_fastmem.attach(attached)


@pytest.fixture(scope="session")
def ram():
    """Up to where there is RAM: a guest's is in one piece, below any hole."""
    with drgn_fastmem.open() as mem:
        end = max(s.physical_address + s.size for s in mem.segments if s.kind == "ram")
    return reads.Range(0, end)


@pytest.fixture(scope="session")
def known_places(alone, ram):
    return reads.places(alone, ram)


@pytest.fixture(scope="session")
def plain():
    reader = Plain()
    yield reader
    reader.close()
