"""Ranges of the ops that PyTorch's dispatcher decomposes, such as `aten::linear`, and of autograd's nodes.

A dispatch mode sees what these ops consist of (`aten::t`, `aten::addmm`), but not the ops themselves.
A function mode sees the calls that the program makes from Python. What other ops call in C++ remains
unseen, as do calls within functions of PyTorch that are written in Python.
"""

from __future__ import annotations

import sys
from threading import local
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import Any

from torch import _C, is_inference_mode_enabled
from torch.compiler import is_compiling
from torch.overrides import TorchFunctionMode, _get_current_function_mode

from bridge.annotate import stack
from bridge.annotate.details import DetailOptions, Observer
from bridge.annotate.emit import state
from bridge.annotate.guard import Guard
from bridge.annotate.label import Label
from bridge.annotate.stack import Entry, close, push
from bridge.frameworks.torch.sizes import with_sizes

# -- Which functions are composite ops


IMPLICIT = "CompositeImplicitAutograd"  # dispatch key of ops that consist of others
NAMESPACE = "aten::"
# Functions in Python whose op has another name.
OTHER_NAMES = {"cross_entropy": "cross_entropy_loss", "nll_loss": "nll_loss_nd"}
PYTHON = frozenset(["torch.nn.functional", "torch.functional", "torch._tensor"])
# Methods that only ask, and methods that often do nothing: these call no op, or not always.
NO_OPS = frozenset(
    """__and__ __iand__ __ior__ __ixor__ __or__ __xor__ conj contiguous dim get_device is_complex
    is_conj is_contiguous is_floating_point is_inference is_leaf is_neg is_signed numel output_nr
    requires_grad_ resolve_conj resolve_neg retain_grad size storage_offset stride to""".split()
)


def composite_name(function: Any, *, in_place: bool = False) -> str | None:
    """Return the name of the composite op that a function of PyTorch is, or None."""
    if not isinstance(function, BuiltinFunctionType | MethodDescriptorType) and not (
        isinstance(function, FunctionType) and function.__module__ in PYTHON
    ):
        return None
    name = OTHER_NAMES.get(function.__name__, function.__name__)
    name = f"{name}_" if in_place else name
    return NAMESPACE + name if name not in NO_OPS and _is_composite(NAMESPACE + name) else None


def _is_composite(name: str) -> bool:
    """Return whether all overloads of an op are composite; those that write into ``out`` are not asked."""
    schemas = _C._jit_get_schemas_for_operator(name)  # noqa: SLF001 (no public name)
    answers = [
        _decomposes(f"{name}.{schema.overload_name}".rstrip("."))
        for schema in schemas
        if not any(argument.is_out for argument in schema.arguments)
    ]
    known = [answer for answer in answers if answer is not None]
    return bool(known) and all(known)


def _decomposes(overload: str) -> bool | None:
    """Return whether an overload is composite; None for one of TorchScript alone."""
    try:
        return bool(_C._dispatch_has_kernel_for_dispatch_key(overload, IMPLICIT))  # noqa: SLF001 (as above)
    except RuntimeError:
        return None


# -- torch.compile


COMPOSITE_OPS = Guard("composite ops of PyTorch")
CALLBACKS = "torch._dynamo.callback"


class Compiler:
    """Whether torch.compile has compiled anything in this process.

    It traces function modes into its graphs and compiles again where there is one more. So from the
    first compilation on, the program runs without ours.
    """

    has_run = False

    @classmethod
    def watch(cls) -> None:
        """Register for the next compilation, if the compiler is loaded; a reset of it forgets that."""
        callbacks = sys.modules.get(CALLBACKS)
        if callbacks is not None and _before not in callbacks.callback_handler.start_callbacks:
            callbacks.on_compile_start(_before)


@COMPOSITE_OPS.closing
def _before(*_: object) -> None:
    """Leave our mode; called when a compilation begins."""
    Compiler.has_run = True
    mode = _get_current_function_mode()
    if isinstance(mode, CompositeMode):
        mode.over = True
        mode.__exit__(None, None, None)


# -- The mode


