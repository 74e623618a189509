"""Files that are not what their names say: download errors, pointers, other formats, folders, links, pipes, devices.

What was never a model is exit code 2, as a missing file is: the remedy is to fetch or convert it. A model that is damaged is 1.
Standard library and numpy only.
"""
import gzip
import io
import json
import os
import pickle
import socket
import tarfile
import unittest
import zipfile

import support
from sources import (CORRUPT, DONE, IMPOSSIBLE, LFS_POINTER, SourceCase, index_of, model_tensors,
                     tensors_file)

GOOD = tensors_file(model_tensors())
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def zip_of(name):
    """As torch.save has written since 1.6."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, pickle.dumps({"embed.weight": [0.5] * 100}))
        archive.writestr("archive/version", "3\n")
    return buffer.getvalue()


def tar_of():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("model.safetensors")
        member.size = len(GOOD)
        archive.addfile(member, io.BytesIO(GOOD))
    return buffer.getvalue()


# kind: (content, what the message says besides the file's name). The reports are where users met the kind.
OTHER_FILES = {
    # hiyouga/LlamaFactory#327, turboderp/exllama#242
    "LFS pointer": (LFS_POINTER, r"git lfs|lfs pointer", "fetch|pull|download"),
    "LFS pointer with CRLF, from Windows": (LFS_POINTER.replace(b"\n", b"\r\n"), r"git lfs|lfs pointer"),
    "LFS pointer of before LFS was public": (LFS_POINTER.replace(b"git-lfs.github.com", b"hawser.github.com"), "lfs|text"),
    "xet pointer": (b"# xet version 0\nfilesize = 4976698672\nhash = '%s'\n" % (b"0123456789abcdef" * 4), "xet|text"),
    # login and error pages that wget and curl save under the model's name
    "web page": (b"<!DOCTYPE html>\n<html lang=\"en\"><head><title>Log in</title></head></html>\n", "web page|html",
                 "download|fetch"),
    "web page after a comment": (b"<!-- saved from url=(0023) -->\n<html></html>\n", "web page|html"),
    "web page without a doctype": (b"\r\n\r\n<HTML><BODY>504 Gateway Time-out</BODY></HTML>", "web page|html"),
    "XML of an object store": (b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code></Error>',
                               "xml|web page|html"),
    "JSON of an API": (b'{"error":"Invalid username or password."}', "json"),
    "JSON of an API, indented": (b'{\n  "error": {\n    "code": 401\n  }\n}\n', "json"),
    "text of the hub": (b"Access to model google/gemma-3-4b-it is restricted and you are not in the authorized list.",
                        r"\btext\b"),
    "text of the hub, 404": (b"Entry not found", r"\btext\b"),
    "text of 7 bytes": (b"404 bad", r"\btext\b|7 bytes"),
    # safetensors/safetensors#414, billwuhao/ComfyUI_DiffRhythm#43: renamed, and HeaderTooLarge is all that is said
    "torch.save renamed": (zip_of("archive/data.pkl"), "zip|pytorch", "convert"),
    "torch.save of before 1.6 renamed": (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}q\x00",
                                         "pickle|pytorch"),
    "pickle of protocol 4": (pickle.dumps({"embed.weight": [0.5] * 100}, 4), "pickle|pytorch"),
    "GGUF": (b"GGUF\x03\0\0\0" + bytes(100), "gguf"),
    "NumPy array": (b"\x93NUMPY\x01\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", "numpy|not a safetensors"),
    "HDF5 of Keras": (b"\x89HDF\r\n\x1a\n" + bytes(200), "hdf5|not a safetensors"),
    "gzip": (gzip.compress(GOOD), "gzip|compressed"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\x00" + bytes(100), "zstd|compressed"),
    "zip of the model": (zip_of("model.safetensors"), "zip"),
    "tar": (tar_of(), r"\btar\b"),
    # SceneWorks/SceneWorks#1333: the file's attributes, which macOS puts beside it on other file systems
    "AppleDouble": (b"\0\x05\x16\x07\0\x02\0\0Mac OS X        " + bytes(50), "not a safetensors|appledouble|macos"),
}

# What was a safetensors file once, or should have become one.
DAMAGED_FILES = {
    "empty": (b"", "empty|0 bytes"),
    "one byte": (b"\x40", "1 byte"),
    "length only": (GOOD[:8], "cut short|incomplete"),
    "cut in the header": (GOOD[:60], "cut short|incomplete"),
    "cut in the data": (GOOD[:-300], "cut short|incomplete", r"norm\.weight|layers\.1"),  # Comfy-Org/ComfyUI#6744
    "last byte missing": (GOOD[:-1], "cut short|incomplete", r"layers\.1\.norm\.weight"),
    "only zeros": (bytes(4096), "zero|damaged|not valid"),  # EricTan7/VeritasPP#2
    "zeros, then the model": (bytes(512) + GOOD, "zero|damaged|not valid"),
    "beginning lost": (GOOD[8:], "damaged|not a safetensors|json"),
    "bytes appended": (GOOD + b"\0" * 64, "64"),
    "two files in one": (GOOD + GOOD, "trailing|after the last", str(len(GOOD))),
    "line ends converted": (GOOD.replace(b"\n", b"\r\n") + b"\r\n", "trailing|after the last"),
}


class FilesOfOtherKinds(SourceCase):
    """Each kind as the only file of a folder, as a file alone, and as the second shard of a model."""

    def in_every_place(self, content, code, says):
        tensors = model_tensors()
        self.refused(self.source_folder({"model.safetensors": content}), code, r"model\.safetensors", *says)
        self.refused(self.source_file(content, "flux1-dev.safetensors"), code, r"flux1-dev\.safetensors", *says)
        first, second = ({name: tensor for name, tensor in tensors.items() if ("layers.1" in name) == later}
                         for later in (False, True))
        index = index_of({FIRST: first, SECOND: second})
        self.refused(self.source_folder({FIRST: first, SECOND: content}, index=index), code, SECOND, *says)

    def test_other_files(self):
        for kind, (content, *says) in OTHER_FILES.items():
            with self.subTest(kind=kind):
                self.in_every_place(content, IMPOSSIBLE, says)

    def test_damaged_files(self):
        for kind, (content, *says) in DAMAGED_FILES.items():
            with self.subTest(kind=kind):
                self.in_every_place(content, CORRUPT, says)

    def test_one_sound_file_does_not_excuse_another(self):
        """No index: every file of the folder counts, also one that sorts last and holds nothing that is needed."""
        for content in (LFS_POINTER, b"", GOOD[:50]):
            with self.subTest(content=content[:20]):
                source = self.source_folder({"model.safetensors": GOOD, "vision.safetensors": content})
                self.refused(source, (CORRUPT, IMPOSSIBLE), r"vision\.safetensors")

    def test_large_and_empty_of_content(self):
        """A sparse file, as a downloader reserves it: neither read whole nor held in memory."""
        for head in (b"", GOOD[:60]):  # nothing, or a header whose end and data are a hole
            with self.subTest(head=len(head)):
                source = self.source_file(head)
                os.truncate(source, 1 << 36)
                self.refused_cheaply(source, CORRUPT, r"model\.safetensors", "zero|damaged|not valid|nul")

    def test_downloads_that_are_not_finished(self):
        """The names that downloaders give to what they have not finished are no model, and are no part of one."""
        for name in ("model.safetensors.incomplete", "model.safetensors.part", "model.safetensors.crdownload",
                     "model.safetensors.tmp"):
            with self.subTest(name=name):
                self.refused(self.source_folder({name: GOOD}), IMPOSSIBLE, r"\.safetensors")
                self.refused(self.source_file(GOOD, name), IMPOSSIBLE, name)

    def test_download_that_aria2_has_not_finished(self):
        """aria2 reserves the whole file, so a header and the right size say nothing; its control file does."""
        source = self.source_folder({"model.safetensors": GOOD, "model.safetensors.aria2": b"\0\1\0\0"})
        self.refused(source, IMPOSSIBLE, r"model\.safetensors", "aria2")
        self.refused(source / "model.safetensors", IMPOSSIBLE, r"model\.safetensors", "aria2")


class ThingsThatAreNoFiles(SourceCase):
    """Under the name of a model's file. Nothing may hang, whatever it is."""

    def test_in_a_folder(self):
        def make_loop(path):
            path.symlink_to(path.name)

        def make_socket(path):
            here = os.getcwd()
            os.chdir(path.parent)  # the path of a socket is short
            server = socket.socket(socket.AF_UNIX)
            server.bind(path.name)
            os.chdir(here)
            self.addCleanup(server.close)

        kinds = {
            "folder": (os.mkdir, "directory|folder"),
            "link to nothing": (lambda path: path.symlink_to("gone"), "no such file|link"),  # huggingface/huggingface_hub#4550
            "link to itself": (make_loop, "symbolic links|loop|link"),
            "link to a folder": (lambda path: path.symlink_to(self.work), "directory|folder"),
            "pipe": (os.mkfifo, "not a regular file|pipe"),
            "socket": (make_socket, "not a regular file|socket|no such device"),
            "endless device": (lambda path: path.symlink_to("/dev/zero"), "not a regular file|device"),
            "empty device": (lambda path: path.symlink_to("/dev/null"), "not a regular file|device"),
        }
        for kind, (make, *says) in kinds.items():
            with self.subTest(kind=kind, place="tensors"):
                folder = self.source_folder({})
                make(folder / "model.safetensors")
                self.refused(folder, IMPOSSIBLE, r"model\.safetensors", *says, timeout=10)
            with self.subTest(kind=kind, place="beside a sound file"):
                folder = self.source_folder({"a.safetensors": GOOD})
                make(folder / "b.safetensors")
                self.refused(folder, IMPOSSIBLE, r"b\.safetensors", *says, timeout=10)
            for name in ("config.json", "generation_config.json", "model.safetensors.index.json"):
                with self.subTest(kind=kind, place=name):
                    folder = self.source_folder({"model.safetensors": GOOD},
                                                config=None if name == "config.json" else support.CONFIG)
                    make(folder / name)
                    self.refused(folder, IMPOSSIBLE, name, *says, timeout=10)

    def test_as_the_source_itself(self):
        place = self.place()
        os.mkfifo(place / "pipe.safetensors")
        (place / "loop.safetensors").symlink_to("loop.safetensors")
        (place / "gone.safetensors").symlink_to("nowhere")
        (place / "zero.safetensors").symlink_to("/dev/zero")
        (place / "file").write_bytes(GOOD)
        (place / "empty.safetensors").mkdir()
        for source, *says in ((place / "pipe.safetensors", "not a regular file|pipe"), (place / "loop.safetensors", "loop|links"),
                              (place / "gone.safetensors", "no such file|link"),
                              (place / "zero.safetensors", "not a regular file|device"),
                              (place / "file", r"\.safetensors"), (place / "empty.safetensors", "no .safetensors"),
                              (place / "file" / "model.safetensors", "not a directory|no such file"),
                              (place / "none", "no such file")):
            with self.subTest(source=source.name):
                self.refused(source, IMPOSSIBLE, source.name, *says, folder=place, timeout=10)
        for source in ("/dev/zero", "/dev/null", "/proc/self/mem", ""):
            with self.subTest(source=source):
                done = self.run_on(source, timeout=10)
                self.assert_fails(done, IMPOSSIBLE)

    def test_as_the_definition(self):
        source = self.source_file(model_tensors())
        place = self.place()
        os.mkfifo(place / "pipe.json")
        (place / "loop.json").symlink_to("loop.json")
        (place / "zero.json").symlink_to("/dev/zero")
        (place / "folder.json").mkdir()
        (place / "lfs.json").write_bytes(LFS_POINTER)
        (place / "utf16.json").write_bytes(self.definition.read_text().encode("utf-16"))
        (place / "empty.json").write_bytes(b"")
        for path in sorted(place.iterdir()):
            with self.subTest(definition=path.name):
                self.refused(source, (CORRUPT, IMPOSSIBLE), path.name, definition=path, timeout=10)


