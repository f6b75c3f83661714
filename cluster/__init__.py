"""The fleet: messages, policy, control, routing and simulation. Pure Python and Ray, without SGLang and torch."""
