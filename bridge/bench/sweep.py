"""The benchmarks that a command line asks for: each function at each point of a sweep."""

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

from bridge.bench.benchmark import group, op
from bridge.bench.errors import BenchError
from bridge.bench.result import Result
from bridge.bench.subject import Subject

# -- The points of a sweep, and the shapes at each: `--shape MxK,KxN --sweep M=1,8 --set K=128 --set N=256`


NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
MOST = 10_000  # points of a sweep
Shape = tuple[int, ...]
Axes = tuple[str, ...]  # of a shape: numbers and names
Point = Mapping[str, int]


def parse_shapes(text: str) -> list[Axes]:
    """Read shapes with commas between them: ``64x128,128x256``, ``MxK``; ``1`` is a vector of one, ``()`` a scalar."""
    found = []
    for one in text.split(","):
        axes = tuple(one.strip().split("x")) if one.strip() != "()" else ()
        # A name may hold an x only if nothing else could be meant: `axis` would be read as `a` and `is`.
        if not all(axis.isdecimal() or NAME.fullmatch(axis) for axis in axes):
            raise BenchError(f"--shape {text}: {one.strip()!r} is no shape; write 64x128 or MxK")
        found.append(axes)
    return found


def sweep_points(sweeps: Sequence[str], fixed: Sequence[str] = ()) -> list[dict[str, int]]:
    """Return every combination of ``M=1,8,64`` (or ``M=1:5`` and ``M=0:64:16``, the end left out), the first name turning slowest; with ``K=128`` fixed."""
    axes = dict(_axis(one, "--sweep") for one in sweeps)
    constant = dict(_axis(one, "--set") for one in fixed)
    twice = {*axes} & {*constant}
    if twice or len(axes) != len(sweeps) or len(constant) != len(fixed):
        raise BenchError(
            f"--sweep and --set: {', '.join(sorted(twice)) or 'a name'} is given twice"
        )
    several = [name for name, values in constant.items() if len(values) != 1]
    if several:
        raise BenchError(f"--set {several[0]}: one number; --sweep takes several")
    only = {name: values[0] for name, values in constant.items()}
    many = product(*axes.values())
    found = [{**dict(zip(axes, values, strict=True)), **only} for values in many]
    if len(found) > MOST:
        raise BenchError(f"--sweep: {len(found)} points are more than {MOST}")
    return found


def _axis(text: str, option: str) -> tuple[str, list[int]]:
    name, equals, values = (part.strip() for part in text.partition("="))
    if not equals or not NAME.fullmatch(name):
        raise BenchError(f"{option} {text}: write NAME=1,8,64")
    try:
        return name, _numbers(values)
    except ValueError as error:
        raise BenchError(f"{option} {text}: whole numbers with commas are wanted") from error


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        bounds = [int(one) for one in part.split(":")]
        found += range(*bounds) if len(bounds) > 1 else bounds
    if not found:
        raise ValueError(text)
    return found


def at_point(wanted: Iterable[Axes], point: Point) -> list[Shape]:
    """Return shapes in numbers."""
    found = []
    for axes in wanted:
        unknown = [axis for axis in axes if not axis.isdecimal() and axis not in point]
        if unknown:
            raise BenchError(f"--shape: {unknown[0]} has no number; give it by --sweep or --set")
        shape = tuple(int(axis) if axis.isdecimal() else point[axis] for axis in axes)
        if any(length < 0 for length in shape):
            raise BenchError(f"--shape: {'x'.join(axes)} has a negative length at {dict(point)}")
        found.append(shape)
    return found


def left_over(wanted: Iterable[Axes], point: Point) -> dict[str, int]:
    """Return the numbers that no shape uses: the function's own arguments, by name."""
    used = {axis for axes in wanted for axis in axes}
    return {name: value for name, value in point.items() if name not in used}


# -- Inputs of given shapes and dtypes, filled with random numbers, the same each time


LIBRARIES = ("torch", "cupy", "numpy")
SEED = 0
BELOW = 10  # of integers


def array_library(text: str, function: Any) -> str:
    """Return which library a function (``FILE.py::name``, ``MODULE::name``) is of, or its file imports; NumPy without any."""
    own = text.partition(":")[0].partition(".")[0]
    if own in LIBRARIES:
        return own
    file = sys.modules.get(getattr(function, "__module__", None) or "")
    imported = {getattr(one, "__name__", "") for one in vars(file).values()} if file else set()
    roots = {name.partition(".")[0] for name in imported if isinstance(name, str)}
    return next((name for name in LIBRARIES if name in roots), "numpy")


