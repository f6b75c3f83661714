"""From a request to the engine that takes it."""
