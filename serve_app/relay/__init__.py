"""From a request to an engine's answer."""
