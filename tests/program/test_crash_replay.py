"""A power cut at any moment leaves OUT absent, old or complete, and the next run of the command puts everything right.

record_shim.cpp records what the program does to the disk. Every beginning of that log is a moment at which the power may go,
and a model of a file system says what may be found then. The model promises only what POSIX does, plus the order in which
journals keep the changes of one folder:

- fsync of a file makes its data durable. Of data that was not synced nothing may be there, or all, or its length alone with
  zeros; files differ from each other in that.
- fsync of a folder makes the changes of its names and its attributes durable. Those that were not synced are lost from some
  moment on, at another moment in every folder. A rename between two folders happens in both or in neither, so that a folder's
  fsync brings along what the rename needs of the other one.
- A name may reach the disk before the data of its file does, and a file's fsync does not make its name durable.

File systems with a journal keep more than that. Standard library and numpy only.
"""
import copy
import itertools
import json
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys
import unittest

import support
from support import bf16, compress, words
from test_compress_command import CompressCase

SHIM = os.environ.get("WEIGHTPRESS_RECORD_SHIM", "")
SEED = int(os.environ.get("WEIGHTPRESS_SEED", "1"))
EXCHANGE = 2  # a flag of renameat2
KEEP_SIZE = 1  # a mode of fallocate
FOLDER = None  # what a tree, {path: content}, has for a folder; bytes stand for a file, text for a link's target
MAX_CUTS = 256  # combinations of "lost from here on" that are tried at one moment; when there are more, a random choice
NUM_MIXED = 4  # and states at one moment in which the fate of every unsynced write is drawn
NUM_RERUNS = 12


def read_log(path):
    """The records: [(operation, argument, ...)], with the bytes of a write in place of their number."""
    data, position, records = path.read_bytes(), 0, []
    while position < len(data):
        end = data.index(b"\n", position)
        operation, *arguments = data[position:end].decode().split(" ")
        position = end + 1
        if operation == "write":
            size = int(arguments[2])
            arguments = [arguments[0], int(arguments[1]), data[position:position + size]]
            position += size
        else:
            arguments = [READERS[operation][i](word) for i, word in enumerate(arguments)]
        records.append((operation, *arguments))
    return records


def hex_bytes(word):
    return b"" if word == "-" else bytes.fromhex(word)


def hex_text(word):
    return os.fsdecode(hex_bytes(word))


READERS = {"create": (hex_text, str), "mkdir": (hex_text, str), "symlink": (hex_text, str, hex_text), "link": (str, hex_text),
           "rename": (hex_text, hex_text, int), "remove": (hex_text,), "setxattr": (str, hex_text, hex_bytes),
           "removexattr": (str, hex_text), "truncate": (str, int), "allocate": (str, int, int, int), "sync": (str,),
           "syncall": ()}


def describe(record):
    return " ".join(f"({len(word)} bytes)" if isinstance(word, bytes) else str(word) for word in record)


def inode_number(path):
    status = os.lstat(path)
    return f"{status.st_dev}:{status.st_ino}"


class Inode:
    def __init__(self, content):
        self.content = content  # as in a tree; of a file what is durable
        self.edits = []  # of a file: changes of the data since the last fsync
        self.entries = {}  # of a folder: {name: Inode} as durable
        self.live_entries = {}  # and as running programs see it
        self.attributes = {}
        self.cache = {}


class Change:
    """A change of names or attributes that is not durable yet, all of it or nothing."""

    def __init__(self, *parts):
        self.parts = parts  # (Inode, "entries" or "attributes", name, the value or None for a removal)
        self.touches = {part[0] for part in parts}


def apply_change(change, tables):
    for inode, which, name, new in change.parts:
        table = tables(inode, which)
        if new is None:
            table.pop(name, None)
        else:
            table[name] = new


def apply_edit(content, edit, lost=False):
    """An edit is a new size or None, an offset, and the bytes put there. Of lost ones the size alone remains."""
    size, offset, data = edit
    end = max(len(content), offset + len(data)) if size is None else size
    del content[end:]
    content.extend(bytes(end - len(content)))
    if not lost:
        content[offset:offset + len(data)] = data


