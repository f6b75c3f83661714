"""One row of the contract: a symbol of SGLang that the patch touches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

Device = Literal["cpu", "cuda"]
Process = Literal["scheduler", "actor"]


class Kind(Enum):
    """How the patch touches a symbol."""

    HOOK = "hook"  # SGLang's HookRegistry calls `ours` around it
    REPLACEMENT = "replacement"  # `ours` stands in its place
    OVERRIDE = "override"  # `ours`, a method of a subclass, takes its place
    RELIANCE = "reliance"  # our code calls it, copies it or assumes how it works


HOOK, REPLACEMENT, OVERRIDE, RELIANCE = Kind


@dataclass(frozen=True)
class Row:
    """What a symbol must look like, why it is touched, and when that can end."""

    path: str
    """Dotted path of the symbol. A key of a dictionary follows in brackets: `module.NAME[key]`."""
    kind: Kind
    expected: str
    """What `source.describe` says of it: a signature, a line of source, or `sha256:` and a digest of its source, where the
    patch copies it or relies on its inner working. Empty for what SGLang's wheel does not have."""
    why: str
    breaks: str
    """What goes wrong without it."""
    goes: str
    """When the row can go."""
    ours: str = ""
    """Dotted path of what the patch puts there."""
    devices: tuple[Device, ...] = ("cpu", "cuda")
    processes: tuple[Process, ...] = ("scheduler",)
    """Where a hook, replacement or override must be in force."""
    upstream: str | None = None
    """SGLang's issue or pull request about it."""
