"""The tiny pair: a small, trained Llama target and its EAGLE-3 draft, both in this folder."""

from pathlib import Path

TARGET = Path(__file__).parent / "target"
DRAFT = Path(__file__).parent / "draft"
