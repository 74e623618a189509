"""Sources of every kind, sound and broken, and what must come of them; for the tests of tests/program.

A source is written byte by byte where the bytes are the point, and judged from outside: exit code, message, output by
tensors, and that neither the source nor anything beside it was touched. The units of a right output come from the slow
model. Standard library and numpy only.
"""
import json
import math
import os
import pathlib
import re
import stat
import struct
import subprocess
import sys

import numpy as np

import support
from support import bf16, reference, words
from test_compress_command import CONTROL_CHARACTERS, PATTERNS, CompressCase

DONE, CORRUPT, IMPOSSIBLE = 0, 1, 2

# As the format orders them in a file, the last one first; bits of an element.
DTYPE_BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
              "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
              "C64": 64, "F64": 64, "I64": 64, "U64": 64}
DTYPE_RANK = {dtype: rank for rank, dtype in enumerate(DTYPE_BITS)}

LFS_POINTER = ("version https://git-lfs.github.com/spec/v1\n"
               f"oid sha256:{'0123456789abcdef' * 4}\nsize 4976698672\n").encode()


def model_tensors(layers=2):
    """Units embed and layers.N (a, b) of PATTERNS, with siblings, and kept tensors."""
    tensors = {"embed.weight": bf16(words(1, 600), [6, 100]), "norm.weight": bf16(words(2, 20))}
    for layer in range(layers):
        tensors |= {f"layers.{layer}.a.weight": bf16(words(10 + layer, 300), [3, 100]),
                    f"layers.{layer}.b.weight": bf16(words(20 + layer, 200), [2, 100]),
                    f"layers.{layer}.norm.weight": bf16(words(30 + layer, 10))}
    return tensors


def some_bytes(seed, count):
    return np.random.Generator(np.random.PCG64(seed)).integers(0, 256, count, np.uint8).tobytes()


def floats(dtype, values, shape=None):
    """A tensor of F16, F32 or F64."""
    array = np.asarray(values, {"F16": "<f2", "F32": "<f4", "F64": "<f8"}[dtype])
    return dtype, list(shape if shape is not None else array.shape), array.tobytes()


