"""Simulated engines under the real policy, and an oracle to measure it by."""
