"""Measurements on real engines; each prints what it measured and on what."""
