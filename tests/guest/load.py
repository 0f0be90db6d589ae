# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Runs in a guest: makes processes, threads and a warm dentry cache that stay as
they are, says so with a file "ready" in a directory, and waits to be dumped or killed.
Needs only the standard library.
"""

import argparse
import ctypes
import os
import socket
import subprocess
import threading
import time

FILES_IN_DIRECTORY = 100
PR_SET_NAME = 15  # include/uapi/linux/prctl.h


def make_processes(count: int) -> None:
    """Asleep in a pipe, in a socket, in poll, or on a timer."""
    libc = ctypes.CDLL(None, use_errno=True)
    for number in range(count):
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


def make_files(directory: str, count: int) -> None:
    os.mkdir(directory)
    subprocess.run(["mount", "-t", "tmpfs", "warm", directory], check=True)
    for number in range(count):
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
    parser = argparse.ArgumentParser(prog="python -m tests.guest.load")
    parser.add_argument("directory")
    parser.add_argument("--processes", type=int, default=300)
    parser.add_argument("--files", type=int, default=24_000)
    args = parser.parse_args()
    make_processes(args.processes)
    make_files("/run/warm", args.files)
    # Mounts, to list them.
    for number in range(20):
        directory = f"/run/mount-{number}"
        os.mkdir(directory)
        subprocess.run(
            ["mount", "-t", "tmpfs", f"source-{number}", directory], check=True
        )
    time.sleep(1)
    with open(f"{args.directory}/ready.new", "w") as file:
        file.write("ready\n")
    os.rename(f"{args.directory}/ready.new", f"{args.directory}/ready")
    time.sleep(10**6)


if __name__ == "__main__":
    main()
