"""Keys, sizes and origins, on an application with two routes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from pydantic import ValidationError
from ray import cloudpickle

from serve_app import error_responses
from serve_app.access import middleware
from serve_app.access.access_policy import AccessPolicy
from serve_app.ingress_settings import IngressSettings

KEYS = {"api_keys": {"environment": "TEST_API_KEYS"}, "admin_keys": {"environment": "TEST_ADMIN_KEYS"}}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_API_KEYS", "sk-one, sk-two")
    monkeypatch.setenv("TEST_ADMIN_KEYS", "sk-admin")


def application() -> FastAPI:
    app = FastAPI()
    error_responses.install(app)
    middleware.install(app)

    @app.post("/v1/completions")
    @app.post("/fleet/mode")
    async def read(request: Request) -> int:
        return len(await request.body())

    @app.get("/health")
    @app.get("/fleet")
    async def get() -> str:
        return "ok"

    return app


def client(**settings: Any) -> httpx.AsyncClient:
    app = application()
    app.state.access_policy = AccessPolicy(IngressSettings(**settings))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://ingress")


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize("key", ["sk-one", "sk-two", "sk-admin"])
async def test_a_known_key_comes_in(key: str) -> None:
    assert (await client(**KEYS).post("/v1/completions", headers=bearer(key))).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(""),
        bearer("sk-on"),
        bearer("sk-onee"),
        bearer("SK-ONE"),
        {"Authorization": "sk-one"},
        {"Authorization": "Basic sk-one"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/completions"), ("GET", "/fleet"), ("POST", "/fleet/mode"), ("GET", "/no")]
)
async def test_any_other_is_refused_as_openai_refuses_it(headers: dict[str, str], method: str, path: str) -> None:
    answer = await client(**KEYS).request(method, path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
    assert "sk-" not in answer.text


@pytest.mark.parametrize(
    ("settings", "key", "status"),
    [
        (KEYS, "sk-admin", 200),
        (KEYS, "sk-one", 403),
        ({"api_keys": KEYS["api_keys"]}, "sk-one", 403),
        ({"admin_keys": KEYS["admin_keys"]}, "sk-admin", 200),
        ({"admin_keys": KEYS["admin_keys"]}, "sk-one", 401),
        ({}, "", 200),
    ],
)
async def test_the_fleet_is_changed_with_an_admin_key_alone(settings: dict[str, Any], key: str, status: int) -> None:
    assert (await client(**settings).post("/fleet/mode", headers=bearer(key) if key else {})).status_code == status


async def test_an_admin_key_alone_leaves_the_other_routes_open() -> None:
    assert (await client(admin_keys=KEYS["admin_keys"]).post("/v1/completions")).status_code == 200


async def test_health_needs_no_key() -> None:
    assert (await client(**KEYS).get("/health")).status_code == 200


async def test_keys_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# clients\nsk-three  # someone\n\n")
    http = client(api_keys={"file": str(file)})
    assert (await http.post("/v1/completions", headers=bearer("sk-three"))).status_code == 200
    assert (await http.post("/v1/completions", headers=bearer("#"))).status_code == 401


def test_a_source_without_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("# none yet\n")
    for source in [{"environment": "NO_SUCH_VARIABLE"}, {"file": str(tmp_path / "empty")}, {"file": "/no/such/file"}]:
        with pytest.raises(ValueError, match=r"NO_SUCH_VARIABLE|empty|/no/such/file"):
            client(api_keys=source)


@pytest.mark.parametrize(
    "settings", [{"api_keys": {}}, {"api_keys": "sk-1"}, {"api_keys": {"file": "a", "environment": "b"}}, {"api_key": 1}]
)
def test_a_wrong_source_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="api_key"):
        IngressSettings(**settings)


async def test_a_body_that_is_too_large_is_refused() -> None:
    http = client(max_body_bytes=10)
    assert (await http.post("/v1/completions", content=b"x" * 10)).json() == 10

    async def pieces() -> Any:
        for _ in range(11):
            yield b"x"

    for content in (b"x" * 11, pieces()):
        answer = await http.post("/v1/completions", content=content)
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "request_too_large"


PREFLIGHT = {
    "Origin": "https://page",
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization, content-type, x-session-id, x-request-timeout",
}


@pytest.mark.parametrize("origins", [["https://page"], ["*"]])
async def test_a_page_of_an_allowed_origin_may_call(origins: list[str]) -> None:
    http = client(cors_origins=origins, **KEYS)
    preflight = await http.options("/v1/completions", headers=PREFLIGHT)
    assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (200, "https://page")
    for key, status in [("sk-one", 200), ("sk-no", 401)]:
        answer = await http.post("/v1/completions", headers={"Origin": "https://page", **bearer(key)})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, "https://page")


@pytest.mark.parametrize("origins", [[], ["https://other"]])
async def test_a_page_of_another_origin_may_not(origins: list[str]) -> None:
    http = client(cors_origins=origins)
    preflight = await http.options("/v1/completions", headers=PREFLIGHT)
    assert preflight.status_code == 403
    assert "cors_origins" in preflight.json()["error"]["message"]
    answer = await http.post("/v1/completions", headers={"Origin": "https://page"})
    assert "access-control-allow-origin" not in {*preflight.headers, *answer.headers}


async def test_new_origins_take_hold_in_a_running_copy_of_the_application() -> None:
    """Serve pickles the application, and each replica runs a copy."""
    app: FastAPI = cloudpickle.loads(cloudpickle.dumps(application()))
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://ingress")
    for origins, status in [([], 403), (["https://page"], 200), ([], 403)]:
        app.state.access_policy = AccessPolicy(IngressSettings(cors_origins=origins))
        assert (await http.options("/v1/completions", headers=PREFLIGHT)).status_code == status


@pytest.mark.parametrize("prefix", ["/prefix", "/prefix/"])
async def test_paths_are_judged_without_the_prefix_of_the_application(prefix: str) -> None:
    app = application()
    app.state.access_policy = AccessPolicy(IngressSettings(**KEYS))
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app, root_path=prefix), base_url="http://ingress")
    assert (await http.get("/prefix/health")).status_code != 401
    assert (await http.post("/prefix/fleet/mode", headers=bearer("sk-one"))).status_code == 403
    assert (await http.post("/prefix/v1/completions")).status_code == 401
