from tests.engine.conftest import auto_mode, client, fleet, handle, prompts

__all__ = ["auto_mode", "client", "fleet", "handle", "prompts"]