def made_inputs(
    shapes: Sequence[Shape], dtypes: Sequence[str], name: str, device: str | None
) -> list[Any]:
    """Make a tensor for each shape; of one dtype for all, or of one each. Raises BenchError."""
    dtypes = list(dtypes) * (len(shapes) if len(dtypes) == 1 else 1)
    if len(dtypes) != len(shapes):
        raise BenchError(f"--dtype: {len(dtypes)} for {len(shapes)} shapes; give one, or one each")
    try:
        make = {"torch": _torch, "numpy": _numpy, "cupy": _cupy}[name](device)
    except ImportError as error:
        raise BenchError(f"--with {name}: {error}") from error
    return [_made(make, shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]


def _made(make: Any, shape: Shape, dtype: str) -> Any:
    try:
        return make(shape, dtype)
    except (TypeError, AttributeError) as error:
        raise BenchError(f"--dtype {dtype}: no dtype of this library") from error
    except (AssertionError, MemoryError, RuntimeError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise BenchError(f"{dtype} {'x'.join(map(str, shape))}: {first}") from error


def _numpy(device: str | None) -> Any:
    import numpy  # noqa: ICN001 - beside two others with the same face

    if device not in {None, "cpu"}:
        raise BenchError(f"--device {device}: NumPy's arrays are on the CPU; --with torch or cupy")
    return _of_arrays(numpy, numpy.random.default_rng(SEED))


def _cupy(_device: str | None) -> Any:
    import cupy  # where it is asked for

    return _of_arrays(cupy, cupy.random.default_rng(SEED))


def _of_arrays(library: Any, random: Any) -> Any:
    def make(shape: Shape, dtype: str) -> Any:
        kind = library.dtype(dtype)
        if kind.kind in "fc":
            return random.standard_normal(shape).astype(kind)
        return random.integers(0, 2 if kind.kind == "b" else BELOW, shape).astype(kind)

    return make


def _torch(device: str | None) -> Any:
    import torch  # where it is asked for, or loaded already

    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    generator = torch.Generator().manual_seed(SEED)

    def make(shape: Shape, dtype: str) -> Any:
        kind = getattr(torch, dtype)
        if not isinstance(kind, torch.dtype):
            raise TypeError(dtype)
        if kind.is_floating_point or kind.is_complex:
            return torch.randn(shape, generator=generator).to(where, kind)
        below = 2 if kind is torch.bool else BELOW
        return torch.randint(0, below, shape, generator=generator).to(where, kind)

    return make


# -- `FILE.py::function`, `MODULE::function`: a function of somebody's file, imported as Python would run it, or of a module


BETWEEN = "::"
MODULE = re.compile(r"(?!.*\.py$)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def find_target(text: str) -> Callable[..., Any]:
    """Return the function that ``FILE.py::name`` or ``MODULE::name`` names (``name`` may have dots); raises BenchError in a line."""
    path, between, name = text.rpartition(BETWEEN)
    if not between or not path or not name:
        raise BenchError(f"{text}: write FILE.py::function")
    found: Any = _named(path) if MODULE.fullmatch(path) else file_module(Path(path))
    for part in name.split("."):
        if not hasattr(found, part):
            raise BenchError(f"{path}: there is no {name}{_others(found)}")
        found = getattr(found, part)
    if not callable(found):
        raise BenchError(f"{path}: {name} is no function, but {type(found).__name__}")
    function: Callable[..., Any] = found
    return function


def _named(name: str) -> ModuleType:
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:
        raise BenchError(f"{name}: importing it raised {target_text(error)}") from error


def file_module(path: Path) -> ModuleType:
    """Import a file; its folder comes first on the path, as when Python runs it."""
    file = path.absolute()
    known = sys.modules.get(file.stem)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known
    if not file.is_file():
        raise BenchError(f"{path}: no such file")
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    spec = spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise BenchError(f"{path}: no Python file; name one that ends with .py")
    made = module_from_spec(spec)
    was = sys.modules.get(file.stem)
    sys.modules[file.stem] = made  # what pickles, and dataclasses, look for
    try:
        spec.loader.exec_module(made)
    except (Exception, SystemExit) as error:
        if was is None:
            del sys.modules[file.stem]
        else:
            sys.modules[file.stem] = was
        raise BenchError(f"{path}: importing it raised {target_text(error)}") from error
    return made


def target_text(error: BaseException) -> str:
    """Return an exception in a line: its class, and the first line of what it says."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _others(found: Any) -> str:
    """Return what there is instead, a few names of functions."""
    own = getattr(found, "__name__", None)
    names = [
        n for n, v in vars(found).items() if callable(v) and getattr(v, "__module__", None) == own
    ]
    few = [name for name in names if not name.startswith("_")][:6]
    return f"; it has {', '.join(few)}" if few else ""


# -- The benchmarks that a command line asks for: each function at each point of a sweep


Function = Callable[..., Any]


@dataclass(frozen=True)
class Asked:
    """Functions as ``FILE.py::name``, and how to make their inputs.

    Without ``shape`` and ``factory`` a function makes its own and gets the numbers of a point by name. A ``factory`` of
    the same file (``name`` or ``FILE.py::name``) gets them instead and returns the inputs.
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
        """Time everything, point by point; ``tell`` is told what comes next. Raises BenchError in a line."""
        every = sweep_points(self.sweeps, self.fixed)
        functions = [find_target(text) for text in self.targets]
        swept = [one.partition("=")[0].strip() for one in self.sweeps]
        for point in every:
            shown = tuple((name, point[name]) for name in swept)
            subjects = [
                self._subject(text, function, point)
                for text, function in zip(self.targets, functions, strict=True)
            ]
            for subject in subjects:
                tell(" ".join([subject.title, *(f"{name}={value}" for name, value in shown)]))
            for found in self._timed(subjects, options, point):
                yield replace(found, point=shown)

    def _timed(
        self, subjects: Sequence[Subject], options: Mapping[str, Any], point: Point
    ) -> Iterator[Result]:
        if self.at_once:
            names = " + ".join(subject.title for subject in subjects)
            with _told(names, _inputs(subjects), point):
                together = group(subjects, device=self.device, cache=False, **options)
            yield from together.results
            return
        for subject in subjects:
            with _told(subject.title, _inputs([subject]), point):
                found = op(
                    subject.function,
                    *subject.inputs,
                    kwargs=dict(subject.named or {}),
                    device=self.device,
                    cache=False,
                    **options,
                )
            yield found

    def _subject(self, text: str, function: Function, point: Point) -> Subject:
        """Return a function with its inputs at a point."""
        if self.factory is not None:
            if self.shape is not None:
                raise BenchError("--inputs makes the inputs: give no --shape with it")
            own = (
                self.factory
                if "::" in self.factory
                else f"{text.rpartition('::')[0]}::{self.factory}"
            )
            with _told(own, "", point):
                found = find_target(own)(**point)
            return Subject(function, tuple(found) if isinstance(found, tuple | list) else (found,))
        wanted = parse_shapes(self.shape) if self.shape is not None else []
        named = left_over(wanted, point)
        _check_names(text, function, named)
        if not wanted:
            return Subject(function, (), named)
        shapes = at_point(wanted, point)
        library = self.library or array_library(text, function)
        inputs = made_inputs(shapes, self.dtypes, library, self.device)
        return Subject(function, tuple(inputs), named)


def _check_names(text: str, function: Function, named: Mapping[str, int]) -> None:
    """Refuse numbers that the function has no argument for, where it can be asked."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C
        return
    if any(one.kind == one.VAR_KEYWORD for one in parameters):
        return
    unknown = named.keys() - {one.name for one in parameters if one.kind != one.POSITIONAL_ONLY}
    if unknown:
        raise BenchError(
            f"{text}: it has no argument {min(unknown)}, and no --shape uses that name"
        )


def _inputs(subjects: Sequence[Subject]) -> str:
    shapes = [(dtype, shape) for s in subjects for shape, dtype in s.shapes if shape is not None]
    return " ".join(f"{dtype}{list(shape)}" for dtype, shape in shapes)


@contextmanager
def _told(name: str, inputs: str, point: Point) -> Iterator[None]:
    """Say in a line what a user's function raised, and with which inputs."""
    try:
        yield
    except BenchError:
        raise
    except (Exception, SystemExit) as error:
        numbers = " ".join(f"{key}={value}" for key, value in point.items())
        given = " ".join(filter(None, [inputs, numbers]))
        raise BenchError(f"{name}({given}): {target_text(error)}") from error
