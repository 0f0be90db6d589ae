# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Runs in the guest that is dumped: makes processes, threads and a warm dentry
cache, says so in the share, and waits to be dumped. Needs only the standard library.
"""

import ctypes
import os
import socket
import subprocess
import sys
import threading
import time

PROCESSES = 300
FILES = 24_000
FILES_IN_DIRECTORY = 100
PR_SET_NAME = 15  # include/uapi/linux/prctl.h


def make_processes() -> None:
    """Asleep in a pipe, in a socket, in poll, or on a timer."""
    libc = ctypes.CDLL(None, use_errno=True)
    for number in range(PROCESSES):
        pid = os.fork()
        if pid:
            continue
        libc.prctl(PR_SET_NAME, b"fastmem-%d" % number, 0, 0, 0)
        kind = number % 4
        if kind == 0:
            os.read(os.pipe()[0], 1)
        elif kind == 1:
            pair = socket.socketpair()
            pair[0].recv(1)
        elif kind == 2:
            threading.Thread(target=time.sleep, args=(10**6,), daemon=True).start()
            time.sleep(10**6)
        else:
            libc.poll(None, 0, -1)
        os._exit(1)


def make_files(directory: str) -> None:
    os.mkdir(directory)
    subprocess.run(["mount", "-t", "tmpfs", "warm", directory], check=True)
    for number in range(FILES):
        folder, name = divmod(number, FILES_IN_DIRECTORY)
        path = f"{directory}/folder-{folder}"
        if name == 0:
            os.mkdir(path)
        # Some names are longer than what a dentry holds itself.
        long = "-with-a-name-that-is-not-stored-in-the-dentry" * (name % 10 == 0)
        with open(f"{path}/file-{name}{long}", "w") as file:
            if name % 50 == 0:
                file.write(f"{number}\n")
    for folder, _, names in os.walk(directory):
        for name in names:
            os.stat(f"{folder}/{name}")
            # A name that is not there leaves a negative dentry.
        os.path.exists(f"{folder}/missing")


def main() -> None:
    share = sys.argv[1]
    make_processes()
    make_files("/run/warm")
    # Mounts, to list them.
    for number in range(20):
        directory = f"/run/mount-{number}"
        os.mkdir(directory)
        subprocess.run(
            ["mount", "-t", "tmpfs", f"source-{number}", directory], check=True
        )
    time.sleep(1)
    with open(f"{share}/ready.new", "w") as file:
        file.write("ready\n")
    os.rename(f"{share}/ready.new", f"{share}/ready")
    time.sleep(10**6)


if __name__ == "__main__":
    main()
