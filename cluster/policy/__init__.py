"""From counters to a depth for each batch size: pure functions and models, numpy at most."""
