# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""The settings of the plugin: the environment variable ``DRGN_FASTMEM``.

Nothing, or a comma list of:

``off``
    leave drgn alone
``mmap=try|never|always``, ``translate=auto|never``
    as in :func:`drgn_fastmem.open`
``max_age=10ms``
    the same; a number with ``us``, ``ms`` or ``s``, ``0``, or ``inf``
``stats``
    print the counters of each attached memory when Python exits
"""

import math
import re
from typing import NamedTuple, Optional


class Settings(NamedTuple):
    enabled: bool = True
    mmap: str = "try"
    translate: str = "auto"
    max_age: Optional[float] = None
    stats: bool = False


CHOICES = {
    "mmap": ("try", "never", "always"),
    "translate": ("auto", "never"),
}


UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def _seconds(text: str) -> float:
    if text == "0":
        return 0.0
    if text == "inf":
        return math.inf
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s)", text)
    if match is None:
        raise ValueError("a time is a number with us, ms or s, or 0, or inf")
    return float(match[1]) * UNITS[match[2]]


def parse(text: str) -> Settings:
    """Settings from the text of the variable.

    :raises ValueError: if any part of it makes no sense.
    """
    settings = Settings()
    for item in text.split(","):
        item = item.strip()
        name, equals, value = item.partition("=")
        if not item or item == "on":
            pass
        elif item in ("off", "0"):
            settings = settings._replace(enabled=False)
        elif item == "stats":
            settings = settings._replace(stats=True)
        elif name in CHOICES and value in CHOICES[name]:
            settings = settings._replace(**{name: value})
        elif name == "max_age":
            try:
                settings = settings._replace(max_age=_seconds(value))
            except ValueError as e:
                raise ValueError(f"{item!r}: {e}") from None
        elif name in CHOICES:
            raise ValueError(f"{item!r}: {name} is one of {', '.join(CHOICES[name])}")
        else:
            raise ValueError(
                f"{item!r} is not a setting (off, mmap=, translate=, max_age=, stats)"
            )
    return settings
