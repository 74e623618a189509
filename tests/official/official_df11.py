"""The official DF11 compressor (PyPI dfloat11 0.5.0) on Debian's PyTorch 1.13, without a GPU, as the oracle of tests.

Importing this module loads the package. Everything it imports that needs a GPU or a download is a stub, and what PyTorch
1.13 lacks is filled in: `torch.uint32` is int32 there (the same bytes), also where numpy hands over uint32 arrays.
"""
import contextlib
import ctypes
import importlib.util
import io
import json
import os
import sys
import types

import numpy as np
import torch

BYTES_PER_THREAD, THREADS_PER_BLOCK = 8, 512


def _stub(name, **attributes):
    module = types.ModuleType(name)
    vars(module).update(attributes)
    sys.modules[name] = module
    return module


def _not_available(*_, **__):
    raise RuntimeError("a stub of the tests: not available without a GPU or network")


class _RawModule:
    def __init__(self, path):
        self.path = path

    def get_function(self, _):
        return _not_available


def _load():
    root = os.path.dirname(importlib.util.find_spec("dfloat11").origin)
    _stub("cupy", RawModule=_RawModule, cuda=types.SimpleNamespace(Device=lambda _: contextlib.nullcontext()))
    _stub("pkg_resources", resource_filename=lambda _, name: os.path.join(root, name))
    _stub("accelerate", infer_auto_device_map=_not_available, dispatch_model=_not_available)
    _stub("accelerate.utils", get_balanced_memory=_not_available)
    _stub("huggingface_hub", snapshot_download=_not_available)
    if not hasattr(torch, "uint32"):
        from_numpy = torch.from_numpy
        torch.uint32 = torch.int32
        torch.from_numpy = lambda array: from_numpy(array.view(np.int32) if array.dtype == np.uint32 else array)
    import dfloat11.dfloat11
    import dfloat11.dfloat11_utils
    for module in (dfloat11.dfloat11, dfloat11.dfloat11_utils):
        module.tqdm = lambda iterable, **_: iterable  # no progress bars
    dfloat11.dfloat11_utils.HuffmanCodec.print_code_table = lambda _: None  # it has kept the true stdout
    return dfloat11.dfloat11, dfloat11.dfloat11_utils


_dfloat11, _utils = _load()


@contextlib.contextmanager
def quiet():
    """The official code prints tables and progress."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def compress_model(*args, **kwargs):
    with quiet():
        return _dfloat11.compress_model(*args, **kwargs)


def load_into(model, path, pattern_dict=None):
    """The official loader fills the model from a folder or, with a pattern_dict, from a single file.

    Returns what it complains about: it goes on after a tensor that the model has no place for.
    """
    if pattern_dict is None:
        with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
            config = json.load(file)["dfloat11_config"]
    else:  # what from_single_file makes of it
        config = {"version": _dfloat11.version, "threads_per_block": _dfloat11.threads_per_block,
                  "bytes_per_thread": _dfloat11.bytes_per_thread, "pattern_dict": pattern_dict}
    _dfloat11.stderr = io.StringIO()  # imported there by name
    with quiet():
        _dfloat11.load_and_replace_tensors(model, str(path), config, from_single_file=pattern_dict is not None)
    return _dfloat11.stderr.getvalue()


def run_decode_hook(module, decode):
    """Runs the hook that the loader gave a unit's module: it decodes the weights and puts them into the modules.

    decode: takes {buffer: bytes}, gives the BF16 words (uint16); stands for the kernel. Returns the launch: threads in a
    block, blocks, bytes of shared memory, bytes of the stream.
    """
    launches = []

    def launch(grid, block, shared_mem, args):
        luts, stream, sign_mantissa, _, _, output, num_rows, num_bytes, num_weights = args
        words = decode({"luts": ctypes.string_at(luts, num_rows * 256), "encoded_exponent": ctypes.string_at(stream, num_bytes),
                        "sign_mantissa": ctypes.string_at(sign_mantissa, num_weights)})
        words = np.ascontiguousarray(words, "<u2")
        assert len(words) == num_weights
        ctypes.memmove(output, words.ctypes.data, words.nbytes)
        launches.append((block, grid, shared_mem, num_bytes))

    (hook,) = module._forward_pre_hooks.values()
    _dfloat11._decode = launch
    try:
        with torch.no_grad():
            hook(module, None)
    finally:
        _dfloat11._decode = _not_available
        _dfloat11.TensorManager._tensors.clear()  # else the next unit's weights take the place of these
    (launched,) = launches
    return launched


def code_table(words):
    """{exponent: (bits, code)} with its EOF entry, of the unit whose BF16 words (uint16) these are."""
    with quiet():
        _, counter = _utils.get_codec(torch.from_numpy(words.view(np.int16)).view(torch.bfloat16))
        return _utils.get_32bit_codec(counter)[2]


def encode_unit(arrays):
    """arrays: one uint16 array of BF16 words a tensor. Returns ({buffer: torch tensor as it is saved}, bits of all codes).

    `luts` is None where the official table builder fails (it does for units of very few exponents).
    """
    weights = [torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) for array in arrays]
    with quiet():
        _, counter = _utils.get_codec(torch.cat(weights))
        codec, _, table = _utils.get_32bit_codec(counter)
        try:
            luts = _utils.get_luts(table)
        except UnboundLocalError:
            luts = None
        encoded, sign_mantissa, positions, gaps, splits = _utils.encode_weights(
            weights, codec, BYTES_PER_THREAD, THREADS_PER_BLOCK)
    total_bits = sum(count * table[exponent][0] for exponent, count in counter.items())
    return {"luts": luts, "encoded_exponent": encoded, "sign_mantissa": sign_mantissa,
            "output_positions": positions.view(torch.uint8), "gaps": gaps, "split_positions": splits}, total_bits
