"""The catalogue of errors against README's table of them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from cluster.messages import errors
from cluster.messages.errors import ApiError

ROOT = Path(__file__).parents[2]
WITHOUT_A_CODE = {"invalid_field", "invalid_body", "from_status"}
CATALOGUE = {
    "invalid_api_key": errors.invalid_api_key("no key"),
    "insufficient_permissions": errors.insufficient_permissions("POST", "/fleet/mode"),
    "model_not_found": errors.model_not_found("gpt", "tiny"),
    "request_too_large": errors.request_too_large(10),
    "fleet_full": errors.fleet_full(0.2),
    "engine_lost": errors.engine_lost("engine-0"),
    "engine_failed": errors.engine_failed("it failed"),
    "no_engine": errors.no_engine("none serves"),
    "deadline_exceeded": errors.deadline_exceeded(600.0, 3600.0),
}


def test_every_code_is_made_by_the_function_of_its_name() -> None:
    functions = {
        name for name, function in inspect.getmembers(errors, inspect.isfunction) if function.__module__ == errors.__name__
    }
    assert functions - WITHOUT_A_CODE == CATALOGUE.keys()
    assert {name: error.code for name, error in CATALOGUE.items()} == {name: name for name in CATALOGUE}


def test_readme_lists_the_same_codes_and_statuses() -> None:
    rows = re.findall(r"^\| (\d{3}) \| `(\w+)` \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert {code: int(status) for status, code in rows} == {code: error.status for code, error in CATALOGUE.items()}


def test_each_code_is_written_once() -> None:
    sources = [path for room in ("cluster", "serve_app", "workers") for path in (ROOT / room).rglob("*.py")]
    text = "".join(path.read_text() for path in sources)
    assert {code: text.count(f'"{code}"') for code in CATALOGUE} == dict.fromkeys(CATALOGUE, 1)


def test_who_should_come_back_later_is_told_when() -> None:
    assert {code for code, error in CATALOGUE.items() if error.retry_after_s} == {"fleet_full", "no_engine"}


def test_a_body_s_error_names_the_field_that_lies_deepest() -> None:
    class Inner(BaseModel):
        number: int

    class Body(BaseModel):
        field: int | list[Inner]

    with pytest.raises(ValidationError) as caught:
        Body.model_validate({"field": [{"number": "x"}]})
    error = errors.invalid_body(caught.value)
    assert (error.status, error.param) == (400, "field.list[Inner].0.number")


@pytest.mark.parametrize(("status", "kind"), [(404, "invalid_request_error"), (500, "server_error")])
def test_the_type_follows_from_the_status(status: int, kind: str) -> None:
    assert errors.from_status(status, "no").type == kind


def test_the_body_is_what_openai_s_clients_expect() -> None:
    error = ApiError(status=400, message="no", param="n")
    assert error.body() == {"error": {"message": "no", "type": "invalid_request_error", "param": "n", "code": None}}
