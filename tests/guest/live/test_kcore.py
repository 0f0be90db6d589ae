# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""What a stock kernel's /proc/kcore is to us: segments read with pread, and a live
target for the plugin and for scripts."""

import errno
import os
import platform
import re
import subprocess
import sys

import drgn
import drgn_fastmem
import pytest

from .conftest import VMLINUX
from .plain import KCORE, program_headers



def test_kernel_is_the_one_that_was_asked_for():
    assert platform.release().startswith(os.environ["GUEST_SERIES"] + ".")


def test_segments_are_those_of_the_program_headers_and_none_is_mapped():
    with drgn_fastmem.open() as mem:
        assert mem.path == KCORE
        assert mem.is_live
        segments = mem.segments
    expected = program_headers()
    assert len(expected) >= 4
    # The last program header wins where some overlap.
    assert {(s.file_offset - s.address) % 2**64 for s in segments} <= {
        (load.offset - load.address) % 2**64 for load in expected
    }
    assert len(segments) == len(expected)
    assert {s.access for s in segments} == {"pread"}
    assert {"ram", "virtual"} <= {s.kind for s in segments}


def test_mmap_always_is_refused_as_the_kernel_refuses_it():
    with pytest.raises(OSError) as info:
        drgn_fastmem.open(mmap="always")
    # Linux 6.1, 6.12: proc_reg_mmap in fs/proc/inode.c; kcore has no mmap.
    assert info.value.errno in (errno.EIO, errno.ENODEV)


def test_by_descriptor_it_reads_the_same_and_leaves_the_descriptor_alone(alone):
    address = alone.symbol("linux_banner").address
    fd = os.open(KCORE, os.O_RDONLY)
    with drgn_fastmem.open(fd) as mem:
        os.close(fd)
        assert mem.is_live
        assert mem.read_c_string(address) == alone.read_c_string(address)


def test_counter_that_the_kernel_counts_is_never_read_from_before(attached, mem):
    # A cache would show an old one, and a stopped counter would end nothing.
    address = attached.symbol("jiffies_64").address
    last = mem.read_u64(address)
    grown = number = 0
    while grown < 20 and number < 10**6:
        reader = mem if number % 2 else attached
        now = reader.read_u64(address)
        assert now >= last
        grown += now > last
        last = now
        number += 1
    assert grown == 20


def test_c_string_is_one_pread(mem, alone):
    address = alone.symbol("linux_banner").address
    before = mem.stats
    text = mem.read_c_string(address)
    assert text == alone["linux_banner"].string_()
    assert len(text) > 60
    # Two where it crosses a page.
    assert mem.stats.syscalls - before.syscalls <= 2


def test_plugin_attaches_to_the_running_kernel_by_itself(run_python):
    code = """
import drgn, drgn_fastmem
prog = drgn.Program()
prog.set_kernel()
print(drgn_fastmem.attachment(prog))
"""
    assert run_python(code, env={"DRGN_FASTMEM": ""}).stdout == "native\n"
    assert run_python(code, env={"DRGN_FASTMEM": "off"}).stdout == "None\n"


def test_setting_that_the_kernel_refuses_is_logged_and_drgn_goes_on(run_python):
    code = """
import drgn, drgn_fastmem, os
prog = drgn.Program()
prog.set_kernel()
print(drgn_fastmem.attachment(prog))
prog.load_debug_info([os.environ["GUEST_VMLINUX"]])
print(prog["init_task"].comm.string_())
"""
    result = run_python(code, env={"DRGN_FASTMEM": "mmap=always"})
    assert result.stdout == "None\nb'swapper/0'\n"
    assert len(re.findall("not attached: OSError", result.stderr)) == 1, result.stderr


def test_without_the_capability_it_is_the_kernels_error(run_python):
    # CAP_SYS_RAWIO is needed (open_kcore in fs/proc/kcore.c, Linux 6.1).
    code = """
import drgn_fastmem, os
os.setgid(65534)
os.setuid(65534)
try:
    drgn_fastmem.open()
except PermissionError as e:
    print(e.errno, e.filename)
"""
    assert run_python(code).stdout == f"{errno.EACCES} {KCORE}\n"


WORKLOADS = ("tasks", "slab", "dentries", "modules", "percpu")


def run_workloads(setting):
    process = subprocess.run(
        [sys.executable, "-m", "tests.guest.workloads", *WORKLOADS, "--still"]
        + ["--vmlinux", VMLINUX],
        env={**os.environ, "DRGN_FASTMEM": setting},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    parts = re.split(r"^== (\w+)\n", process.stdout, flags=re.MULTILINE)[1:]
    output = {n: t.splitlines() for n, t in zip(parts[::2], parts[1::2])}
    return output, process.stderr


@pytest.fixture(scope="module")
def printed_by_drgn_alone():
    output, errors = run_workloads("off")
    assert "drgn_fastmem" not in errors
    return output


@pytest.fixture(scope="module")
def printed_with_the_plugin():
    output, errors = run_workloads("stats")
    reads = re.search(r"drgn_fastmem: .*\breads=(\d+)", errors)
    assert reads is not None, errors
    assert int(reads.group(1)) > 10_000
    return output


FEWEST_LINES = {
    "tasks": 40,
    "slab": 300,
    "dentries": 2000,
    "modules": 1000,
    "percpu": 200,
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_workload_prints_the_same_with_and_without_the_plugin(
    name, printed_by_drgn_alone, printed_with_the_plugin
):
    expected = printed_by_drgn_alone[name]
    assert len(expected) >= FEWEST_LINES[name]
    assert printed_with_the_plugin[name] == expected