class SideFiles(SourceCase):
    """config.json and the index, which are as easily something else."""

    def test_config_json(self):
        config = {"model_type": "llama", "tie_word_embeddings": False}
        text = json.dumps(config)
        kinds = {
            "LFS pointer": (LFS_POINTER, IMPOSSIBLE, "lfs"),
            "LFS pointer with CRLF": (LFS_POINTER.replace(b"\n", b"\r\n"), IMPOSSIBLE, "lfs"),
            "web page": (b"<!doctype html><html></html>", (CORRUPT, IMPOSSIBLE), "web page|html|json"),
            "text of the hub": (b"Entry not found", (CORRUPT, IMPOSSIBLE), "json"),
            "empty": (b"", CORRUPT, "empty|json"),
            "zeros": (bytes(200), CORRUPT, "nul|zero|json"),
            "UTF-16, from a Windows editor": (text.encode("utf-16"), CORRUPT, "utf-?16|utf-?8"),
            "UTF-16 without a mark": (text.encode("utf-16-le"), CORRUPT, "utf-?16|utf-?8|nul"),
            "byte order mark": (b"\xef\xbb\xbf" + text.encode(), CORRUPT, "byte order mark|bom"),
            "Latin-1": ('{"name": "Gr\u00fc\u00dfe"}'.encode("latin-1"), CORRUPT, "utf-?8|json"),
            "cut short": (text[:-9].encode(), CORRUPT, "json"),
            "two objects": (text.encode() * 2, CORRUPT, "json"),
            "comments": (b'{"a": 1 // one\n}', CORRUPT, "json"),
            "trailing comma": (b'{"a": 1,}', CORRUPT, "json"),
            "list": (b"[]", CORRUPT, "object|json"),
            "string": (b'"llama"', CORRUPT, "object|json"),
            "merge conflict": (b'<<<<<<< HEAD\n{"a": 1}\n=======\n{"a": 2}\n>>>>>>> main\n', (CORRUPT, IMPOSSIBLE), "json"),
        }
        for kind, (content, code, *says) in kinds.items():
            with self.subTest(kind=kind):
                source = self.source_folder({"model.safetensors": GOOD}, config=content)
                self.refused(source, code, r"config\.json", *says)

    def test_config_json_of_90000_levels(self):
        """Valid, if nothing that Python would read; a reader that recurses ends with a signal."""
        source = self.source_folder({"model.safetensors": GOOD}, config=b'{"a":' * 90_000 + b"1" + b"}" * 90_000)
        done = self.run_on(source)
        self.assertIn(done.returncode, (DONE, CORRUPT), done.stderr)

    def test_config_json_of_a_gigabyte(self):
        source = self.source_folder({"model.safetensors": GOOD})
        os.truncate(source / "config.json", 1 << 30)
        self.refused_cheaply(source, CORRUPT, r"config\.json", "bytes")

    def test_config_json_beside_a_single_file_counts_too(self):
        source = self.source_file(GOOD)
        (source.parent / "config.json").write_bytes(LFS_POINTER)
        self.refused(source, IMPOSSIBLE, r"config\.json", "lfs")

    def test_index(self):
        index = json.dumps(index_of({"model.safetensors": model_tensors()}))
        kinds = {
            "LFS pointer": (LFS_POINTER, IMPOSSIBLE, "lfs"),
            "web page": (b"<!doctype html><html></html>", (CORRUPT, IMPOSSIBLE), "web page|html|json"),
            "JSON of an API": (b'{"error":"Invalid username or password."}', (CORRUPT, IMPOSSIBLE), "weight_map"),
            "empty": (b"", CORRUPT, "empty|json"),
            "zeros": (bytes(100), CORRUPT, "nul|zero|json"),
            "UTF-16": (index.encode("utf-16"), CORRUPT, "utf-?16|utf-?8"),
            "cut short": (index[:-20].encode(), CORRUPT, "json"),
            "list": (b"[]", CORRUPT, "object|json"),
            "nested": (b"[" * 90_000, CORRUPT, "nested|object|json"),
        }
        for kind, (content, code, *says) in kinds.items():
            with self.subTest(kind=kind):
                source = self.source_folder({"model.safetensors": GOOD}, index=content)
                self.refused(source, code, r"model\.safetensors\.index\.json", *says)
                self.refused(source / "model.safetensors.index.json", code, r"model\.safetensors\.index\.json", *says)


if __name__ == "__main__":
    unittest.main()
