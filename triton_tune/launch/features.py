"""Features of a launch, read by one function per kernel; they are integers, or words that stand for some."""

import ast
import builtins
from collections.abc import Callable, Collection, Mapping, Sequence
from numbers import Integral
from typing import Any, cast

NONE = "none"  # the word of None and of an empty text
# The order in which element types get integers: by width, so that a tree can ask for it.
DTYPES: tuple[str, ...] = ("bool", "float4_e2m1fn_x2")
DTYPES += ("uint8", "int8", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
DTYPES += ("float8_e8m0fnu", "uint16", "int16", "float16", "bfloat16", "uint32", "int32", "float32")
DTYPES += ("uint64", "int64", "float64", "complex64", "complex128")
OF_DTYPE = "_dtype"  # the feature `a_ptr_dtype` is the element type of the argument `a_ptr`

OF_SIZE = "_size"  # the feature `a_ptr_size0` is the size of the first dimension of the argument `a_ptr`


class NotAFeature(TypeError):
    """The value is neither an integer nor a word."""


def plain(value: Any) -> Any:
    """The value that a `tl.constexpr` holds; any other value as it is."""
    return value.value if type(value).__name__ == "constexpr" else value


def word_of(value: Any) -> str | None:
    """The word that a value is; None for an integer or a boolean. Raises NotAFeature."""
    if isinstance(value, Integral):
        return None
    if value is None or value == "":
        return NONE
    if isinstance(value, str):
        return value.removeprefix("torch.")
    if type(value).__name__ == "dtype":  # torch's or Triton's, neither of which is imported here
        return str(value).removeprefix("torch.")
    raise NotAFeature(f"{value!r:.60} is neither an integer, a boolean, an element type nor a word")


def integer_of(value: Any, words: Mapping[str, int]) -> int:
    """The integer of a feature's value. Raises KeyError for an unknown word, and NotAFeature."""
    word = word_of(value)
    return int(value) if word is None else words[word]


Feature = Callable[[Mapping[str, Any]], Any] | str
"""A function of a launch's arguments by name, or an expression in them, such as `"x_ptr.shape[2]"`."""

Read = Callable[..., tuple[Any, ...]]


class Missing:
    """Stands for an argument that a launch leaves out. Whatever is read of it raises TypeError."""

    dtype = None  # an optional tensor that is left out has the word `none`

    def __init__(self, problem: str) -> None:
        self.problem = problem

    def __getattr__(self, name: str) -> Any:
        raise TypeError(self.problem)


def parse_feature(name: str, text: str, arguments: Collection[str]) -> ast.expr:
    """The expression of a feature. Raises ValueError if it is none, or names what is no argument."""
    try:
        expression = ast.parse(text.strip(), mode="eval").body
    except (AttributeError, SyntaxError, ValueError):  # the first if it is no text
        raise ValueError(f"the feature {name} is {text!r:.60}, which is no expression") from None
    for node in ast.walk(expression):
        if isinstance(node, ast.Name) and node.id not in arguments and not hasattr(builtins, node.id):
            raise ValueError(f"the feature {name} is {text!r:.60}, but the kernel has no argument {node.id}")
    return expression


def known_feature(name: str, arguments: Collection[str]) -> str | None:
    """The expression that a name stands for: an argument, `x_dtype`, or `x_size0` for `x.shape[0]`.

    A tensor that is left out has the element type `none` and sizes of 0. None for any other name.
    """
    if name in arguments:
        return name
    argument = name.removesuffix(OF_DTYPE)
    if argument in arguments:
        return f"None if {argument} is None else {argument}.dtype"
    argument, _, dimension = name.rpartition(OF_SIZE)
    if argument in arguments and dimension.isdigit():
        return f"0 if {argument} is None else {argument}.shape[{dimension}]"
    return None


def value_of(feature: Feature, arguments: Mapping[str, Any]) -> Any:
    """A feature of a launch with these arguments, by name."""
    return eval(feature.strip(), {}, dict(arguments)) if isinstance(feature, str) else feature(arguments)


def reader(
    kernel: str,
    arguments: Sequence[str],
    defaults: Mapping[str, Any],
    features: Mapping[str, Feature],
    names: Sequence[str],
) -> Read:
    """What reads the features' values, in the order of `names`, from a launch's arguments.

    Raises ValueError for a name that is neither in `features` nor an argument or its element type.
    """
    texts = []
    for name in names:
        expression = known_feature(name, arguments)
        if callable(features.get(name)):
            given = ", ".join(f"{argument!r}: {argument}" for argument in arguments)
            texts.append(f"features_of_launch[{name!r}]({{{given}, **others_of_launch}})")
        elif name in features:
            texts.append(ast.unparse(parse_feature(name, str(features[name]), arguments)))
        elif expression is not None:
            texts.append(expression)
        else:
            what = f"{kernel} has no argument {name!r}, which its generated package needs as a feature"
            raise ValueError(f"{what}: give @tuned an expression or a function for it in features")
    parameters = "".join(f"{name}=None, " for name in arguments)
    values = "".join(f"({text}), " for text in texts)
    read: Any = eval(f"lambda {parameters}**others_of_launch: ({values})", {"features_of_launch": features})
    left_out = {name: Missing(f"{kernel} is launched without its argument {name!r}") for name in arguments}
    read.__qualname__ = kernel  # which errors about arguments name
    read.__defaults__ = tuple({**left_out, **defaults}[name] for name in arguments)
    return cast(Read, read)
