"""The application: `serve run` on a YAML with `import_path: serve_app.app:build`.

No postponed annotations here: Ray Serve reads the type of `args` from the signature as it is.
"""

from ray import serve

from cluster.control.fleet import missing_gpus
from serve_app.configuration import AppConfig
from serve_app.controller_deployment import ControllerDeployment
from serve_app.ingress import Ingress


def build(args: AppConfig) -> serve.Application:
    """Build the application from the `args` of its YAML.

    Raises:
        ValueError: if the cluster has too few GPUs and `when_gpus_missing` is `fail`.
    """
    specs = list(args.specs())
    missing = missing_gpus(specs)
    if missing and args.when_gpus_missing == "fail":
        wanted = sum(spec.num_gpus for spec in specs)
        raise ValueError(
            f"engines: they need {wanted} GPUs, and the cluster has {missing:g} too few. "
            "Add nodes, ask for fewer engines, or set when_gpus_missing: wait"
        )
    return Ingress.bind(ControllerDeployment.bind(list(args.groups()), args.public_name))  # type: ignore[attr-defined]
