"""Calls of generators and coroutines whose result is dropped, so that nothing of what they say is done."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType

_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def check_calls(folder: str) -> None:
    """Raise TypeError, with file, line and what to write, for such a call in a module of the connector's folder."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and file.startswith(folder + "/") and "site-packages" not in file and file.endswith(".py"):
            for line, name, what in _dropped(module, file):
                where = f"{file[len(folder) + 1 :]}, line {line}"
                if what == "generator":
                    raise TypeError(
                        f"{where}: {name}(...) is a generator that nobody runs, so nothing that it does is done: write "
                        f"`yield from {name}(...)`, or `for _ in {name}(...): pass` in a function that does not yield"
                    )
                raise TypeError(
                    f"{where}: {name}(...) is a coroutine that nobody awaits: write `asyncio.run({name}(...))`"
                )


def _dropped(module: ModuleType, file: str) -> Iterator[tuple[int, str, str]]:
    try:
        with open(file, encoding="utf-8") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError):
        return
    for function in ast.walk(tree):
        if isinstance(function, _Function):
            own = set(_local_names(function))
            for line, name in _calls(function):
                if name not in own and (what := _kind(getattr(module, name, None))):
                    yield line, name, what


def _calls(function: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of calls by a plain name that are statements of their own."""
    for node in ast.walk(function):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
            yield node.lineno, node.value.func.id


def _kind(value: object) -> str:
    if inspect.isgeneratorfunction(value):
        return "generator"
    return "coroutine" if inspect.iscoroutinefunction(value) else ""


def _local_names(function: ast.AST) -> Iterator[str]:
    """Names that a function gives to values of its own."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, _Function) and node is not function:
            yield node.name