def filled(dtype, shape, seed=1):
    """A tensor of any dtype with arbitrary bytes."""
    return dtype, list(shape), some_bytes(seed, math.prod(shape) * DTYPE_BITS[dtype] // 8)


def pack(tensors, order=None):
    """(header as a dict, data): the tensors one after the other in this order of names."""
    header, data = {}, b""
    for name in order or tensors:
        dtype, shape, content = tensors[name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    return header, data


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def file_bytes(header, data=b"", pad=True, length=None):
    """A file with this header (a dict, text or bytes), padded or not, whose length may be a lie."""
    text = compact(header) if isinstance(header, dict) else header
    text = text.encode() if isinstance(text, str) else text
    if pad:
        text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensors_file(tensors):
    return file_bytes(*pack(tensors))


def index_of(files, **more):
    """The index of {file name: tensors}."""
    return {"metadata": {"total_size": sum(len(tensor[2]) for tensors in files.values() for tensor in tensors.values())},
            "weight_map": {name: file for file, tensors in files.items() for name in tensors}, **more}


def rounded_to_bf16(values):
    """BF16 words of F32 values: round to nearest, ties to even, every NaN to 0x7FC0."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
    return np.where(np.isnan(np.asarray(values, np.float32)), np.uint16(0x7FC0), rounded).astype("<u2")


def expected_output(tensors, patterns=None, kept_units=(), made_from=None):
    """{name: (dtype, shape, bytes)} of a right output of these tensors (named as in the output).

    kept_units stay as they are. made_from: {tensor that is absent: the one it is a copy of}.
    """
    source = {**tensors, **{name: tensors[original] for name, original in (made_from or {}).items()}}
    modules = {name[:at.start()] for name in source for at in re.finditer(r"\.", name)}
    out = dict(source)
    for pattern, attributes in (PATTERNS if patterns is None else patterns).items():
        for module in sorted(module for module in modules - set(kept_units) if re.fullmatch(pattern, module)):
            alone = f"{module}.weight" in source or not attributes
            names = [f"{module}.weight"] if alone else [f"{module}.{attribute}.weight" for attribute in attributes]
            parts = [np.frombuffer(out.pop(name)[2], "<u2") for name in names]
            unit, why_free = reference.encode_unit(np.concatenate(parts))
            assert why_free is None, f"{module}: the test data has no single right form: {why_free}"
            for buffer, content in unit.items():
                out[f"{module}.{buffer}"] = ("U8", list(content.shape), content.tobytes())
            out[f"{module}.split_positions"] = ("I64", [len(parts) - 1], support.split_positions([len(part) for part in parts]))
    return out


def read_strictly(path):
    """{name: (dtype, shape, bytes)} and metadata of a file the program wrote, which must be as save_file writes one."""
    content = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    text, data = content[8:8 + length], content[8 + length:]
    assert length % 8 == 0, f"{path}: the header is not padded"
    header = json.loads(text.decode(), object_pairs_hook=lambda pairs: pairs)
    names = [name for name, _ in header]
    assert len(set(names)) == len(names), f"{path}: a name stands twice"
    metadata = dict(dict(header)["__metadata__"]) if names[:1] == ["__metadata__"] else None
    tensors, end, keys = {}, 0, []
    for name, fields in header:
        if name == "__metadata__":
            continue
        assert [key for key, _ in fields] == ["dtype", "shape", "data_offsets"], f"{path}: {name}: {fields}"
        dtype, shape, (begin, stop) = (value for _, value in fields)
        assert begin == end and stop - begin == math.prod(shape) * DTYPE_BITS[dtype] // 8, f"{path}: {name}: {fields}"
        tensors[name] = (dtype, shape, data[begin:stop])
        keys.append((-DTYPE_RANK[dtype], name.encode()))
        end = stop
    assert end == len(data), f"{path}: bytes follow the last tensor"
    assert keys == sorted(keys), f"{path}: the tensors are not in save_file's order"
    return tensors, metadata


def read_output(out):
    """All tensors of an output file or folder."""
    out = pathlib.Path(out)
    tensors = {}
    for path in [out] if out.is_file() else sorted(out.glob("*.safetensors")):
        for name, tensor in read_strictly(path)[0].items():
            assert name not in tensors, f"{name} is in two files"
            tensors[name] = tensor
    return tensors


def fingerprint(path):
    """What lies at a path and below, without following links or opening anything but ordinary files."""
    path = pathlib.Path(path)
    found = {}
    for entry in [path, *path.rglob("*")] if path.is_dir() and not path.is_symlink() else [path]:
        if not os.path.lexists(entry):
            continue
        status = entry.lstat()
        content = None
        if stat.S_ISLNK(status.st_mode):
            content = os.readlink(entry)
        elif stat.S_ISREG(status.st_mode) and status.st_size < 1 << 24:
            content = entry.read_bytes()
        is_file = stat.S_ISREG(status.st_mode)
        found[str(entry.relative_to(path))] = (status.st_mode, content, status.st_mtime_ns if is_file else 0)
    return found


# Runs the rest of its arguments and writes the peak memory in KB to the descriptor named first. A process's peak begins at
# that of the process it was forked from, so it is measured from here, which is small, and not from the tests.
LAUNCHER = """
import os, sys
child = os.fork()
if child == 0:
    os.execv(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(child, 0)
os.write(int(sys.argv[1]), str(usage.ru_maxrss).encode())
if os.WIFSIGNALED(status):
    os.kill(os.getpid(), os.WTERMSIG(status))
sys.exit(os.WEXITSTATUS(status))
"""


def run_measured(*arguments, timeout=60):
    """Runs the program. Returns the finished process and its peak memory in MB."""
    read_end, write_end = os.pipe()
    try:
        done = subprocess.run([sys.executable, "-I", "-S", "-c", LAUNCHER, str(write_end), support.PROGRAM, *map(str, arguments)],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="surrogateescape", timeout=timeout,
                              check=False, pass_fds=[write_end])
        os.close(write_end)
        write_end = None
        with os.fdopen(read_end, closefd=False) as pipe:
            peak = pipe.read()
    finally:
        os.close(read_end)
        if write_end is not None:
            os.close(write_end)
    return done, int(peak or 0) / 1024


class SourceCase(CompressCase):
    """Runs the program on sources and judges it. Each run has an OUT of its own, self.out."""
    num_runs = 0

    def place(self, name=None):
        """A new folder."""
        SourceCase.num_runs += 1
        folder = self.work / (name or f"source_{SourceCase.num_runs}")
        folder.mkdir(parents=True)
        return folder

    def source_folder(self, files, config=support.CONFIG, index=None):
        """A folder of {file name: tensors or bytes}, with an index (a dict, or bytes as they are) and config.json."""
        folder = self.place()
        for name, content in files.items():
            (folder / name).write_bytes(tensors_file(content) if isinstance(content, dict) else content)
        if config is not None:
            (folder / "config.json").write_bytes(compact(config).encode() if isinstance(config, dict) else config)
        if index is not None:
            (folder / "model.safetensors.index.json").write_bytes(index if isinstance(index, bytes) else compact(index).encode())
        return folder

    def source_file(self, content, name="model.safetensors"):
        """A file alone: tensors or bytes."""
        path = self.place() / name
        path.write_bytes(tensors_file(content) if isinstance(content, dict) else content)
        return path

    def define(self, patterns=None, layout="transformers", strip_prefixes=(), **rules):
        """A definition of the test's own."""
        SourceCase.num_runs += 1
        path = self.work / f"definition_{SourceCase.num_runs}.json"
        path.write_text(json.dumps({
            "name": path.stem, "layout": layout, "family": "test", "strip_prefixes": list(strip_prefixes),
            "pattern_dict": PATTERNS if patterns is None else patterns, "rules": rules, "provenance": "test"}))
        return path

    def run_on(self, source, *options, definition=None, out=None, **kwargs):
        SourceCase.num_runs += 1
        self.out = pathlib.Path(out) if out is not None else self.work / f"out_{SourceCase.num_runs}"
        return support.compress(source, self.out, definition or self.definition, *options, **{"timeout": 60, **kwargs})

    def refused(self, source, code, *patterns, options=(), definition=None, folder=None, **kwargs):
        """The program refuses before it writes anything: this exit code, a message that matches, nothing made or changed."""
        folder = folder or (source if source.is_dir() and not source.is_symlink() else source.parent)
        before = fingerprint(folder)
        done = self.run_on(source, *options, definition=definition, **kwargs)
        self.assert_fails(done, code, *patterns)
        for left in (self.out, pathlib.Path(f"{self.out}.partial")):
            self.assertFalse(os.path.lexists(left), f"left behind: {left.name}")
        self.assertEqual(fingerprint(folder), before, "the source was changed")
        return done

    def refused_cheaply(self, source, code, *patterns, max_memory_mb=300):
        """As refused, without reading or holding more than a little."""
        self.out = self.work / "out"
        done, peak_mb = run_measured("compress", source, "-o", self.out, "--arch", self.definition, timeout=10)
        self.assert_fails(done, code, *patterns)
        self.assertTrue(0 < peak_mb < max_memory_mb, peak_mb)

    def compressed(self, source, want, options=(), definition=None, **kwargs):
        """The program compresses: the output holds exactly these tensors, the source is as it was."""
        folder = source if source.is_dir() else source.parent
        before = fingerprint(folder)
        done = self.run_on(source, *options, definition=definition, **kwargs)
        self.assert_done(done)
        self.assertIsNone(CONTROL_CHARACTERS.search(done.stdout + done.stderr), repr(done.stdout + done.stderr))
        self.assertFalse(os.path.lexists(f"{self.out}.partial"))
        self.assertEqual(fingerprint(folder), before, "the source was changed")
        self.assert_tensors(read_output(self.out), want)
        return done

    def assert_tensors(self, got, want):
        self.assertEqual(sorted(got), sorted(want))
        for name in want:
            self.assertEqual(list(got[name][:2]), list(want[name][:2]), name)
            self.assertTrue(bytes(got[name][2]) == bytes(want[name][2]), f"{name}: the bytes differ")

    def record(self):
        """weightpress.json of the last output."""
        return json.loads((self.out / "weightpress.json").read_text())

    def recorded_tensor(self, name):
        """A source tensor's entry in weightpress.json."""
        found = [entry for file in self.record()["source_files"] for entry in file["tensors"] if entry["name"] == name]
        self.assertEqual(len(found), 1, name)
        return found[0]
