# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""The plainest reader of /proc/kcore: its program headers, and one pread a range."""

import os
import re
import subprocess
from typing import List, NamedTuple

import drgn

KCORE = "/proc/kcore"


class Load(NamedTuple):
    address: int
    physical: int
    offset: int
    size: int


def program_headers() -> List[Load]:
    text = subprocess.run(
        ["readelf", "-lW", KCORE], check=True, capture_output=True, text=True
    ).stdout
    return [
        Load(int(address, 16), int(physical, 16), int(offset, 16), int(size, 16))
        for offset, address, physical, size in re.findall(
            r"^ +LOAD +(0x\w+) (0x\w+) (0x\w+) (0x\w+)", text, re.MULTILINE
        )
    ]


class Plain:
    def __init__(self) -> None:
        self.loads = program_headers()
        self.fd = os.open(KCORE, os.O_RDONLY)

    def close(self) -> None:
        os.close(self.fd)

    def read(self, address: int, size: int, physical: bool = False) -> bytes:
        """As far as one program header goes; what is cut there is a fault."""
        # The last one wins.
        for load in reversed(self.loads):
            start = load.physical if physical else load.address
            if start != 2**64 - 1 and start <= address < start + load.size:
                count = min(size, start + load.size - address)
                data = os.pread(self.fd, count, address - start + load.offset)
                if count < size:
                    data += self.read(address + count, size - count, physical)
                return data
        raise drgn.FaultError("not in /proc/kcore", address)

    def _read_uint(self, address: int, size: int, physical: bool) -> int:
        return int.from_bytes(self.read(address, size, physical), "little")

    def read_u8(self, address: int, physical: bool = False) -> int:
        return self._read_uint(address, 1, physical)

    def read_u16(self, address: int, physical: bool = False) -> int:
        return self._read_uint(address, 2, physical)

    def read_u32(self, address: int, physical: bool = False) -> int:
        return self._read_uint(address, 4, physical)

    def read_u64(self, address: int, physical: bool = False) -> int:
        return self._read_uint(address, 8, physical)

    def read_c_string(
        self, address: int, physical: bool = False, *, max_size: int
    ) -> bytes:
        data = b""
        while len(data) < max_size:
            byte = self.read(address + len(data), 1, physical)
            if byte == b"\0":
                break
            data += byte
        return data
