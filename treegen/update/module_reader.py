"""Read a generated module back into the tree that it was printed from, without running it.

The reader looks only for configs, splits and leaves. Then it prints the tree again and requires the same
text. So it refuses every text that treegen does not print (an edit, a module of another spec).
"""

from __future__ import annotations

import ast
import dataclasses
import re
import warnings
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from treegen.core import expr
from treegen.core.errors import one_line, shown
from treegen.core.spec import Config, KernelSpec
from treegen.core.tree import Leaf, Split, Tree
from treegen.emit.environment import COMMENT
from treegen.emit.python import device_module

MAX_CHARACTERS = 1 << 21
"""A longer module is refused: Python's parser may take a thousand bytes of memory per character."""

_NO_LIMITS: Mapping[str, int] = MappingProxyType({})
_BLANK = "BLANK[0-9]+_"  # no feature has capitals
_INTEGER = r"(\(?-?[0-9][0-9_]*\)?)"


class UnreadableModule(ValueError):
    """A text that is printed from no tree of the kernel; `line` (from 1) is the first that shows it."""

    def __init__(self, path: Path, line: int, what: str) -> None:
        super().__init__(one_line(f"{path}:{line}: {what}"))
        self.line = line


def read_module(text: str, kernel: KernelSpec, path: Path, limits: Mapping[str, int] = _NO_LIMITS) -> Tree:
    """The one tree that `device_module` prints as `text`, without gaps, which are not printed.

    The module may be for any device. Parameters that it leaves out get the spec's defaults; only config.py
    beside it shows whether these changed.

    Args:
        text: the module
        kernel: the kernel of the module
        path: the text's file, for messages
        limits: the device's limits in the printed derived features; any number fits a limit that is not given

    Raises:
        UnreadableModule: `device_module` prints the text for no tree of this kernel.
    """
    reader = _ModuleReader(text, kernel, path, limits)
    device = reader.device()
    function = reader.function()
    try:
        tree = reader.tree(iter(function.body), function)
        reader.compare(device, tree)
    except RecursionError:
        reader.refuse(function, "the module is nested too deeply")
    return tree


