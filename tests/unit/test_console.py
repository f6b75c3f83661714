"""What `make serve` prints, for states of a fleet that are made up."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.messages.status import EngineState, EngineStatus, FleetStatus
from serve_app.console.__main__ import EngineLines, is_ready, ready_lines
from serve_app.console.serve_client import ServeClient, ServeError, last_line
from serve_app.console.served_config import ServedConfig

LOCAL = Path(__file__).parents[2] / "configs" / "local.yaml"


def fleet(*engines: tuple[EngineState, str]) -> FleetStatus:
    return FleetStatus(
        mode="auto",
        controller=1,
        namespace="n",
        served_model_name="tiny",
        engines=tuple(
            EngineStatus(name=f"engine-{i}", actor="a", state=state, detail=detail, gpus=0, report_age_s=None, in_force_s=None)
            for i, (state, detail) in enumerate(engines)
        ),
    )


def config(**changes: Any) -> ServedConfig:
    fields = {"host": "127.0.0.1", "port": 8000, "route_prefix": "/", "application": "specfleet", "model": "tiny", "key": None}
    return ServedConfig(path=LOCAL, **{**fields, **changes})


def test_a_line_for_each_change_and_none_for_a_countdown() -> None:
    lines = EngineLines()
    assert list(lines.changes(fleet(("starting", "loading the model"), ("waiting", "1 GPU short")))) == [
        "  engine-0: loading the model",
        "  engine-1: waiting, 1 GPU short",
    ]
    assert not list(lines.changes(fleet(("starting", "loading the model"), ("waiting", "1 GPU short"))))
    assert list(lines.changes(fleet(("serving", ""), ("waiting", "1 GPU short")))) == ["  engine-0: serving"]
    assert len(list(lines.changes(fleet(("serving", ""), ("failed", "next try in 4 s"))))) == 1
    assert not list(lines.changes(fleet(("serving", ""), ("failed", "next try in 3 s"))))


@pytest.mark.parametrize(
    ("engines", "ready"),
    [
        ([], False),
        ([("starting", "")], False),
        ([("waiting", "")], False),
        ([("serving", ""), ("starting", "")], False),
        ([("serving", ""), ("serving", "")], True),
        ([("serving", ""), ("waiting", "")], True),
        ([("serving", ""), ("failed", "")], True),
    ],
)
def test_ready_is_when_one_serves_and_none_is_starting(engines: list[tuple[EngineState, str]], ready: bool) -> None:
    assert is_ready(fleet(*engines)) is ready


def test_an_engine_that_fails_before_any_serves_ends_the_start_with_its_reason() -> None:
    with pytest.raises(ServeError, match="engine-1: failed, ValueError: no such model"):
        is_ready(fleet(("starting", ""), ("failed", "ValueError: no such model")))


def test_the_ready_line_tells_all_that_a_client_needs() -> None:
    first, curl = ready_lines(config(), fleet(("serving", ""), ("waiting", "")), 31.4)
    assert first == "Ready after 31 s: tiny on 1 of 2 engines at http://127.0.0.1:8000. Ctrl-C ends it. Try:"
    assert (
        curl
        == """  curl http://127.0.0.1:8000/v1/completions -d '{"model": "tiny", "prompt": "def main():", "max_tokens": 32}'"""
    )
    assert "-H 'Authorization: Bearer KEY'" in ready_lines(config(key="secret"), fleet(("serving", "")), 1)[1]
    assert "secret" not in ready_lines(config(key="secret"), fleet(("serving", "")), 1)[1]


def test_the_address_is_one_that_can_be_asked() -> None:
    assert config(host="0.0.0.0", route_prefix="/llm").url == "http://127.0.0.1:8000/llm"


def test_the_last_line_of_a_traceback_is_its_reason() -> None:
    assert last_line("Traceback:\n  File x\nValueError: engines: 2 GPUs wanted\n\n") == "ValueError: engines: 2 GPUs wanted"


@pytest.fixture
def answers() -> Iterator[tuple[dict[str, Any], int, list[str | None]]]:
    """What a server answers by path, its port, and the `Authorization` of each request to it."""
    by_path: dict[str, Any] = {}
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            self.send_response(200 if self.path in by_path else 503)
            self.end_headers()
            self.wfile.write(json.dumps(by_path.get(self.path)).encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield by_path, server.server_port, seen
        server.shutdown()


def test_the_status_is_asked_for_with_a_key(tmp_path: Path, answers: Any) -> None:
    by_path, port, seen = answers
    client = ServeClient(config(port=port, key="secret"), tmp_path / "log")
    assert client.fleet() is None
    by_path["/fleet"] = fleet(("serving", "")).model_dump(mode="json")
    assert client.fleet() == fleet(("serving", ""))
    assert seen == ["Bearer secret"] * 2


def test_a_deployment_that_failed_is_told_by_the_last_line_of_its_reason(tmp_path: Path, answers: Any) -> None:
    by_path, port, _ = answers
    log = tmp_path / "log"
    client = ServeClient(config(), log)
    log.write_text("nothing yet")
    client.check_deployment()
    log.write_text(f"Started a local Ray instance. View the dashboard at \x1b[1m\x1b[32mhttp://127.0.0.1:{port} \x1b[39m\x1b[22m")
    application = {"status": "DEPLOYING", "message": "", "deployments": {}}
    by_path["/api/serve/applications/"] = {"applications": {"specfleet": application}}
    client.check_deployment()
    application |= {"status": "DEPLOY_FAILED", "message": "Traceback\nValueError: 2 GPUs wanted\n"}
    with pytest.raises(ServeError, match=r"^ValueError: 2 GPUs wanted$"):
        client.check_deployment()


@pytest.fixture
def document() -> dict[str, Any]:
    """configs/local.yaml, at a port that is free."""
    document: dict[str, Any] = yaml.safe_load(LOCAL.read_text())
    document["http_options"]["port"] = 0
    return document


def read(tmp_path: Path, document: dict[str, Any]) -> ServedConfig:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return ServedConfig.read(path)


def test_a_shipped_configuration_is_read(tmp_path: Path, document: dict[str, Any]) -> None:
    found = read(tmp_path, document)
    assert (found.url, found.application, found.model, found.key) == ("http://127.0.0.1:0", "specfleet", "tiny", None)


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        ("args", {"modle": "tiny"}, "args.modle: Extra inputs are not permitted"),
        ("args", {"model": "tiny", "candidate_depths": [1]}, "args: candidate_depths must list 0"),
        ("import_path", "other:app", "none has `import_path: serve_app.app:build`"),
        (
            "deployments",
            [{"name": "Controller", "user_config": {"mode": "fast"}}],
            "Controller.user_config.mode: Input",
        ),
        ("deployments", [{"name": "Ingress", "user_config": {"api_keys": {"file": "/nowhere"}}}], "cannot read /nowhere"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, document: dict[str, Any], where: str, value: Any, said: str) -> None:
    document["applications"][0][where] = value
    with pytest.raises(ValueError, match=said):
        read(tmp_path, document)


def test_a_port_in_use_is_named(tmp_path: Path, document: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        document["http_options"]["port"] = port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"127.0.0.1:{port}: Address already in use"):
            read(tmp_path, document)


@pytest.mark.parametrize(("text", "said"), [("a: [", "is not YAML"), ("words", "holds `applications`")])
def test_what_is_no_configuration_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        ServedConfig.read(path)
