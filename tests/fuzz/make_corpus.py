#!/usr/bin/env python3
"""make_corpus.py GOLDEN_FOLDER OUT: the golden units as safetensors files, a seed corpus for fuzz_df11_model. Standard library only."""
import json
import pathlib
import struct
import sys

golden, out = map(pathlib.Path, sys.argv[1:])
out.mkdir(parents=True, exist_ok=True)
for folder in sorted(path for path in golden.iterdir() if path.is_dir()):
    luts = folder / "luts.u8"
    buffers = {"split_positions": ("I64", (folder / "split_positions.i64").read_bytes())}
    for name in ("encoded_exponent", "gaps", "sign_mantissa"):
        buffers[name] = ("U8", (folder / f"{name}.u8").read_bytes())
    buffers["output_positions"] = ("U8", (folder / "output_positions.u32").read_bytes())
    buffers["luts"] = ("U8", (luts if luts.exists() else folder / "luts_safe.u8").read_bytes())
    if sum(len(data) for _, data in buffers.values()) > 30_000:
        continue  # longer than what the fuzzer makes
    header, data = {}, b""
    for name, (dtype, content) in buffers.items():
        shape = [len(content) // 8] if dtype == "I64" else [len(content)]
        if name == "luts":
            shape = [len(content) // 256, 256]
        header[f"u.{name}"] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (out / folder.name).write_bytes(struct.pack("<Q", len(text)) + text + data)
