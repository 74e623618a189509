#!/usr/bin/env python3
"""How small Tile-ANS, DF11 and zstd make a trained model, as each of the 16 dtypes. Prints one table.

usage: bench/tile_ans_ratios.py PROGRAM MODEL

PROGRAM: weightpress. MODEL: a folder with model.safetensors (its F32 tensors are taken), config.json and vocab.txt of a BERT-like
model, e.g. what scripts/fetch-example-model fetches. Everything is made of these and of this repository's text; see the column
"content". Each dtype is one safetensors file; percentages are sizes of whole files, of `compress --format tile-ans` (with its own
choice of tiles, and with larger ones), of `compress` (DF11, all .safetensors files of its folder) and of the zstd command, which
Debian's package zstd has. Needs numpy.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "program"))

import model_casts  # noqa: E402  (found through the line above)
import tile_ans_files as files  # noqa: E402

TEXT_ENDINGS = (".md", ".cpp", ".h", ".cuh", ".cu", ".py")
TEXT_FOLDERS = ("docs", "include", "kernels", "src", "tests")
ROW_TOKENS = 512
KEPT_SHARE = 0.1  # of the pruned model
LARGE_TILE = 32768


def four_bit_words(matrix, group=128):
    """As GPTQ keeps them: I32 [in / 8, out], eight weights of an output a word, a scale for each 128 (dropped) and zero at 8."""
    groups = matrix.reshape(-1, group)
    scales = np.abs(groups).max(axis=1, keepdims=True) / 7
    weights = np.rint(groups / np.where(scales == 0, 1, scales)).astype(np.int64) + 8
    words = (weights.reshape(matrix.shape[0], -1, 8) << 4 * np.arange(8)).sum(axis=2)
    return words.T.astype("<u4").view("<i4")


def token_ids(vocabulary):
    """The words of this repository's text in WordPiece: the longest piece that fits, then on."""
    pieces = {piece: number for number, piece in enumerate(vocabulary.read_text(encoding="utf-8").splitlines())}
    known = {}

    def ids_of(word):
        ids, begin = [], 0
        while begin < len(word):
            for end in range(len(word), begin, -1):
                if (piece := ("##" if begin else "") + word[begin:end]) in pieces:
                    break
            else:
                return [pieces["[UNK]"]]
            ids.append(pieces[piece])
            begin = end
        return ids

    ids = []
    for path in sorted(path for folder in TEXT_FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in TEXT_ENDINGS):
        for word in re.findall(r"[^\W_]+|[^\w\s]|_", path.read_text(encoding="utf-8").lower()):
            if word not in known:
                known[word] = ids_of(word)
            ids += known[word]
    return np.array(ids[: len(ids) // ROW_TOKENS * ROW_TOKENS]).reshape(-1, ROW_TOKENS)


def kept(matrix):
    """Where the largest weights of a matrix are."""
    magnitudes = np.abs(matrix)
    return magnitudes >= np.quantile(magnitudes, 1 - KEPT_SHARE)


def contents(model):
    """(dtype, what it is, {tensor: array} made when asked for)"""
    tensors, _ = files.read_file(model / "model.safetensors")
    weights = {name: np.frombuffer(content, "<f4").reshape(shape) for name, (kind, shape, content) in tensors.items()
               if kind == "F32" and content}
    matrices = {name: array for name, array in weights.items() if array.ndim == 2}
    layers = {name: array for name, array in matrices.items() if "embedding" not in name and array.shape[1] % 128 == 0}
    ids = token_ids(model / "vocab.txt")

    def each(arrays, change):
        return lambda: {name: change(array) for name, array in arrays.items()}

    yield "F32", "the model", each(weights, lambda array: array)
    yield "F16", "cast", each(weights, lambda array: array.astype("<f2"))
    yield "BF16", "cast", each(weights, model_casts.to_bf16)
    for dtype in model_casts.F8_FORMATS:
        yield dtype, "cast, scaled by tensor", each(weights, lambda array, dtype=dtype: model_casts.to_f8(array, dtype))
    yield "I64", "token ids of text", lambda: {"input_ids": ids.astype("<i8")}
    yield "I32", "4-bit weights of the layers, eight a word", each(layers, four_bit_words)
    yield "I16", "the weights of I8, widened", each(weights, lambda array: model_casts.to_i8(array).astype("<i2"))
    yield "I8", "weights, scaled by tensor", each(weights, model_casts.to_i8)
    yield "U64", "flat positions of the largest tenth", each(matrices, lambda array: np.flatnonzero(kept(array)).astype("<u8"))
    yield "U32", "columns of the largest tenth, by row", each(matrices, lambda array: np.nonzero(kept(array))[1].astype("<u4"))
    yield "U16", "token ids of text", lambda: {"input_ids": ids.astype("<u2")}
    yield "U8", "weights, scaled by tensor, with a zero point", each(weights, model_casts.to_u8)
    yield "BOOL", "mask of the largest tenth", each(matrices, lambda array: kept(array).astype("u1"))


def run(*command):
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


def tile_ans_bytes(program, source, work, tile_elements=0):
    out = work / "out.safetensors"
    run(program, "compress", source, "-o", out, "--format", "tile-ans", "--tile-elements", tile_elements, "--force")
    return out.stat().st_size


def df11_bytes(program, source, model, work):
    folder = work / "model"
    folder.mkdir()
    shutil.copy(source, folder / "model.safetensors")
    shutil.copy(model / "config.json", folder)
    run(program, "compress", folder, "-o", work / "df11")
    return sum(path.stat().st_size for path in (work / "df11").glob("*.safetensors"))


def zstd_bytes(level, source, work):
    out = work / "out.zst"
    run("zstd", f"-{level}", "-T1", "-q", "-f", source, "-o", out)
    return out.stat().st_size


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("model", type=pathlib.Path)
    arguments = parser.parse_args()
    if shutil.which("zstd") is None:
        sys.exit("the command zstd is missing: apt-get install zstd")
    for name in ("model.safetensors", "config.json", "vocab.txt"):
        if not (arguments.model / name).is_file():
            sys.exit(f"{arguments.model}: {name} is missing: scripts/fetch-example-model makes a folder that has it")
    print(run(arguments.program, "--version").strip(), "|", run("zstd", "--version").strip(), "\n")
    print(f"| dtype | content | bytes | Tile-ANS | tiles of {LARGE_TILE:,} | DF11 | zstd -3 | zstd -19 |")
    print("|---|---|---|---|---|---|---|---|")
    dtypes = set()
    for dtype, content, make in contents(arguments.model):
        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder)
            source = work / "source.safetensors"
            tensors = {name: (dtype, array.shape, array.tobytes()) for name, array in make().items()}
            source.write_bytes(files.safetensors_bytes(tensors, {"format": "pt"}))
            sizes = [tile_ans_bytes(arguments.program, source, work), tile_ans_bytes(arguments.program, source, work, LARGE_TILE),
                     df11_bytes(arguments.program, source, arguments.model, work) if dtype == "BF16" else None,
                     zstd_bytes(3, source, work), zstd_bytes(19, source, work)]
            smallest = min(size for size in sizes if size)
            told = [("**{:.1f}%**" if size == smallest else "{:.1f}%").format(100 * size / source.stat().st_size) if size else ""
                    for size in sizes]
            print("|", " | ".join([dtype, content, f"{files.stored_bytes(tensors):,}", *told]), "|", flush=True)
        dtypes.add(dtype)
    assert dtypes == set(files.TORCH_NAMES), dtypes ^ set(files.TORCH_NAMES)


if __name__ == "__main__":
    main()
