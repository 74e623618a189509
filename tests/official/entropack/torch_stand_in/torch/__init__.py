"""A stand-in for PyTorch, numpy behind it, for entropack's Tile-ANS code: Debian's PyTorch lacks FP8 and the unsigned types.

It has what entropack 0.1.0 uses to be imported (without its layers), to code a tensor by its eager path and to keep its
containers; nothing else, and no GPU. A tensor is a numpy array with a dtype beside it. BF16 and FP8, which numpy lacks, are
kept as unsigned words of their size: moving and viewing them works as in PyTorch, and using them as numbers is a TypeError.
"""
import builtins
import math
import types

import numpy as np

__version__ = "0 (stand-in of the tests)"


class dtype:
    def __init__(self, name, array_type, is_floating_point=False, opaque=False):
        self._name = name
        self._array_type = np.dtype(array_type)
        self._opaque = opaque  # numpy does not know its values
        self.is_floating_point = is_floating_point
        self.itemsize = self._array_type.itemsize

    def __repr__(self):
        return f"torch.{self._name}"


float64 = dtype("float64", "<f8", is_floating_point=True)
float32 = dtype("float32", "<f4", is_floating_point=True)
float16 = dtype("float16", "<f2", is_floating_point=True)
bfloat16 = dtype("bfloat16", "<u2", is_floating_point=True, opaque=True)
float8_e4m3fn = dtype("float8_e4m3fn", "u1", is_floating_point=True, opaque=True)
float8_e4m3fnuz = dtype("float8_e4m3fnuz", "u1", is_floating_point=True, opaque=True)
float8_e5m2 = dtype("float8_e5m2", "u1", is_floating_point=True, opaque=True)
float8_e5m2fnuz = dtype("float8_e5m2fnuz", "u1", is_floating_point=True, opaque=True)
complex64 = dtype("complex64", "<c8")
int64, int32, int16, int8 = (dtype(f"int{bits}", f"<i{bits // 8}") for bits in (64, 32, 16, 8))
uint64, uint32, uint16, uint8 = (dtype(f"uint{bits}", f"<u{bits // 8}") for bits in (64, 32, 16, 8))
bool = dtype("bool", "?")  # noqa: A001  (PyTorch's name for it)

_BY_ARRAY_TYPE = {kind._array_type: kind for kind in list(globals().values()) if isinstance(kind, dtype) and not kind._opaque}


class device:
    """Always the CPU."""

    def __init__(self, name="cpu"):
        if str(name) != "cpu":
            raise RuntimeError(f"the stand-in for torch has no device {name}")
        self.type, self.index = "cpu", None

    def __eq__(self, other):
        return isinstance(other, device)

    def __hash__(self):
        return hash("cpu")

    def __str__(self):
        return "cpu"

    def __repr__(self):
        return "device(type='cpu')"


class Size(tuple):
    def numel(self):
        return math.prod(self)


