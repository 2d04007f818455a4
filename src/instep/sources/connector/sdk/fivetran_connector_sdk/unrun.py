"""Generators and coroutines of the connector's own code that nobody runs, so that nothing of what they say is done.

Calls whose result nobody uses are found in the text of its modules before anything runs; Python itself tells of each
coroutine that ended before it began.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

_BY_TEXT = frozenset({"locals", "vars", "eval", "exec"})
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)
_unawaited: list[str] = []
"""An error for each coroutine that ended before it began."""


def watch(folder: str) -> None:
    """Note the coroutines of modules in this folder that nobody awaits, from now on."""
    otherwise = getattr(warnings, "_warn_unawaited_coroutine", None)  # called by Python for each of them

    def note(coroutine: Any) -> None:
        code = coroutine.cr_code
        if _is_own(folder, code.co_filename):
            place = f"{os.path.relpath(code.co_filename, folder)}, line {code.co_firstlineno}"
            _unawaited.append(f"{place}: {_how_to_run('coroutine', code.co_name)}")
        elif otherwise is not None:
            otherwise(coroutine)

    warnings._warn_unawaited_coroutine = note  # type: ignore[attr-defined]


def check_coroutines() -> None:
    """Raise TypeError for the first coroutine that ended before it began."""
    if _unawaited:
        raise TypeError(_unawaited[0])


def check_calls(folder: str) -> None:
    """Raise TypeError, with file, line and what to write, for a call in a module of the connector's folder that makes a
    generator or coroutine which nobody can run."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and _is_own(folder, file) and file.endswith(".py"):
            for line, name, kind in _unused(folder, module, file):
                raise TypeError(f"{os.path.relpath(file, folder)}, line {line}: {_how_to_run(kind, name)}")


def _is_own(folder: str, file: str) -> bool:
    return file.startswith(folder + "/") and "site-packages" not in file


def _how_to_run(kind: str, name: str) -> str:
    if kind == "coroutine":
        return f"{name}(...) is a coroutine that nobody awaits: write `asyncio.run({name}(...))`"
    if kind == "async generator":
        return f"{name}(...) is an async generator that nobody runs: write `async for _ in {name}(...)`"
    return (
        f"{name}(...) is a generator that nobody runs, so nothing that it does is done: write "
        f"`yield from {name}(...)`, or `for _ in {name}(...): pass` in a function that does not yield"
    )


def _unused(folder: str, module: ModuleType, file: str) -> Iterator[tuple[int, str, str]]:
    try:
        with open(file, encoding="utf-8") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError):
        return
    for function, owner in _functions(tree):
        local_names = set(_local_names(function))
        for call in (*_dropped(function), *_unread(function)):
            if kind := _kind(_called(folder, module, call.func, local_names, owner)):
                yield call.lineno, ast.unparse(call.func), kind


def _functions(tree: ast.AST, owner: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Yield functions, each with the class of the module that it is a method of."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _Function):
            yield node, owner
        of_module = isinstance(node, ast.ClassDef) and isinstance(tree, ast.Module)
        yield from _functions(node, getattr(node, "name", "") if of_module else "")


def _dropped(function: ast.AST) -> Iterator[ast.Call]:
    """Call that are statements of their own."""
    for node in ast.walk(function):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield node.value


def _unread(function: ast.AST) -> Iterator[ast.Call]:
    """Call with a result that goes to a name of the function which is never read."""
    nodes = list(ast.walk(function))
    read = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Store)}
    shared = {name for n in nodes if isinstance(n, (ast.Global, ast.Nonlocal)) for name in n.names}
    if read & _BY_TEXT:
        return
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name) and target.id not in read | shared:
                yield node.value


def _called(folder: str, module: ModuleType, function: ast.expr, own: set[str], owner: str) -> object:
    """Return the function that is called by a name of the module or of another one of the connector, as a method of an
    object that is made there and then, or as one of `owner` on its own `self`; None for all else."""
    if isinstance(function, ast.Name):
        return None if function.id in own else getattr(module, function.id, None)
    if not isinstance(function, ast.Attribute):
        return None
    before = function.value
    if isinstance(before, ast.Name) and before.id == "self" and owner:
        return _method(getattr(module, owner, None), function.attr)
    if isinstance(before, ast.Call):
        returned = _called(folder, module, before.func, own, owner)
        return _method(returned, function.attr) if inspect.isclass(returned) else None
    if isinstance(before, ast.Name) and before.id not in own:
        other = getattr(module, before.id, None)
        if isinstance(other, ModuleType) and _is_own(folder, getattr(other, "__file__", None) or ""):
            return getattr(other, function.attr, None)
        return _method(other, function.attr)
    return None


def _method(owner: object, name: str) -> object:
    return inspect.getattr_static(owner, name, None) if inspect.isclass(owner) else None


def _kind(value: object) -> str:
    """Return how Python calls what a function makes, "" if it runs at once. A decorated one is what that made."""
    value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    if inspect.isgeneratorfunction(value):
        return "generator"
    if inspect.isasyncgenfunction(value):
        return "async generator"
    return "coroutine" if inspect.iscoroutinefunction(value) else ""


def _local_names(function: ast.AST) -> Iterator[str]:
    """Yield names that a function gives to values of its own."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, _Function) and node is not function:
            yield node.name