class ModeOptions:
    """What a mode records of each op; a new one when that changes, because observers depend on it."""

    def __init__(self, details: DetailOptions | None = None, *, in_text: bool = False) -> None:
        self.details, self.in_text = details, in_text
        self.observers: dict[Any, Observer] = {}  # by op


IN_PLACE = "inplace"  # an argument of functions in Python


class CompositeMode(TorchFunctionMode):  # type: ignore[misc]  # torch may be absent where types are checked
    """The function mode that puts a range around every composite op."""

    def __init__(self) -> None:
        super().__init__()
        self.options = ModeOptions()  # without costs, which the parts of the op have
        self.labels: dict[Any, Label | None] = {}  # by function; None for other functions
        self.over = False  # ended on another thread, which cannot exit it on this one

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one function, a composite op in its range."""
        kwargs = kwargs or {}
        if is_compiling():  # the compiler traces this method: it must see nothing but the call
            return func(*args, **kwargs)
        label, observer = self._label_and_observer(func, args, kwargs)
        if label is None:
            return func(*args, **kwargs)
        if observer is not None:
            return _observed(observer, label, func, args, kwargs)
        entry = Entry(label, stack.new_call_id())
        push(entry)
        try:
            return func(*args, **kwargs)
        finally:
            close(entry)

    def _label_and_observer(
        self, func: Any, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Label | None, Observer | None]:
        """Return the label of a function, None for no range, and the observer of its details."""
        try:
            Compiler.watch()
            # In inference mode the dispatch mode sees composite ops themselves.
            if state.idle or self.over or is_inference_mode_enabled():
                return None, None
            label, options = self._label(func, kwargs), self.options
            if label is None:
                return None, None
            observer = None if options.details is None else _observer(options, label.name)
            if options.in_text:
                label = Label(with_sizes(label.name, [*args, *kwargs.values()]))
        except Exception as error:
            if not COMPOSITE_OPS.takes(error):
                raise
            self.over = True
            return None, None
        return label, observer

    def _label(self, func: Any, kwargs: dict[str, Any]) -> Label | None:
        """Return the label of a composite op, None of another function."""
        key = (func, True) if kwargs.get(IN_PLACE) is True else func
        try:
            return self.labels[key]
        except KeyError:
            name = composite_name(func, in_place=key is not func)
            label = self.labels[key] = Label(name) if name else None
            return label


def _observer(options: ModeOptions, name: str) -> Observer:
    observer = options.observers.get(name)
    if observer is None:
        observer = options.observers[name] = Observer(name, options.details or DetailOptions())
    return observer


def _observed(
    observer: Observer, label: Label, func: Any, args: Any, kwargs: dict[str, Any]
) -> Any:
    """Run one op in its range, and record its details."""
    seen, result, number = observer.look(args, kwargs), None, stack.new_call_id()
    entry = Entry(label, number)
    push(entry)
    try:
        result = func(*args, **kwargs)
        return result
    finally:
        close(entry)
        observer.note(number, seen, result)


# -- Nodes of autograd


class Node(local):
    """The node of autograd that ran last on this thread: what identifies it, and its call id.

    It keeps no node, because a node keeps tensors.
    """

    def __init__(self) -> None:
        self.key: tuple[Any, ...] = ()
        self.call = 0


ACCUMULATES = "torch::autograd::AccumulateGrad"
_last = Node()
_labels: dict[str, Label] = {}


def node_entry() -> Entry | None:
    """Return a range of the node that this thread runs, or None outside of a backward pass.

    All ranges of one run of a node have one call id: each op in it is a slice of the call.
    """
    node = _C._current_autograd_node()  # noqa: SLF001 (no public name)
    if node is None:
        return None
    name = node.name()
    # All nodes that accumulate into a parameter have one number.
    owner = id(node.variable) if name == ACCUMULATES else 0
    key = (name, node._sequence_nr(), _C._current_graph_task_id(), owner)  # noqa: SLF001 (as above)
    if key != _last.key:
        _last.key, _last.call = key, stack.new_call_id()
    label = _labels.get(name)
    if label is None:
        label = _labels[name] = Label(name)
    return Entry(label, _last.call)