class Tensor:
    """Made by the functions below; or a wrapper, which has a shape and a dtype but no values of its own."""

    @staticmethod
    def _make_wrapper_subclass(cls, size, *, dtype, device=device(), requires_grad=False):
        wrapper = object.__new__(cls)
        wrapper._array, wrapper._shape = None, Size(size)
        wrapper.dtype, wrapper.device, wrapper.requires_grad = dtype, device, requires_grad
        return wrapper

    def _values(self):
        if self._array is None or self.dtype._opaque:
            raise TypeError(f"the stand-in for torch cannot use {self.dtype} as numbers")
        return self._array

    @property
    def shape(self):
        return self._shape if self._array is None else Size(self._array.shape)

    ndim = property(lambda self: len(self.shape))

    def numel(self):
        return self.shape.numel()

    def element_size(self):
        return self.dtype.itemsize

    def is_contiguous(self):
        return self._array.flags.c_contiguous

    def contiguous(self):
        # Not numpy's ascontiguousarray: it makes a scalar one-dimensional.
        return self if self.is_contiguous() else _wrap(self._array.copy(order="C"), self.dtype)

    def detach(self):
        return _wrap(self._array, self.dtype)

    def clone(self):
        return _wrap(self._array.copy(order="C"), self.dtype)

    def cpu(self):
        return self

    def to(self, target):
        if isinstance(target, device) or target is self.dtype:
            return self
        if target._opaque:
            raise TypeError(f"the stand-in for torch cannot convert to {target}")
        return _wrap(self._values().astype(target._array_type), target)

    def view(self, target):
        """Of another dtype only; the last dimension grows or shrinks with the item size."""
        if self.dtype.itemsize != target.itemsize:
            if self.ndim == 0:
                raise RuntimeError("a scalar has no view of another item size")
            if self.shape[-1] * self.dtype.itemsize % target.itemsize:
                raise RuntimeError(f"{self.shape[-1]} items of {self.dtype} do not divide into items of {target}")
        return _wrap(self._array.view(target._array_type), target)

    def reshape(self, *shape):
        shape = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        try:
            return _wrap(self._array.reshape(shape), self.dtype)
        except ValueError as error:
            raise RuntimeError(f"shape {shape} is invalid for {self.numel()} elements") from error

    def numpy(self):
        return self._values()

    def tolist(self):
        return self._values().tolist()

    def any(self):
        return _wrap(self._values().any(), bool)

    def sum(self):
        return _wrap(self._values().sum(dtype=np.int64), int64)

    def __getitem__(self, index):
        return _wrap(self._array[index], self.dtype)

    def __setitem__(self, index, value):
        self._values()[index] = value

    def __len__(self):
        return self.shape[0]

    def _single(self):
        if self.numel() != 1:
            raise RuntimeError(f"a tensor of {self.numel()} values is not a single one")
        return self._values().reshape(-1)[0]

    def __bool__(self):
        return builtins.bool(self._single())

    def __int__(self):
        return int(self._single())

    def __eq__(self, other):
        return _elementwise(np.equal, self, other)

    def __ne__(self, other):
        return _elementwise(np.not_equal, self, other)

    def __lt__(self, other):
        return _elementwise(np.less, self, other)

    def __and__(self, other):
        return _elementwise(np.bitwise_and, self, other)

    def __sub__(self, other):
        return _elementwise(np.subtract, self, other)

    __hash__ = object.__hash__


def _wrap(array, kind):
    tensor = object.__new__(Tensor)
    tensor._array = np.asarray(array)
    assert tensor._array.dtype == kind._array_type, (tensor._array.dtype, kind)
    tensor.dtype, tensor.device, tensor.requires_grad = kind, device(), False
    return tensor


def _elementwise(function, left, right):
    result = np.asarray(function(left._values(), right._values() if isinstance(right, Tensor) else right))
    return _wrap(result, _BY_ARRAY_TYPE[result.dtype])


def tensor(values, *, dtype):
    return _wrap(np.array(values, dtype._array_type), dtype)


def empty(shape, *, dtype):
    return _wrap(np.empty(shape, dtype._array_type), dtype)


def full_like(like, value):
    return _wrap(np.full_like(like._values(), value), like.dtype)


def from_numpy(array):
    """Shares the array's memory."""
    if array.dtype not in _BY_ARRAY_TYPE:
        raise TypeError(f"torch has no type for numpy's {array.dtype}")
    return _wrap(array, _BY_ARRAY_TYPE[array.dtype])


def frombuffer(buffer, *, dtype):
    """Shares the buffer's memory; one dimension."""
    if len(buffer) == 0:
        raise ValueError("torch refuses buffers of no bytes")
    return _wrap(np.frombuffer(buffer, dtype._array_type), dtype)


def equal(left, right):
    return np.array_equal(left._values(), right._values())


cuda = types.SimpleNamespace(is_available=lambda: False)
