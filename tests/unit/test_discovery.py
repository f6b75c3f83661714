"""An engine does not start where SGLang would not load the plugin."""

from importlib.metadata import EntryPoint

import pytest

from workers.sglang_patch.contract import discovery


def test_the_installed_plugin_is_found() -> None:
    discovery.require_plugin()


@pytest.mark.parametrize("values", [[], ["workers.plugin:register"], [discovery.OURS, "workers.plugin:register"]])
def test_a_missing_or_old_plugin_is_refused(monkeypatch: pytest.MonkeyPatch, values: list[str]) -> None:
    entries = [EntryPoint(discovery.NAME, value, discovery.GROUP) for value in values]
    monkeypatch.setattr(discovery, "entry_points", lambda group: entries)
    with pytest.raises(RuntimeError, match="install specfleet anew"):
        discovery.require_plugin()


def test_a_list_of_plugins_without_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_PLUGINS", "another, one")
    with pytest.raises(RuntimeError, match="SGLANG_PLUGINS leaves the plugin `specfleet` out"):
        discovery.require_plugin()
