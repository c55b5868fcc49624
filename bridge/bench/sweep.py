"""The benchmarks of `bridge bench`: each function at each point of a sweep."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

from bridge.bench.benchmark import Subject, group, op
from bridge.bench.devices.base import BenchError
from bridge.bench.result import Result
from bridge.knowledge.suggestions import unknown_name

# -- Points and shapes: `--shape MxK,KxN --sweep M=1,8 --set K=128 --set N=256`


NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
MAX_POINTS = 10_000  # points of a sweep
Shape = tuple[int, ...]
Axes = tuple[str, ...]  # of a shape: numbers or names
Point = Mapping[str, int]


def parse_shapes(text: str) -> list[Axes]:
    """Return the shapes of ``64x128,128x256`` or ``MxK``; ``1`` is a vector, ``()`` a scalar."""
    result = []
    for name in text.split(","):
        axes = tuple(name.strip().split("x")) if name.strip() != "()" else ()
        # Names cannot contain an x: `axis` is read as `a` and `is`.
        if not all(axis.isdecimal() or NAME.fullmatch(axis) for axis in axes):
            raise BenchError(f"--shape {text}: {name.strip()!r} is no shape; write 64x128 or MxK")
        result.append(axes)
    return result


def sweep_points(sweeps: Sequence[str], fixed: Sequence[str] = ()) -> list[dict[str, int]]:
    """Return every combination of the values of a sweep, the first name varying slowest.

    ``sweeps`` are ``M=1,8,64``, ``M=1:5`` or ``M=0:64:16`` (without the end); ``fixed`` are
    ``K=128``.
    """
    axes = dict(_axis(text, "--sweep") for text in sweeps)
    constant = dict(_axis(setting, "--set") for setting in fixed)
    repeated = {*axes} & {*constant}
    if repeated or len(axes) != len(sweeps) or len(constant) != len(fixed):
        raise BenchError(
            f"--sweep and --set: {', '.join(sorted(repeated)) or 'a name'} is given twice"
        )
    several = [name for name, values in constant.items() if len(values) != 1]
    if several:
        raise BenchError(f"--set {several[0]}: give one number; --sweep takes several")
    constants = {name: values[0] for name, values in constant.items()}
    combinations = product(*axes.values())
    result = [{**dict(zip(axes, values, strict=True)), **constants} for values in combinations]
    if len(result) > MAX_POINTS:
        raise BenchError(f"--sweep: {len(result)} points are more than {MAX_POINTS}")
    return result


def _axis(text: str, option: str) -> tuple[str, list[int]]:
    name, equals, values = (part.strip() for part in text.partition("="))
    if not equals or not NAME.fullmatch(name):
        raise BenchError(f"{option} {text}: write NAME=1,8,64")
    try:
        return name, _numbers(values)
    except ValueError as error:
        raise BenchError(f"{option} {text}: write whole numbers with commas") from error


def _numbers(text: str) -> list[int]:
    result: list[int] = []
    for part in text.split(","):
        bounds = [int(name) for name in part.split(":")]
        result += range(*bounds) if len(bounds) > 1 else bounds
    if not result:
        raise ValueError(text)
    return result


def shapes_at(shapes: Iterable[Axes], point: Point) -> list[Shape]:
    """Return shapes with the numbers of a point."""
    result = []
    for axes in shapes:
        unknown = [axis for axis in axes if not axis.isdecimal() and axis not in point]
        if unknown:
            raise BenchError(f"--shape: {unknown[0]} has no number; give it by --sweep or --set")
        shape = tuple(int(axis) if axis.isdecimal() else point[axis] for axis in axes)
        if any(length < 0 for length in shape):
            raise BenchError(f"--shape: {'x'.join(axes)} has a negative length at {dict(point)}")
        result.append(shape)
    return result


def unused_numbers(shapes: Iterable[Axes], point: Point) -> dict[str, int]:
    """Return the numbers that no shape uses: keyword arguments of the function."""
    used = {axis for axes in shapes for axis in axes}
    return {name: value for name, value in point.items() if name not in used}


# -- Inputs


LIBRARIES = ("torch", "cupy", "numpy")
SEED = 0
INTEGER_LIMIT = 10  # of random integers


def array_library(text: str, function: Any) -> str:
    """Return the library of a function's inputs: torch, cupy or numpy.

    It is the first that occurs in the function's name (``FILE.py::name``, ``MODULE::name``) or
    among the imports of its file; NumPy by default.
    """
    root = text.partition(":")[0].partition(".")[0]
    if root in LIBRARIES:
        return root
    file = sys.modules.get(getattr(function, "__module__", None) or "")
    imported = {getattr(value, "__name__", "") for value in vars(file).values()} if file else set()
    roots = {name.partition(".")[0] for name in imported if isinstance(name, str)}
    return next((name for name in LIBRARIES if name in roots), "numpy")


def make_inputs(
    shapes: Sequence[Shape], dtypes: Sequence[str], name: str, device: str | None
) -> list[Any]:
    """Return a tensor for each shape, with random values that are the same each time.

    ``dtypes`` has one dtype for all, or one each. Raises BenchError.
    """
    dtypes = list(dtypes) * (len(shapes) if len(dtypes) == 1 else 1)
    if len(dtypes) != len(shapes):
        raise BenchError(f"--dtype: {len(dtypes)} for {len(shapes)} shapes; give one, or one each")
    try:
        make = {"torch": _torch_maker, "numpy": _numpy_maker, "cupy": _cupy_maker}[name](device)
    except ImportError as error:
        raise BenchError(f"--with {name}: {error}") from error
    return [_make(make, shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]


def _make(make: Any, shape: Shape, dtype: str) -> Any:
    try:
        return make(shape, dtype)
    except (TypeError, AttributeError) as error:
        raise BenchError(f"--dtype {dtype}: no dtype of this library") from error
    except (AssertionError, MemoryError, RuntimeError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise BenchError(f"{dtype} {'x'.join(map(str, shape))}: {first}") from error


def _numpy_maker(device: str | None) -> Any:
    import numpy  # noqa: ICN001 - as the others

    if device not in {None, "cpu"}:
        raise BenchError(f"--device {device}: NumPy's arrays are on the CPU; --with torch or cupy")
    return _array_maker(numpy, numpy.random.default_rng(SEED))


def _cupy_maker(_device: str | None) -> Any:
    import cupy  # optional

    return _array_maker(cupy, cupy.random.default_rng(SEED))


def _array_maker(library: Any, random: Any) -> Any:
    def make(shape: Shape, dtype: str) -> Any:
        kind = library.dtype(dtype)
        if kind.kind in "fc":
            return random.standard_normal(shape).astype(kind)
        return random.integers(0, 2 if kind.kind == "b" else INTEGER_LIMIT, shape).astype(kind)

    return make


def _torch_maker(device: str | None) -> Any:
    import torch  # slow, and optional

    target = device or ("cuda" if torch.cuda.is_available() else "cpu")
    generator = torch.Generator().manual_seed(SEED)

    def make(shape: Shape, dtype: str) -> Any:
        kind = getattr(torch, dtype)
        if not isinstance(kind, torch.dtype):
            raise TypeError(dtype)
        if kind.is_floating_point or kind.is_complex:
            return torch.randn(shape, generator=generator).to(target, kind)
        limit = 2 if kind is torch.bool else INTEGER_LIMIT
        return torch.randint(0, limit, shape, generator=generator).to(target, kind)

    return make


# -- Functions: `FILE.py::function`, `MODULE::function`


SEPARATOR = "::"
MODULE = re.compile(r"(?!.*\.py$)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def find_target(text: str) -> Callable[..., Any]:
    """Return the function of ``FILE.py::name`` or ``MODULE::name``; ``name`` may have dots.

    Raises BenchError.
    """
    path, between, name = text.rpartition(SEPARATOR)
    if not between or not path or not name:
        raise BenchError(f"{text}: write FILE.py::function")
    result: Any = _import(path) if MODULE.fullmatch(path) else import_file(Path(path))
    for part in name.split("."):
        if not hasattr(result, part):
            raise BenchError(f"{path}: there is no {name}{_function_names(result)}")
        result = getattr(result, part)
    if not callable(result):
        raise BenchError(f"{path}: {name} is no function, but {type(result).__name__}")
    function: Callable[..., Any] = result
    return function


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:
        raise BenchError(f"{name}: importing it raised {error_text(error)}") from error


def import_file(path: Path) -> ModuleType:
    """Import a file; its folder comes first on the path, as when Python runs the file."""
    file = path.absolute()
    loaded = sys.modules.get(file.stem)
    if loaded is not None and getattr(loaded, "__file__", None) == str(file):
        return loaded
    if not file.is_file():
        raise BenchError(f"{path}: no such file")
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    spec = spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise BenchError(f"{path}: not a Python file; name one that ends with .py")
    module = module_from_spec(spec)
    previous = sys.modules.get(file.stem)
    sys.modules[file.stem] = module  # pickle and dataclasses look it up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        if previous is None:
            del sys.modules[file.stem]
        else:
            sys.modules[file.stem] = previous
        raise BenchError(f"{path}: importing it raised {error_text(error)}") from error
    return module


def error_text(error: BaseException) -> str:
    """Return an exception in a line: its class, and the first line of its message."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _function_names(result: Any) -> str:
    """Return the names of a few functions of a module."""
    module = getattr(result, "__name__", None)
    names = [
        key
        for key, value in vars(result).items()
        if callable(value) and getattr(value, "__module__", None) == module
    ]
    public = [name for name in names if not name.startswith("_")][:6]
    return f"; it has {', '.join(public)}" if public else ""


