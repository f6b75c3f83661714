"""A whole Serve YAML, checked before anything starts, and how to reach its fleet."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from ray.serve.schema import ServeApplicationSchema, ServeDeploySchema

from cluster.messages.settings import ControllerSettings
from serve_app.configuration import AppConfig
from serve_app.ingress_settings import IngressSettings

IMPORT_PATH = "serve_app.app:build"

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class ServedConfig:
    """Where the fleet of a YAML serves, and under which name."""

    path: Path
    host: str
    port: int
    route_prefix: str
    application: str  # its name in Serve
    model: str  # as clients ask for it
    key: str | None  # a client's key; None: clients need none

    @property
    def url(self) -> str:
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        return f"http://{host}:{self.port}{self.route_prefix.rstrip('/')}"

    @classmethod
    def read(cls, path: Path) -> ServedConfig:
        """Read and check a YAML.

        Raises:
            ValueError: naming the field that is wrong and why, or the port if another program has it.
        """
        document = _validated(ServeDeploySchema, _document(path), path)
        application = next((app for app in document.applications if app.import_path == IMPORT_PATH), None)
        if application is None:
            raise ValueError(f"{path}: applications: none has `import_path: {IMPORT_PATH}`")
        args = _validated(AppConfig, application.args, path, "args")
        _validated(ControllerSettings, _user_config(application, "Controller"), path, "Controller.user_config")
        settings = _validated(IngressSettings, _user_config(application, "Ingress"), path, "Ingress.user_config")
        keys = settings.api_keys.read() if settings.api_keys else (None,)
        http = document.http_options
        _check_free(http.host, http.port)
        return cls(path, http.host, http.port, application.route_prefix or "/", application.name, args.public_name, keys[0])


def _document(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise ValueError(f"{path}: a Serve YAML holds `applications`; see configs/")
    return document


def _user_config(application: ServeApplicationSchema, deployment: str) -> Any:
    return next((d.user_config for d in application.deployments if d.name == deployment and d.user_config), {})


def _validated(model: type[M], values: Any, path: Path, *where: str) -> M:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        wrong = [(".".join(map(str, (*where, *e["loc"]))), e["msg"].removeprefix("Value error, ")) for e in error.errors()]
        raise ValueError(f"{path}: " + "; ".join(f"{field}: {why}" for field, why in wrong)) from error


def _check_free(host: str, port: int) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise ValueError(
                f"http_options: {host}:{port}: {error.strerror}. End the program that has it, or change `port`; "
                "a fleet that runs takes a changed YAML by `serve deploy`"
            ) from error
