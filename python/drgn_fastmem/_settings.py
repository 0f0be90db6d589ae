# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""The settings of the plugin: the environment variable ``DRGN_FASTMEM``.

Nothing, or a comma list of:

``off``
    leave drgn alone
``mmap=try|never|always``, ``translate=auto|never``
    as in :func:`drgn_fastmem.open`
``stats``
    print the counters of each attached memory when Python exits
"""

from typing import NamedTuple


class Settings(NamedTuple):
    enabled: bool = True
    mmap: str = "try"
    translate: str = "auto"
    stats: bool = False


CHOICES = {
    "mmap": ("try", "never", "always"),
    "translate": ("auto", "never"),
}


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
        elif name in CHOICES:
            raise ValueError(f"{item!r}: {name} is one of {', '.join(CHOICES[name])}")
        else:
            raise ValueError(
                f"{item!r} is not a setting (off, mmap=, translate=, stats)"
            )
    return settings
