"""Asks a running `serve run` from outside: by HTTP, and by the log that it writes."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

from pydantic import ValidationError

from cluster.messages.status import FleetStatus
from serve_app.console.served_config import ServedConfig

_DASHBOARD = re.compile(r"dashboard at (?:http://)?([\w.:-]+:\d+)")
_ANSI = re.compile(r"\x1b\[[\d;]*m")


class ServeError(Exception):
    """The fleet cannot start, or has ended; says why."""


class ServeClient:
    """Asks the fleet of a YAML for its state."""

    def __init__(self, config: ServedConfig, log: Path) -> None:
        self._config, self._log = config, log
        # Requests must not go through a proxy that the environment names.
        self._http = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def fleet(self) -> FleetStatus | None:
        """The status that `GET /fleet` gives; None while there is none."""
        headers = {"Authorization": f"Bearer {self._config.key}"} if self._config.key else {}
        answer = self._get(f"{self._config.url}/fleet", headers)
        try:
            return FleetStatus.model_validate_json(answer) if answer else None
        except ValidationError:
            return None

    def check_deployment(self) -> None:
        """Ask Serve how the deployment goes, at the address of the dashboard that `serve run` prints.

        Raises:
            ServeError: if it failed.
        """
        dashboard = _DASHBOARD.search(self._printed())
        answer = self._get(f"http://{dashboard[1]}/api/serve/applications/", {}) if dashboard else None
        application = json.loads(answer)["applications"].get(self._config.application) if answer else None
        if application and application["status"] == "DEPLOY_FAILED":
            messages = [application["message"], *(d["message"] for d in application["deployments"].values())]
            raise ServeError(last_line("\n".join(messages)))

    def last_line(self) -> str:
        """The last line of the log."""
        return last_line(self._printed())

    def _printed(self) -> str:
        return _ANSI.sub("", self._log.read_text(errors="replace"))

    def _get(self, url: str, headers: dict[str, str]) -> bytes | None:
        """The body of an answer; None without a successful one."""
        try:
            with self._http.open(urllib.request.Request(url, headers=headers), timeout=5) as answer:
                return bytes(answer.read())
        except OSError:
            return None


def last_line(text: str) -> str:
    """The last line of a text. In a traceback it says what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"
