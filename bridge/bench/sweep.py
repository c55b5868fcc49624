"""The benchmarks that a command line asks for: each function at each point of a sweep."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from bridge.bench import made, points
from bridge.bench.benchmark import group, op
from bridge.bench.errors import BenchError
from bridge.bench.points import Point
from bridge.bench.result import Result
from bridge.bench.subject import Subject
from bridge.bench.target import said, target

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
        every = points.points(self.sweeps, self.fixed)
        functions = [target(text) for text in self.targets]
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
                found = target(own)(**point)
            return Subject(function, tuple(found) if isinstance(found, tuple | list) else (found,))
        wanted = points.shapes(self.shape) if self.shape is not None else []
        named = points.left_over(wanted, point)
        _check_names(text, function, named)
        if not wanted:
            return Subject(function, (), named)
        shapes = points.at(wanted, point)
        library = self.library or made.library(text, function)
        inputs = made.inputs(shapes, self.dtypes, library, self.device)
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
        raise BenchError(f"{name}({given}): {said(error)}") from error
