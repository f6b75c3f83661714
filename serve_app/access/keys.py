"""API keys: where they come from, and whether one is valid."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import Field, model_validator

from cluster.messages.base import Message


class KeySource(Message):
    """Says where the keys are. A configuration never holds keys, since it ends up in logs and on dashboards."""

    file: Path | None = Field(None, description="A file on the ingress's node, one key a line; `#` starts a comment.")
    environment: str | None = Field(None, description="An environment variable of the ingress, keys separated by commas.")

    @model_validator(mode="after")
    def _one(self) -> KeySource:
        if (self.file is None) == (self.environment is None):
            raise ValueError("name either `file` or `environment`, and only one")
        return self

    def read(self) -> tuple[str, ...]:
        """The keys.

        Raises:
            ValueError: if there is none: with an empty list the server would be open, or closed to everybody, by mistake.
        """
        if self.file is not None:
            try:
                lines = self.file.read_text().splitlines()
            except OSError as error:
                raise ValueError(f"keys: cannot read {self.file}: {error.strerror}") from error
            where, found = str(self.file), [line.split("#")[0].strip() for line in lines]
        else:
            where = f"environment variable {self.environment}"
            found = [key.strip() for key in os.environ.get(self.environment or "", "").split(",")]
        if not any(found):
            raise ValueError(f"keys: there is none in {where}")
        return tuple(key for key in found if key)


class KeySet:
    """Keeps hashes of keys, and compares in constant time."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._hashes = [_hash(key) for key in keys]

    def holds(self, key: str) -> bool:
        given = _hash(key)
        # All are compared, so that the time does not tell which one came close.
        return any([hmac.compare_digest(given, known) for known in self._hashes])


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogatepass")).digest()
