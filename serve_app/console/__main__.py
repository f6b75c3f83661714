"""Runs `serve run` on a YAML and tells a person the state of the fleet: `make serve`.

    configs/with-haproxy python -m serve_app.console CONFIG

What Ray and SGLang print goes to a log file. The console says what each engine is doing, and where the fleet serves once it
does. If the fleet cannot serve, the last line says why, and the exit code is 1. Ctrl-C ends the fleet.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.messages.status import EngineStatus, FleetStatus
from serve_app.console.serve_client import ServeClient, ServeError
from serve_app.console.served_config import ServedConfig

LOG = Path("specfleet.log")
POLL_S = 0.5
POLL_READY_S = 5.0
END_WITHIN_S = 120.0


class EngineLines:
    """The lines that tell how engines change from one status of the fleet to the next."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, str]] = {}

    def changes(self, fleet: FleetStatus) -> Iterator[str]:
        """A line for each engine whose state or detail has changed."""
        for engine in fleet.engines:
            # Figures in a detail, such as the seconds to the next try, change all the time.
            now = (engine.state, re.sub(r"\d+", "", engine.detail))
            if now != self._told.get(engine.name):
                self._told[engine.name] = now
                yield f"  {described(engine)}"


def described(engine: EngineStatus) -> str:
    """Its state and detail. While it starts, the detail says everything."""
    parts = (engine.detail,) if engine.state == "starting" else (engine.state, engine.detail)
    return f"{engine.name}: {', '.join(filter(None, parts))}"


def is_ready(fleet: FleetStatus) -> bool:
    """Whether an engine serves and none is starting.

    Raises:
        ServeError: if an engine failed to start before any serves.
    """
    if not fleet.serving:
        for engine in fleet.engines:
            if engine.state == "failed":
                raise ServeError(described(engine))
    return bool(fleet.serving) and not any(engine.state == "starting" for engine in fleet.engines)


def ready_lines(config: ServedConfig, fleet: FleetStatus, took_s: float) -> list[str]:
    """Where the fleet serves, and a first request to it."""
    key = " -H 'Authorization: Bearer KEY'" if config.key else ""
    body = f'{{"model": "{fleet.served_model_name}", "prompt": "def main():", "max_tokens": 32}}'
    engines = f"{len(fleet.serving)} of {len(fleet.engines)} engines"
    return [
        f"Ready after {took_s:.0f} s: {fleet.served_model_name} on {engines} at {config.url}. Ctrl-C ends it. Try:",
        f"  curl {config.url}/v1/completions{key} -d '{body}'",
    ]


@contextmanager
def serve_run(config: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `serve run` with its output in a file. At the end it gets the signal of Ctrl-C, and is killed if that does not help."""
    command = [sys.executable, "-m", "ray.serve.scripts", "run", str(config)]
    with log.open("wb") as output:
        # In a session of its own, so that Ctrl-C reaches it once, from here.
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                say("Ending the fleet. Ctrl-C again kills it.")
                process.send_signal(signal.SIGINT)
            try:
                process.wait(END_WITHIN_S)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                process.kill()
                process.wait()


def watch(config: ServedConfig, process: subprocess.Popen[bytes]) -> None:
    """Tell the state of the fleet until it ends.

    Raises:
        ServeError: if it cannot start, or ended by itself.
    """
    client, lines, began, ready = ServeClient(config, LOG), EngineLines(), time.monotonic(), False
    while process.poll() is None:
        fleet = client.fleet()
        if fleet is not None:
            for line in lines.changes(fleet):
                say(line)
            if not ready and is_ready(fleet):
                ready = True
                for line in ready_lines(config, fleet, time.monotonic() - began):
                    say(line)
        elif not ready:
            client.check_deployment()
        time.sleep(POLL_READY_S if ready else POLL_S)
    raise ServeError(client.last_line())


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    """Serve the configuration that the command line names. Returns the exit code."""
    if len(sys.argv) != 2:
        say("usage: python -m serve_app.console CONFIG")
        return 2
    # Also end in order when the terminal closes, or when a script that started this in the background ends it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        config = ServedConfig.read(Path(sys.argv[1]))
        say(f"Starting {config.model} as {config.path} says. Log of Ray and SGLang: {LOG.absolute()}")
        with serve_run(config.path, LOG) as process:
            watch(config, process)
    except KeyboardInterrupt:
        say("The fleet has ended.")
    except (ValueError, ServeError) as error:
        say(f"The fleet cannot serve: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
