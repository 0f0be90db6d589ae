# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""An emulator's monitor: QMP (QEMU 7.2, docs/interop/qmp-spec.txt, qapi/dump.json)."""

import json
import socket
from pathlib import Path
from typing import Any, Dict


class MonitorError(Exception):
    """The emulator refused a command, or is gone."""


class Monitor:
    """QEMU's side of a QMP socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rw")
        self._message()
        self.command("qmp_capabilities")

    def _message(self) -> Dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise MonitorError("the emulator closed its monitor")
        return json.loads(line)

    def command(self, name: str, **arguments: Any) -> Any:
        request = {"execute": name, "arguments": arguments}
        self._lines.write(json.dumps(request) + "\n")
        self._lines.flush()
        while True:
            message = self._message()
            if "error" in message:
                raise MonitorError(f"{name}: {message['error']['desc']}")
            # Others are events.
            if "return" in message:
                return message["return"]

    def close(self) -> None:
        self._lines.close()
        self._socket.close()
