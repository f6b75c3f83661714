"""Prompts from the held-out modules: `python -m workers.tiny.prompts > tests/data/prompts.jsonl`."""

from __future__ import annotations

import ast
import json
import random
import re
import textwrap

from workers.tiny.corpus import Module, definitions, read_modules, standard_library

COUNT, SHORTEST, LONGEST = 64, 32, 780


def openings(module: Module) -> list[str]:
    """The source and the docstring of each definition of a module."""
    lines = module.text.splitlines()
    found = []
    for _, node in definitions(module):
        found.append(textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno])))
        found.append(ast.get_docstring(node) or "")
    return [text for text in found if len(text) > SHORTEST * 2]


def cut(text: str, length: int) -> str:
    """The first words of a text, `length` characters or a little more; a word is never cut."""
    end = re.compile(r"\s|$").search(text, length)
    return text[: end.start()] if end else text


def main() -> None:
    rng = random.Random(0)
    modules = [module for module in read_modules(standard_library()) if module.held_out]
    choices = [(module.name, text) for module in modules for text in openings(module)]
    rng.shuffle(choices)
    lengths = [round(SHORTEST * (LONGEST / SHORTEST) ** (k / (COUNT - 1))) for k in range(COUNT)]
    for length in reversed(lengths):  # the longest first, while texts are left that are long enough
        pick = next(k for k, (_, text) in enumerate(choices) if len(text) > length)
        name, text = choices.pop(pick)
        prompt = cut(text, length).rstrip()
        source = name.replace(".", "/") + ".py"
        print(json.dumps({"prompt": prompt, "source": source, "license": "PSF-2.0"}))


if __name__ == "__main__":
    main()
