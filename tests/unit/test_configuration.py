from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from cluster.control.fleet import Fleet
from cluster.messages.settings import ControllerSettings
from cluster.messages.spec import engine_of
from serve_app.configuration import AppConfig
from serve_app.ingress_settings import IngressSettings
from tests.unit.builders import spec
from workers.sglang_patch.server_args import known_arguments, sglang_arguments

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
BIG = {"model": "org/big", "draft_model": "org/draft"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_shipped_configuration_is_valid(path: Path) -> None:
    applications = yaml.safe_load(path.read_text())["applications"]
    for application in applications:
        assert application["import_path"] == "serve_app.app:build"
        assert list(AppConfig.model_validate(application["args"]).specs())
        for deployment in application.get("deployments", []):
            assert deployment["name"] in ("Controller", "Ingress")
            if deployment["name"] == "Controller":
                ControllerSettings.model_validate(deployment["user_config"])
            else:
                IngressSettings.model_validate(deployment.get("user_config", {}))


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ({"model": "tiny", "modle": 1}, "modle"),
        ({"model": "tiny", "engines": [{"count": 0}]}, "engines.0.count"),
        ({"model": "tiny", "engines": [{"count": "two"}]}, "engines.0.count"),
        ({"model": "tiny", "engines": []}, "engines"),
        ({"model": "tiny", "engines": [{}, {}]}, "engines: two groups"),
        ({"model": "tiny", "candidate_depths": [1, 3]}, "candidate_depths must list 0"),
        ({"model": "tiny", "candidate_depths": [0, 3, 3]}, "candidate_depths lists a depth twice"),
        ({"model": "tiny", "fallback": {"depth_by_batch": {"1": 4}}}, "fallback uses depths"),
        ({"model": "tiny", "fallback": {"depth_by_batch": {"2": 1}}}, "fallback.depth_by_batch"),
        ({"model": "tiny", "draft_model": "x"}, "draft_model"),
        ({"model": "org/big"}, "draft_model"),
        ({"model": "tiny", "server_args": {"mem_fraction": 0.5}}, "no argument mem_fraction"),
        ({"model": "tiny", "server_args": {"tp_size": 2}}, "tp_size follows from tensor_parallel"),
        ({"model": "tiny", "engines": [{"server_args": {"nope": 2}}]}, "engines.0.server_args"),
        ({"model": "tiny", "device": "tpu"}, "device"),
    ],
)
def test_bad_arguments_are_refused_by_name(args: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        AppConfig.model_validate(args)


def test_groups_become_engines_that_own_their_gpus() -> None:
    config = AppConfig.model_validate(
        {
            **BIG,
            "server_args": {"mem_fraction_static": 0.8, "page_size": 1},
            "engines": [{"name": "one", "count": 2}, {"name": "four", "tensor_parallel": 4, "server_args": {"page_size": 64}}],
        }
    )
    specs = list(config.specs())
    assert [(s.name, s.num_gpus) for s in specs] == [("one-0", 1), ("one-1", 1), ("four-0", 4)]
    assert specs[2].server_args == {"mem_fraction_static": 0.8, "page_size": 64}
    assert specs[0].served_model_name == "org/big"


def test_the_controllers_settings_resize_groups_by_name() -> None:
    config = AppConfig.model_validate({**BIG, "engines": [{"name": "one", "count": 2}, {"name": "four", "tensor_parallel": 4}]})
    fleet = Fleet(None, list(config.groups()), namespace="test", controller="")
    assert list(fleet.wanted({})) == ["one-0", "one-1", "four-0"]
    assert list(fleet.wanted({"one": 0, "four": 2})) == ["four-0", "four-1"]
    with pytest.raises(ValueError, match=r"engines: there is no group two; the groups are one, four"):
        fleet.wanted({"two": 1})


@pytest.mark.parametrize("count", [-1, 1001, "many", 1.5])
def test_impossible_numbers_of_engines_are_refused_by_name(count: Any) -> None:
    with pytest.raises(ValidationError, match=r"engines\.one"):
        ControllerSettings.model_validate({"engines": {"one": count}})


def test_an_engine_on_the_cpu_takes_no_gpu_and_brings_its_environment() -> None:
    (engine,) = AppConfig.model_validate({"model": "tiny", "device": "cpu", "environment": {"OMP_NUM_THREADS": "7"}}).specs()
    assert engine.num_gpus == 0
    assert engine.environment["SGLANG_USE_CPU_ENGINE"] == "1"
    assert engine.environment["OMP_NUM_THREADS"] == "7"


def test_an_actor_name_tells_changed_engines_apart() -> None:
    actor = spec(name="a-b-0").new_actor_name()
    assert engine_of(actor) == "a-b-0"
    assert spec(name="a-b-0").names(actor)
    assert not spec(name="a-b-0", server_args={"page_size": 2}).names(actor)
    assert actor != spec(name="a-b-0").new_actor_name()


def test_arguments_for_sglang(tmp_path: Path) -> None:
    arguments = sglang_arguments(spec(candidate_depths=(0, 5, 1), tensor_parallel=2), tmp_path)
    assert Path(arguments["model_path"]).joinpath("config.json").exists()
    assert (arguments["speculative_num_steps"], arguments["tp_size"], arguments["speculative_adaptive"]) == (5, 2, True)
    assert arguments.keys() <= known_arguments()


@pytest.mark.parametrize(
    ("fields", "field"), [({"model": "/no/such", "draft_model": "/x"}, "model"), ({"model": "org/a"}, "draft_model")]
)
def test_a_missing_model_is_named(fields: dict[str, str], field: str, tmp_path: Path) -> None:
    with pytest.raises((FileNotFoundError, ValueError), match=field):
        sglang_arguments(spec(**fields), tmp_path)
