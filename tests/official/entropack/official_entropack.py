"""The official Tile-ANS code (PyPI entropack 0.1.0, eager path) without PyTorch, as the oracle of tests.

Importing this module loads the package over torch_stand_in; its layers, which Tile-ANS does not need, are left out. Later
versions of the package have the same codec but another container.

A container in a folder, as in tests/golden/tile_ans: header.json and a file for each buffer. In a safetensors file: the
header as `<tensor>._entropack.header` and the buffers as `<tensor>._entropack.buffers.<name>`.
"""
import importlib.metadata
import json
import logging
import pathlib
import sys
import types
import warnings

VERSION = "0.1.0"

try:
    _installed = importlib.metadata.version("entropack")
except importlib.metadata.PackageNotFoundError:
    _installed = "none"
if _installed != VERSION:
    print(f"{'skipped: ' if _installed == 'none' else ''}entropack {VERSION} is needed ({_installed} is installed): run "
          "scripts/setup-python")
    sys.exit(77 if _installed == "none" else 1)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "torch_stand_in"))
_layers = types.ModuleType("entropack.linear")
_layers.CompressedFP8Linear = _layers.CompressedINT8Linear = _layers.CompressedLinear = None
sys.modules["entropack.linear"] = _layers

import entropack  # noqa: E402
import numpy as np  # noqa: E402
import safetensors  # noqa: E402
import torch  # noqa: E402
from entropack.schemes.tile_ans.format import OPTIONS_BY_DTYPE  # noqa: E402

logging.getLogger("entropack").setLevel(logging.ERROR)  # it tells of every tensor that it stores raw
DTYPES = tuple(str(dtype).removeprefix("torch.") for dtype in OPTIONS_BY_DTYPE)
BUFFERS = {"payload": ("payload.u16", torch.uint16), "offsets": ("offsets.u32", torch.uint32),
           "states": ("states.u32", torch.uint32), "decode_tables": ("decode_tables.u32", torch.uint32),
           "lane_modes": ("lane_modes.u8", torch.uint8), "layout": ("layout.i64", torch.int64)}
HEADER_FILE, DATA_FILE = "header.json", "data.bin"
PREFIX = "._entropack."
# The names of safetensors; it has none for the two fnuz types (only raw containers hold tensors of these).
_STORED_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
                  "F8_E5M2": "float8_e5m2", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64",
                  "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool"}


def tensor_of(data, dtype, shape):
    """The tensor with these storage bytes; dtype by its name in PyTorch."""
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise ValueError(f"{dtype} is no dtype")
    words = np.frombuffer(bytearray(data), np.uint8)
    return torch.from_numpy(words).view(kind).reshape(tuple(shape))


def bytes_of(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def encode(data, dtype, shape, **settings):
    """A container. settings: those of TileANSConfig. Where the package stores the tensor raw, so does this."""
    config = entropack.TileANSConfig(execution_backend="eager", **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", entropack.compression.CompressionFallbackWarning)
        return entropack.compress(tensor_of(data, dtype, shape), config)


def decode(container):
    """The storage bytes of the tensor."""
    config = entropack.RawConfig() if container.compress_method == "raw" else entropack.TileANSConfig(execution_backend="eager")
    return bytes_of(entropack.decompress(container, config))


def validate(container):
    """The package's full check, which neither loading nor decoding makes. Raises where it finds something."""
    container.validate()
    container.scheme.validate_buffers(container.buffers, container.shape, container.encoded_dtype)


def header_of(container):
    """The bytes of the header."""
    return bytes_of(container.state_dict()["header"])


def load(header, buffers):
    """The container of a header's bytes and {buffer: tensor}, by the package's own loader."""
    state = {f"buffers.{name}": tensor for name, tensor in buffers.items()}
    state["header"] = torch.from_numpy(np.frombuffer(bytearray(header), np.uint8))
    return entropack.CompressedTensor.from_state_dict(state)


def files_of(container):
    """{name of a file in the container's folder: its bytes}"""
    files = {HEADER_FILE: header_of(container)}
    for name, tensor in container.buffers.items():
        files[DATA_FILE if name == "data" else BUFFERS[name][0]] = bytes_of(tensor)
    return files


def write_folder(container, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files_of(container).items():
        (folder / name).write_bytes(data)


def read_folder(folder):
    """Files have no shapes: rows of states are 32 long and there is a decode table a lane, where the sizes allow it."""
    folder = pathlib.Path(folder)
    header = (folder / HEADER_FILE).read_bytes()
    if (folder / DATA_FILE).exists():
        told = json.loads(header)
        return load(header, {"data": tensor_of((folder / DATA_FILE).read_bytes(), told["dtype"], told["shape"])})
    buffers = {}
    for name, (file, kind) in BUFFERS.items():
        buffers[name] = torch.from_numpy(np.frombuffer(bytearray((folder / file).read_bytes()), np.uint8)).view(kind)
    if buffers["states"].numel() % 32 == 0:
        buffers["states"] = buffers["states"].reshape(buffers["states"].numel() // 32, 32)
    num_lanes = buffers["lane_modes"].numel()
    if num_lanes and buffers["decode_tables"].numel() % num_lanes == 0:
        buffers["decode_tables"] = buffers["decode_tables"].reshape(num_lanes, buffers["decode_tables"].numel() // num_lanes)
    return load(header, buffers)


def write_safetensors(path, containers, metadata=None):
    """containers: {tensor: container}"""
    entries = {}
    for name, container in containers.items():
        for key, tensor in container.state_dict(name + PREFIX).items():
            dtype = str(tensor.dtype).removeprefix("torch.")
            entries[key] = {"dtype": dtype, "shape": list(tensor.shape), "data": bytes_of(tensor)}
    pathlib.Path(path).write_bytes(safetensors.serialize(entries, metadata))


def read_safetensors(path):
    """({tensor: container}, {tensor stored as it is: (its dtype in PyTorch, shape, bytes)})"""
    entries = {name: (_STORED_DTYPES[entry["dtype"]], entry["shape"], bytes(entry["data"]))
               for name, entry in safetensors.deserialize(pathlib.Path(path).read_bytes())}
    names = [name.removesuffix(PREFIX + "header") for name in entries if name.endswith(PREFIX + "header")]
    inside = tuple(name + PREFIX for name in names)
    state = {name: tensor_of(data, dtype, shape) for name, (dtype, shape, data) in entries.items() if name.startswith(inside)}
    containers = {name: entropack.CompressedTensor.from_state_dict(state, name + PREFIX) for name in sorted(names)}
    return containers, {name: entry for name, entry in entries.items() if name not in state}