# -- The sweep


Function = Callable[..., Any]


@dataclass(frozen=True)
class SweepRequest:
    """Functions as ``FILE.py::name``, and how to make their inputs.

    Without ``shape`` and ``factory``, a function makes its own inputs and gets the numbers of a
    point as keyword arguments. A ``factory`` (``name`` in the same file, or ``FILE.py::name``)
    gets them instead and returns the inputs.
    """

    targets: Sequence[str]
    shape: str | None = None
    dtypes: Sequence[str] = ("float32",)
    sweeps: Sequence[str] = ()
    fixed: Sequence[str] = ()
    factory: str | None = None
    library: str | None = None
    device: str | None = None
    at_once: bool = False

    def results(
        self, options: Mapping[str, Any], *, tell: Callable[[str], object] = str
    ) -> Iterator[Result]:
        """Yield the results, point by point; calls ``tell`` before each measurement.

        Raises BenchError.
        """
        points = sweep_points(self.sweeps, self.fixed)
        functions = [find_target(text) for text in self.targets]
        swept = [sweep.partition("=")[0].strip() for sweep in self.sweeps]
        for point in points:
            swept_values = tuple((name, point[name]) for name in swept)
            subjects = [
                self._subject(text, function, point)
                for text, function in zip(self.targets, functions, strict=True)
            ]
            for subject in subjects:
                tell(
                    " ".join([subject.title, *(f"{name}={value}" for name, value in swept_values)])
                )
            for result in self._time(subjects, options, point):
                yield replace(result, point=swept_values)

    def _time(
        self, subjects: Sequence[Subject], options: Mapping[str, Any], point: Point
    ) -> Iterator[Result]:
        if self.at_once:
            names = " + ".join(subject.title for subject in subjects)
            with _with_errors_of(names, _inputs(subjects), point):
                timed = group(subjects, device=self.device, cache=False, **options)
            yield from timed.results
            return
        for subject in subjects:
            with _with_errors_of(subject.title, _inputs([subject]), point):
                result = op(
                    subject.function,
                    *subject.inputs,
                    kwargs=dict(subject.named or {}),
                    device=self.device,
                    cache=False,
                    **options,
                )
            yield result

    def _subject(self, text: str, function: Function, point: Point) -> Subject:
        """Return a function with its inputs at a point."""
        if self.factory is not None:
            if self.shape is not None:
                raise BenchError("--inputs makes the inputs; give no --shape with it")
            factory = (
                self.factory
                if "::" in self.factory
                else f"{text.rpartition('::')[0]}::{self.factory}"
            )
            with _with_errors_of(factory, "", point):
                result = find_target(factory)(**point)
            return Subject(
                function, tuple(result) if isinstance(result, tuple | list) else (result,)
            )
        symbolic = parse_shapes(self.shape) if self.shape is not None else []
        named = unused_numbers(symbolic, point)
        _check_names(text, function, named)
        if not symbolic:
            return Subject(function, (), named)
        shapes = shapes_at(symbolic, point)
        library = self.library or array_library(text, function)
        inputs = make_inputs(shapes, self.dtypes, library, self.device)
        return Subject(function, tuple(inputs), named)


def _check_names(text: str, function: Function, named: Mapping[str, int]) -> None:
    """Raise BenchError for numbers without an argument of the function, if it has a signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function in C
        return
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [p.name for p in parameters if p.kind != p.POSITIONAL_ONLY]
    unknown = named.keys() - set(known)
    if unknown:
        message = unknown_name("argument", min(unknown), known)
        raise BenchError(f"{text}: {message}; no --shape uses that name")


def _inputs(subjects: Sequence[Subject]) -> str:
    shapes = [
        (dtype, shape)
        for subject in subjects
        for shape, dtype in subject.shapes
        if shape is not None
    ]
    return " ".join(f"{dtype}{list(shape)}" for dtype, shape in shapes)


@contextmanager
def _with_errors_of(name: str, inputs: str, point: Point) -> Iterator[None]:
    """Convert an exception of the user's function to a BenchError that names its inputs."""
    try:
        yield
    except BenchError:
        raise
    except (Exception, SystemExit) as error:
        numbers = " ".join(f"{key}={value}" for key, value in point.items())
        arguments = " ".join(filter(None, [inputs, numbers]))
        raise BenchError(f"{name}({arguments}): {error_text(error)}") from error