class _ModuleReader:
    """Reads one module from top to bottom, which fills `configs` and `numbers`."""

    def __init__(self, text: str, kernel: KernelSpec, path: Path, limits: Mapping[str, int]) -> None:
        self.text, self.kernel, self.path = text, kernel, path
        self.lines = text.split("\n")
        self.features = {*kernel.features, *kernel.derived}
        self.derived = {name: expr.substitute(known, limits) for name, known in kernel.derived.items()}
        self.configs: dict[str, Config] = {}
        self.numbers: dict[
            expr.Expression, expr.Number
        ] = {}  # by part: what was printed for limits not given

    def refuse(self, place: ast.stmt | ast.expr | ast.keyword | int, what: str) -> NoReturn:
        line = place if isinstance(place, int) else place.lineno
        raise UnreadableModule(self.path, line, what) from None

    def shown(self, place: ast.stmt | ast.expr | int) -> str:
        line = place if isinstance(place, int) else place.lineno
        return _quoted(self.lines[line - 1].strip())

    def device(self) -> str:
        """The device key in the first line."""
        if len(self.text) > MAX_CHARACTERS:
            self.refuse(1, f"the module is longer than {MAX_CHARACTERS} characters")
        match = re.match(rf'"""{self.kernel.name} on ([a-z][a-z0-9_]*): ', self.lines[0])
        if match is None:
            self.refuse(1, f"no module of {self.kernel.name} begins with {self.shown(1)}")
        return match.group(1)

    def function(self) -> ast.FunctionDef:
        """The function `choose`; fills `configs` from the statements before it."""
        for node in self._parsed().body:
            match node:
                case ast.Expr() | ast.ImportFrom():
                    pass  # `compare` checks these
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    if name in self.configs:
                        self.refuse(node, f"{shown(name)} is defined again")
                    self.configs[name] = self._config(value)
                case ast.FunctionDef(name="choose"):
                    return node
                case _:
                    self.refuse(node, f"{self.shown(node)} has no place in a module")
        self.refuse(len(self.lines), "the module ends without `choose`")

    def _parsed(self) -> ast.Module:
        strange = re.search(r"[^\n -~]", self.text)
        if strange is not None:
            line = self.text.count("\n", 0, strange.start()) + 1
            self.refuse(line, f"no module contains the character {strange.group()!a}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # `compare` refuses whatever Python warns about
                return ast.parse(self.text)
        except SyntaxError as error:
            line = min(error.lineno or 1, len(self.lines))
            self.refuse(line, f"{self.shown(line)} is not Python")
        except (RecursionError, MemoryError):
            longest = max(range(len(self.lines)), key=lambda index: len(self.lines[index]))
            self.refuse(longest + 1, "the module is nested too deeply")

    def _config(self, node: ast.expr) -> Config:
        match node:
            case ast.Call(func=ast.Name(id="Config"), args=[ast.Constant(value=str(variant))]):
                pass
            case _:
                self.refuse(node, f"{self.shown(node)} is no config")
        if variant not in self.kernel.variants:
            self.refuse(node, f"unknown variant {shown(variant)}; known: {', '.join(self.kernel.variants)}")
        values = {name: parameter.default for name, parameter in self.kernel.parameters.items()}
        for keyword in node.keywords:
            if keyword.arg not in values:
                what = f"unknown parameter {shown(keyword.arg)}; known: {', '.join(values)}"
                self.refuse(keyword, what)
            values[keyword.arg] = self._integer(keyword.value)
        missing = [name for name, value in values.items() if value is None]
        if missing:
            self.refuse(node, f"the config lacks {', '.join(missing)}")
        return Config(variant, tuple((name, value) for name, value in values.items() if value is not None))

    def _integer(self, node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                pass
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(positive))):
                value = -positive
            case _:
                self.refuse(node, f"{self.shown(node)} holds something else in place of an integer")
        try:
            expr.number(value)
        except ValueError:  # hexadecimal, with more digits than Python prints in decimal
            self.refuse(node, "the number is too long to print")
        return value

    def tree(self, statements: Iterator[ast.stmt], before: ast.stmt) -> Tree:
        """The tree of all remaining statements of a block; `before` is the statement before them."""
        for node in statements:
            before = node
            match node:
                case ast.Assign(targets=[ast.Name(id=name)]):
                    self._check_derived(node, name)
                    continue
                case ast.Return(value=ast.Name(id=name)):
                    if name not in self.configs:
                        self.refuse(node, f"{shown(name)} is no config of this module")
                    tree: Tree = Leaf(self.configs[name])
                case ast.If(test=test):
                    comparisons = [self._comparison(part) for part in _alternatives(test)]
                    first = self.tree(iter(node.body), node)
                    tree = self.tree(iter(node.orelse) if node.orelse else statements, node)
                    for feature, at_most, threshold in reversed(comparisons):
                        low, high = (first, tree) if at_most else (tree, first)
                        tree = Split(feature, threshold, low, high)
                case _:
                    self.refuse(node, f"{self.shown(node)} has no place in a tree")
            for unreached in statements:
                self.refuse(unreached, f"{self.shown(unreached)} is never reached")
            return tree
        self.refuse(before, f"nothing is returned after {self.shown(before)}")

    def _comparison(self, test: ast.expr) -> tuple[str, bool, int]:
        """Feature, whether the test holds up to the threshold (else above it), threshold."""
        match test:
            case ast.Compare(
                left=ast.Name(id=name), ops=[ast.LtE() | ast.Gt() as operator], comparators=[threshold]
            ):
                if name not in self.features:
                    self.refuse(test, f"{shown(name)} is no feature of {self.kernel.name}")
                return name, isinstance(operator, ast.LtE), self._integer(threshold)
        self.refuse(test, f"{self.shown(test)} is not `feature <= integer` or `feature > integer`")

    def _check_derived(self, node: ast.Assign, name: str) -> None:
        """Refuse a derived feature that the spec defines otherwise; fill `numbers` with its limits."""
        if name not in self.derived:
            self.refuse(node, f"{shown(name)} is no derived feature of {self.kernel.name}")
        parts = _limit_parts(self.derived[name], self.features)
        blanks = {part: expr.Name(f"BLANK{index}_") for index, part in enumerate(parts)}
        expected = f"{name} = {expr.to_python(expr.replace(self.derived[name], blanks))}"
        line = self.lines[node.lineno - 1].strip()
        match = re.fullmatch(re.sub(_BLANK, lambda _: _INTEGER, re.escape(expected)), line)
        if match is None:
            by_spec = _quoted(f"{name} = {expr.to_python(self.derived[name])}")
            self.refuse(node, f"{self.shown(node)} is not what the spec says: {by_spec}")
        by_blank = {blank.name: part for part, blank in blanks.items()}
        for blank, text in zip(re.findall(_BLANK, expected), match.groups(), strict=True):
            part, number = by_blank[blank], expr.Number(int(text.strip("()")))
            if self.numbers.setdefault(part, number) != number:
                self.refuse(node, f"{expr.to_text(part)} is another number here than above")

    def compare(self, device: str, tree: Tree) -> None:
        """Refuse the text at the first line that differs from the tree's printed text.

        Older modules are still read: they have no `or`, and derived features on each side that needs them.
        """
        derived = {name: expr.replace(expression, self.numbers) for name, expression in self.derived.items()}
        kernel = dataclasses.replace(self.kernel, derived=derived)
        printed = device_module(kernel, device, {}, tree)
        if self.text == printed or self.text == device_module(kernel, device, {}, tree, compact=False):
            return
        for line, (actual, expected) in enumerate(
            zip_longest(self.text.splitlines(), printed.splitlines()), 1
        ):
            if actual != expected and not self._names_fewer_words(actual, expected):
                self.refuse(line, f"{_quoted(actual)} stands where treegen prints {_quoted(expected)}")
        if not self.text.endswith("\n"):
            self.refuse(len(self.lines), "the last line does not end")

    def _names_fewer_words(self, actual: str | None, expected: str | None) -> bool:
        """Return whether a feature's line lacks only words that the spec has added since."""
        argument, _, words = (actual or "").partition(COMMENT)
        feature = argument.strip().removesuffix(": int,")
        if not (expected or "").startswith(argument + COMMENT) or feature not in self.kernel.values:
            return False
        known = {f"{number}: {word}" for number, word in self.kernel.values[feature].items()}
        return set(words.split(", ")) <= known


def _alternatives(test: ast.expr) -> list[ast.expr]:
    """The comparisons of `a or b`; else the test alone."""
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]


def _quoted(line: str | None) -> str:
    return "the end of the file" if line is None else shown(line, 100)


def _limit_parts(expression: expr.Expression, features: set[str]) -> list[expr.Expression]:
    """The largest parts that contain limits but no feature; each is printed as one number."""
    names = expr.names(expression)
    if names and not names & features:
        return [expression]
    inner = expression.arguments if isinstance(expression, expr.Call) else ()
    return [part for argument in inner for part in _limit_parts(argument, features)]
