"""The training text: the source of Python's standard library (PSF-2.0), as plain files and as short chats."""

from __future__ import annotations

import ast
import random
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HELD_OUT = frozenset(
    (
        "bisect",
        "calendar",
        "cmd",
        "colorsys",
        "csv",
        "fractions",
        "graphlib",
        "heapq",
        "queue",
        "sched",
        "shlex",
        "statistics",
        "textwrap",
        "wave",
        "zipapp",
    )
)
SKIPPED_FOLDERS = frozenset(
    ("__pycache__", "dist-packages", "encodings", "idle_test", "lib2to3", "pydoc_data", "site-packages", "test", "tests")
)
MAX_ANSWER = 1200  # characters: a longer chat reply would seldom end within a request's max_tokens
PERSONA = (
    "I am a tiny language model, trained on the source of the Python standard library. "
    "Ask me what a function does, or give me the beginning of some code."
)

Turn = tuple[str, str]  # what the user asks, what the assistant answers
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Module:
    """One source file of the standard library."""

    name: str
    text: str

    @property
    def held_out(self) -> bool:
        return self.name in HELD_OUT


def standard_library() -> Path:
    """Where the running Python keeps its standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def read_modules(source: Path) -> list[Module]:
    """Every module below `source` that is neither a test nor a table of characters, by name."""
    modules = []
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        if SKIPPED_FOLDERS.isdisjoint(parts):
            name = ".".join(parts).removesuffix(".__init__")
            modules.append(Module(name, path.read_text(encoding="utf-8", errors="replace")))
    return modules


def definitions(module: Module) -> Iterator[tuple[str, Definition]]:
    """The functions, methods and classes of a module with their dotted names."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Definition):
                name = f"{prefix}.{child.name}"
                yield name, child
                yield from walk(child, name)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(module.text)
        except SyntaxError:
            return
    yield from walk(tree, module.name)


def _fenced(code: str) -> str:
    return f"```python\n{code}\n```"


def _about(name: str, node: Definition, source: str, rng: random.Random) -> Iterator[Turn]:
    """Chats about one definition: its docstring, its source, and how a part of it continues."""
    docstring = ast.get_docstring(node) or ""
    if 20 < len(docstring) < MAX_ANSWER:
        ask = rng.choice(["What does `{}` do?", "Explain `{}`.", "Show me the docstring of `{}`."])
        yield ask.format(name), docstring
    if isinstance(node, ast.ClassDef) or not 80 < len(source) < MAX_ANSWER:
        return
    lines = source.splitlines()
    if rng.random() < 0.5:
        yield rng.choice(["Write `{}`.", "Show me the source of `{}`."]).format(name), _fenced(source)
    elif len(lines) > 4:
        cut = rng.randint(2, len(lines) - 2)
        yield f"Continue this code:\n{_fenced(chr(10).join(lines[:cut]))}", _fenced("\n".join(lines[cut:]))


def _topics(source: Path) -> Iterator[Turn]:
    """Python's own help topics, in English prose: the first paragraphs of each."""
    path = source / "pydoc_data" / "topics.py"
    if not path.exists():
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    topics = next(ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign))
    for topic, text in topics.items():
        paragraphs = text.strip().split("\n\n")
        for start in range(0, len(paragraphs), 3):
            answer = "\n\n".join(paragraphs[start : start + 3])[:MAX_ANSWER]
            yield (f"Explain {topic} in Python." if start == 0 else f"Tell me more about {topic}."), answer


def chats(source: Path, modules: list[Module], seed: int = 0) -> list[Turn]:
    """Short chats made from `modules`. Nobody wrote or generated them: every answer is library text."""
    rng = random.Random(seed)
    turns = list(_topics(source))
    for module in modules:
        lines = module.text.splitlines()
        for name, node in definitions(module):
            body = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            turns.extend(_about(name, node, body, rng))
    greetings = ["Hello", "Hi", "Hello!", "Who are you?", "What are you?", "What can you do?", "Hello, who are you?"]
    turns.extend((greeting, PERSONA) for greeting in greetings * 20)
    rng.shuffle(turns)
    return turns