class FileSystem:
    """What is below root, as running programs see it and as it may be after a power cut."""

    def __init__(self, root):
        """Takes over what is on the disk, as durable."""
        self.path = str(root)
        self.pending = []
        self.numbers = {}
        self.contents = {}
        self.root = self.load(root)

    def load(self, path):
        if path.is_symlink():
            inode = Inode(os.readlink(path))
        elif path.is_dir():
            inode = Inode(FOLDER)
            inode.entries = {child.name: self.load(child) for child in path.iterdir()}
            inode.live_entries = dict(inode.entries)
        else:
            inode = Inode(path.read_bytes())
        inode.attributes = read_attributes(path)
        self.numbers[inode_number(path)] = inode
        return inode

    def folder_and_name(self, path):
        if not path.startswith(self.path + "/"):
            raise AssertionError(f"{path} was moved into {self.path} or out of it: the model cannot follow")
        *above, name = path[len(self.path) + 1:].split("/")
        folder = self.root
        for part in above:
            folder = folder.live_entries[part]
        return folder, name

    def change_names(self, *changes):
        """changes: (path, Inode or None)"""
        parts = []
        for path, inode in changes:
            folder, name = self.folder_and_name(path)
            parts.append((folder, "entries", name, inode))
        change = Change(*parts)
        apply_change(change, lambda inode, _: inode.live_entries)
        self.pending.append(change)

    def run(self, record):
        operation, *arguments = record
        if operation in ("create", "mkdir", "symlink"):
            path, number = arguments[:2]
            # A file begins empty, whatever had its number before.
            inode = Inode({"create": b"", "mkdir": FOLDER, "symlink": arguments[-1]}[operation])
            self.numbers[number] = inode
            if path:
                self.change_names((path, inode))
        elif operation == "link":
            self.change_names((arguments[1], self.numbers[arguments[0]]))
        elif operation == "remove":
            self.change_names((arguments[0], None))
        elif operation == "rename":
            before, after, flags = arguments
            moved, there = (folder.live_entries.get(name) for folder, name in map(self.folder_and_name, (before, after)))
            if moved is not there:  # two names of one file: nothing happens
                self.change_names((before, there if flags & EXCHANGE else None), (after, moved))
        elif operation == "syncall":
            for number in self.numbers:
                self.sync(self.numbers[number])
        elif operation == "sync":
            self.sync(self.numbers[arguments[0]])
        elif operation in ("setxattr", "removexattr"):
            number, name, *new = arguments
            self.pending.append(Change((self.numbers[number], "attributes", name, new[0] if new else None)))
        else:
            self.edit(operation, self.numbers[arguments[0]], *arguments[1:])

    def edit(self, operation, inode, *arguments):
        if operation == "write":
            inode.edits.append((None, *arguments))
        elif operation == "truncate":
            inode.edits.append((arguments[0], 0, b""))
        else:
            mode, offset, size = arguments
            if mode & ~KEEP_SIZE:
                raise AssertionError(f"fallocate with mode {mode}: the model does not know it")
            if not mode & KEEP_SIZE:
                inode.edits.append((None, offset + size, b""))
        inode.cache = {}

    def sync(self, inode):
        if inode.edits:
            inode.content = self.content(inode, "kept")
            inode.edits, inode.cache = [], {}
        needed, durable = {inode}, set()
        for change in reversed(self.pending):
            if change.touches & needed:
                needed |= change.touches
                durable.add(change)
        for change in self.pending:
            if change in durable:
                apply_change(change, getattr)
        self.pending = [change for change in self.pending if change not in durable]

    def content(self, inode, fate):
        """What a file holds when its unsynced data has this fate: kept, lost, zeros, or a Random that decides for each."""
        if not inode.edits or fate == "lost":
            return inode.content
        if fate in inode.cache:
            return inode.cache[fate]
        mixed = isinstance(fate, random.Random)
        content = bytearray(inode.content)
        for edit in inode.edits:
            edit_fate = fate.choice(("kept", "lost", "zeros")) if mixed else fate
            if edit_fate != "lost":
                apply_edit(content, edit, lost=edit_fate == "zeros")
        content = bytes(content)
        if not mixed:
            # Equal contents are one object: most comparisons of trees need not look at the bytes.
            content = inode.cache[fate] = self.contents.setdefault(content, content)
        return content

    def cut(self, cuts):
        """The changes that are on the disk if every inode's are lost from its cut on."""
        position, blocked, kept = dict.fromkeys(cuts, 0), set(), []
        for change in self.pending:
            if change.touches & blocked or any(position[inode] >= cuts[inode] for inode in change.touches):
                blocked |= change.touches
            else:
                kept.append(change)
            for inode in change.touches:
                position[inode] += 1
        return kept

    def states(self, choice):
        """Every State that is tried at this moment; choice: a Random."""
        limits = {}
        for change in self.pending:
            for inode in change.touches:
                limits[inode] = limits.get(inode, 0) + 1
        if math.prod(limit + 1 for limit in limits.values()) <= MAX_CUTS:
            all_cuts = itertools.product(*(range(limit + 1) for limit in limits.values()))
        else:
            all_cuts = [list(limits.values()), [0] * len(limits)]
            all_cuts += [[choice.choice((0, limit)) for limit in limits.values()] for _ in range(MAX_CUTS // 4)]
            all_cuts += [[choice.randint(0, limit) for limit in limits.values()] for _ in range(MAX_CUTS * 3 // 4)]
        unsynced = any(inode.edits for inode in self.numbers.values())
        for cuts in all_cuts:
            changes = self.cut(dict(zip(limits, cuts)))
            for fate in ("kept", "lost", "zeros") if unsynced else ("kept",):
                yield State(self, changes, fate)
        for _ in range(NUM_MIXED if unsynced else 0):
            cuts = {inode: choice.randint(limit // 2, limit) for inode, limit in limits.items()}
            yield State(self, self.cut(cuts), choice)

    def everything(self):
        """What running programs see."""
        return State(self, self.pending, "kept")

    def nothing_but(self, inode):
        """Unsynced changes of this folder alone are on the disk, and no unsynced data."""
        return State(self, self.cut({other: math.inf if other is inode else 0
                                     for change in self.pending for other in change.touches}), "lost")


class State:
    """What is on the disk after a power cut. Valid until the FileSystem runs its next record."""

    def __init__(self, files, changes, fate):
        self.files, self.changes, self.fate = files, changes, fate
        self.tables = {}
        for change in changes:
            apply_change(change, self.changed_table)

    def changed_table(self, inode, which):
        if (inode, which) not in self.tables:
            self.tables[inode, which] = dict(getattr(inode, which))
        return self.tables[inode, which]

    def table(self, inode, which):
        return self.tables.get((inode, which), getattr(inode, which))

    def walk(self):
        """(path below root, Inode) of everything; folders before what is in them."""
        stack = [("", self.files.root)]
        while stack:
            prefix, folder = stack.pop()
            for name, inode in self.table(folder, "entries").items():
                yield prefix + name, inode
                if inode.content is FOLDER:
                    stack.append((f"{prefix}{name}/", inode))

    def tree(self):
        return {path: inode.content if not isinstance(inode.content, bytes) else self.files.content(inode, self.fate)
                for path, inode in self.walk()}

    def attributes(self):
        found = {path: self.table(inode, "attributes") for path, inode in self.walk()}
        return {path: attributes for path, attributes in found.items() if attributes}

    def __str__(self):
        lost = [name for change in self.files.pending if change not in self.changes for _, _, name, _ in change.parts]
        fate = self.fate if isinstance(self.fate, str) else "mixed"
        return f"unsynced data {fate}, changes lost of: {', '.join(lost) or 'nothing'}"


def read_attributes(path):
    try:
        return {name: os.getxattr(path, name, follow_symlinks=False)
                for name in os.listxattr(path, follow_symlinks=False) if name.startswith("user.")}
    except OSError:
        return {}


def read_disk(root):
    """The tree and the attributes below root."""
    tree, attributes = {}, {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        tree[name] = os.readlink(path) if path.is_symlink() else FOLDER if path.is_dir() else path.read_bytes()
        if found := read_attributes(path):
            attributes[name] = found
    return tree, attributes


def write_disk(root, tree, attributes):
    """Makes root hold exactly this, and stay the folder it is."""
    for path in root.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    for name, content in sorted(tree.items()):
        if content is FOLDER:
            (root / name).mkdir()
        elif isinstance(content, str):
            (root / name).symlink_to(content)
        else:
            (root / name).write_bytes(content)
    for name, values in attributes.items():
        for key, data in values.items():
            os.setxattr(root / name, key, data, follow_symlinks=False)


def by_top_name(tree):
    result = {}
    for path, content in tree.items():
        result.setdefault(path.split("/")[0], {})[path] = content
    return result


class Rule:
    """OUT is absent, old or complete. With a file as OUT that holds for each file beside it too, and they are new when OUT is:
    they take their places before it does."""

    def __init__(self, root, out, old, new, records):
        self.out, self.old, self.new, self.all_new = out, by_top_name(old), by_top_name(new), new
        # A file system that cannot exchange two folders leaves OUT absent for a moment.
        moved_away = any(record[0] == "rename" and record[1] == f"{root}/{out}" and not record[3] & EXCHANGE
                         for record in records)
        self.may_be_absent = out not in self.old or moved_away

    def broken(self, tree, finished):
        """What is wrong, or nothing. finished: the program has said that it is done."""
        found = by_top_name(tree)
        for name in {self.out, *self.old, *self.new}:
            content = found.get(name)
            if content is None:
                if name == self.out and not self.may_be_absent:
                    return f"{name} is gone"
            elif content not in (self.old.get(name), self.new.get(name)):
                return f"{name} is neither old nor complete"
            if content != self.new.get(name) and (finished or self.is_new(found)):
                return f"{name} is not complete, but " + ("the run was done" if finished else f"{self.out} is")
        return None

    def is_new(self, found):
        return found.get(self.out) == self.new[self.out]


def without_syncs(records, number):
    return [record for record in records if record != ("sync", number) and record[0] != "syncall"]


def violations(before, records, rule, choice):
    """(number of records that had run, what is wrong), for every state that breaks the rule. before: a FileSystem."""
    files = copy.deepcopy(before)
    for moment in range(len(records) + 1):
        if moment:
            files.run(records[moment - 1])
        for state in files.states(choice):
            if wrong := rule.broken(state.tree(), finished=moment == len(records)):
                last = describe(records[moment - 1]) if moment else "nothing"
                yield moment, f"{wrong}: power cut after record {moment} of {len(records)} ({last}), {state}"


class RecordCase(CompressCase):
    def setUp(self):
        if not SHIM:
            self.skipTest("WEIGHTPRESS_RECORD_SHIM is not set: run this through ctest")
        super().setUp()
        self.root = pathlib.Path(os.path.realpath(self.work)) / "root"
        self.root.mkdir()
        self.log = self.work / "log"

    def recording(self):
        self.log.unlink(missing_ok=True)
        return {**os.environ, "LD_PRELOAD": SHIM, "WP_RECORD_ROOT": str(self.root), "WP_RECORD_LOG": str(self.log)}

    def assert_tree(self, tree, expected, message):
        """Without the bytes in the message."""
        names = [name for name in sorted({*tree, *expected}) if tree.get(name, 0) != expected.get(name, 0)]
        self.assertEqual(names, [], message)

    def assert_log_explains_the_disk(self, before, records):
        files = copy.deepcopy(before)
        for record in records:
            files.run(record)
        tree, attributes = read_disk(self.root)
        self.assert_tree(files.everything().tree(), tree, "the disk is not what the log says: an operation was not recorded")
        self.assertEqual(files.everything().attributes(), attributes)


class PowerCuts(RecordCase):
    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}")

    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        # One buffer is large enough to be written by two threads at once.
        self.source = self.model({"embed.weight": bf16(words(1, 2_200_000))})

    def compress(self, out, options, **keywords):
        return compress(self.source, self.root / out, self.definition, "--threads", 2, *options, **keywords)

    def check(self, out, *options):
        """Everything about one command, with what is in root now as the disk before it."""
        old, attributes = read_disk(self.root)
        self.assert_done(self.compress(out, options))
        new, _ = read_disk(self.root)
        write_disk(self.root, old, attributes)
        before = FileSystem(self.root)
        before.contents = {content: content for content in new.values() if isinstance(content, bytes)}
        self.assert_done(self.compress(out, options, env=self.recording()))
        self.assert_tree(read_disk(self.root)[0], new, "the program does something else under the shim")
        numbers = {path: inode_number(self.root / path) for path in ("", *(path for path in new if new[path] != b""))}
        records = read_log(self.log)
        self.assert_log_explains_the_disk(before, records)

        rule = Rule(self.root, out, old, new, records)
        if wrong := [text for _, text in itertools.islice(violations(before, records, rule, self.random), 3)]:
            self.fail("\n".join(wrong))
        self.assert_every_sync_is_needed(before, records, rule, numbers)
        self.assert_next_run_puts_it_right(before, records, rule, options)

    def assert_every_sync_is_needed(self, before, records, rule, numbers):
        """The rule and the model notice it if one file or folder of the output, or the folder above it, is never synced."""
        for path, number in numbers.items():
            with self.subTest(never_synced=path or "the folder above OUT"):
                first = next(violations(before, without_syncs(records, number), rule, self.random), None)
                self.assertIsNotNone(first, "a missing fsync is not noticed")
                if path == "" and rule.old and not rule.may_be_absent and before.root.entries[rule.out].content is FOLDER:
                    # The old folder must not lose files before it is certain that it is not OUT any more.
                    self.assertRegex(first[1], "neither old nor complete")

    def assert_next_run_puts_it_right(self, before, records, rule, options):
        files = copy.deepcopy(before)
        spread = {round(i * len(records) / (NUM_RERUNS - 1)) for i in range(NUM_RERUNS)}
        for moment in range(len(records) + 1):
            if moment:
                files.run(records[moment - 1])
            if moment in spread:
                self.rerun(self.random.choice(list(files.states(self.random))), moment, rule, options)
            # When OUT has its new name: everything else that was not synced is lost.
            if any(record[0] == "rename" for record in records[max(moment - 2, 0):moment]) or moment == len(records):
                self.rerun(files.nothing_but(files.root), moment, rule, options)

    def rerun(self, state, moment, rule, options):
        tree = state.tree()
        write_disk(self.root, tree, state.attributes())
        with self.subTest(moment=moment, state=str(state)):
            done = self.compress(rule.out, options)
            if rule.is_new(by_top_name(tree)) and "--force" not in options:
                self.assert_fails(done, 2, "--force")
                self.assertIsNone(rule.broken(read_disk(self.root)[0], finished=True))
            else:
                self.assert_done(done)
                self.assert_tree(read_disk(self.root)[0], rule.all_new, "something else is left")

    def test_new_folder(self):
        self.check("out")

    def test_folder_that_replaces_an_earlier_output(self):
        self.assert_done(compress(self.model(name="earlier"), self.root / "out", self.definition))
        self.check("out", "--force")

    def test_folder_that_replaces_other_files(self):
        try:
            os.setxattr(self.root, "user.weightpress.test", b"")
        except OSError:
            self.skipTest("no extended attributes here: the next run would not know the old folder")
        (self.root / "out").mkdir()
        for name in ("a", "b", "c"):
            (self.root / "out" / name).write_text("old")
        self.check("out", "--force")

    def use_single_file(self):
        if not support.mentions(support.run("compress", "--help").stdout, "comfyui"):
            self.skipTest("this version does not write single files")
        definition = json.loads(self.definition.read_text())
        self.definition.write_text(json.dumps({**definition, "layout": "comfyui"}))

    def test_new_file(self):
        self.use_single_file()
        self.check("x.safetensors")

    def test_file_that_replaces_an_earlier_output(self):
        self.use_single_file()
        self.assert_done(compress(self.model(name="earlier"), self.root / "x.safetensors", self.definition))
        self.check("x.safetensors", "--force")


# Every call that the shim knows and Python has.
CALLS = r"""
import ctypes, os, shutil, threading
AT_FDCWD, EXCHANGE, SYMLINK_FOLLOW = -100, 2, 0x400
libc = ctypes.CDLL(None, use_errno=True)
def renameat2(a, b, flags):
    assert libc.renameat2(AT_FDCWD, a, AT_FDCWD, b, flags) == 0, os.strerror(ctypes.get_errno())

new = os.open("a", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
os.write(new, b"0123456789")
os.pwrite(new, b"ab", 20)
os.writev(new, [b"xy", b"", b"z"])
os.pwritev(new, [b"12", b"34"], 30)
os.lseek(new, 3, os.SEEK_SET)
os.write(new, b"at three")
os.truncate("a", 33)
os.fsync(new)
os.ftruncate(new, 50)
os.posix_fallocate(new, 40, 30)
libc.fallocate(new, 1, ctypes.c_long(0), ctypes.c_long(1000))
os.close(new)
end = os.open("a", os.O_WRONLY | os.O_APPEND)
os.write(end, b"appended")
os.pwrite(end, b"and more", 1)
os.close(end)
here = os.open(".", os.O_RDONLY)
os.mkdir("folder")
os.mkdir("sub", dir_fd=os.open("folder", os.O_RDONLY))
b = os.open("folder/../b", os.O_WRONLY | os.O_CREAT, 0o644)
a = os.open("a", os.O_RDONLY)
os.copy_file_range(a, b, 10)
os.copy_file_range(a, b, 10, offset_dst=100)
os.lseek(a, 0, os.SEEK_SET)
os.sendfile(b, a, None, 30)
os.fdatasync(b)
shutil.copyfile("a", "folder/copy")
os.symlink("../a", "folder/link")
os.close(os.open("folder/link", os.O_WRONLY | os.O_CREAT))
os.link("b", "folder/hard")
os.rename("b", "folder/hard")
os.rename("folder/hard", "folder/sub/moved", src_dir_fd=here)
os.symlink("nowhere", "c", dir_fd=here)
open("d", "w").write("old")
open("d", "w").write("new")
os.replace("d", "c")
renameat2(b"a", b"folder", EXCHANGE)
os.fsync(here)
try:
    unnamed = os.open("a", os.O_RDWR | os.O_TMPFILE, 0o644)
    os.write(unnamed, b"given a name later")
    assert libc.linkat(AT_FDCWD, b"/proc/self/fd/%d" % unnamed, AT_FDCWD, b"a/named", SYMLINK_FOLLOW) == 0
except OSError:  # not on every file system
    shutil.copyfile("c", "a/named")
shutil.copytree("a", "e", symlinks=True)
os.mkdir("f")
os.rmdir("f")
os.mkdir("g\n\xfc")
os.rename("g\n\xfc", "h i")
shutil.rmtree("e/sub")
os.unlink("e/named")
os.remove("e/link")
libc.remove(b"e/copy")
try:
    for place in ("h i", os.open("h i", os.O_RDONLY)):
        for name in ("user.one", "user.two", "user.three"):
            os.setxattr(place, f"{name}.{type(place)}", b"value")
        os.removexattr(place, f"user.two.{type(place)}")
except OSError:
    pass

# Which of the writes to one place came last only the log can tell.
race = os.open("race", os.O_RDWR | os.O_CREAT, 0o644)
together = threading.Barrier(4)
def writer(data):
    for i in range(1500):
        together.wait()
        os.pwrite(race, data, len(data) * i)
threads = [threading.Thread(target=writer, args=(data,)) for data in (b"1" * 3000, b"2" * 3000, b"3" * 3000, b"4" * 3000)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


class Shim(RecordCase):
    def test_log_has_everything_that_changes_the_disk(self):
        before = FileSystem(self.root)
        done = subprocess.run([sys.executable, "-c", CALLS], cwd=self.root, env=self.recording(), stderr=subprocess.PIPE,
                              text=True, check=False)
        if "undefined symbol: __" in done.stderr:
            self.skipTest("a shim with a sanitizer cannot be loaded into Python")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_log_explains_the_disk(before, read_log(self.log))


if __name__ == "__main__":
    unittest.main()
