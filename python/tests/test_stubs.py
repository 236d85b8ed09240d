"""The stubs of the native module name what it exports, with its parameters."""

import ast
import inspect
from pathlib import Path

import pytest

import sparsebatch
from sparsebatch import _native

STUBS = ast.parse((Path(sparsebatch.__file__).parent / "_native.pyi").read_text())
FUNCTIONS = {node.name: node for node in STUBS.body if isinstance(node, ast.FunctionDef)}
CLASSES = {node.name: node for node in STUBS.body if isinstance(node, ast.ClassDef)}


def parameters(node: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in node.args.args if argument.arg not in ("self", "cls")]


def test_names():
    public = {name for name in dir(_native) if not name.startswith("_")}
    assert set(FUNCTIONS) | set(CLASSES) | {"VERSION"} == public


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_of_functions(name):
    signature = inspect.signature(getattr(_native, name))
    assert list(signature.parameters) == parameters(FUNCTIONS[name])


@pytest.mark.parametrize("name", CLASSES)
def test_members_of_classes(name):
    native = getattr(_native, name)
    members = {node.name: node for node in CLASSES[name].body if isinstance(node, ast.FunctionDef)}
    known = {member for member in dir(native) if not member.startswith("_")}
    assert {member for member in members if not member.startswith("__")} == known
    for member, node in members.items():
        if member == "__new__":
            found = inspect.signature(native).parameters
        elif any(getattr(one, "id", "") == "property" for one in node.decorator_list):
            assert inspect.isgetsetdescriptor(getattr(native, member))
            continue
        elif member.startswith("__"):
            assert hasattr(native, member)
            continue
        else:
            found = inspect.signature(getattr(native, member)).parameters
        assert [one for one in found if one not in ("self", "$self")] == parameters(node)
