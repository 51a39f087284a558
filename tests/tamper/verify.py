"""Verifies what leaves a colibri ledger, without colibri: a page of Python and openssl.

    python3 verify.py KEY FILE...

KEY is a file with one public key a line, as `colibri audit key show` prints it. A FILE is a
.tlog-proof (c2sp.org/tlog-proof), a bundle of `colibri audit export`, or a checkpoint
(c2sp.org/tlog-checkpoint). One line a file: what it proves, or why it is refused; exit 1 if any is.
"""

import base64
import hashlib
import subprocess
import sys
import tempfile


def leaf_hash(record):
    return hashlib.sha256(b"\x00" + record).digest()


def node_hash(left, right):
    return hashlib.sha256(b"\x01" + left + right).digest()


def root_of(leaves):
    """RFC 6962: split after the largest power of two below the number of leaves."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return node_hash(root_of(leaves[:split]), root_of(leaves[split:]))


def root_from_path(leaf, index, size, path):
    """The same split, walked from the leaf upwards: on each level one hash is given."""
    if size == 1:
        assert not path, "the path goes on beyond the root"
        return leaf
    assert path, "the path ends before the root"
    split = 1 << (size - 1).bit_length() - 1
    if index < split:
        return node_hash(root_from_path(leaf, index, split, path[:-1]), path[-1])
    return node_hash(path[-1], root_from_path(leaf, index - split, size - split, path[:-1]))


def decode(text):
    data = base64.b64decode(text, validate=True)
    assert base64.b64encode(data) == text, "base64 in an odd spelling"
    return data


def number(text):
    assert text.isdigit() and str(int(text)).encode() == text, "a number in an odd spelling"
    return int(text)


def ed25519_verifies(public, message, signature):
    # An Ed25519 public key as openssl reads it: a fixed prefix (RFC 8410) and the 32 bytes.
    der = bytes.fromhex("302a300506032b6570032100") + public
    with tempfile.TemporaryDirectory() as folder:
        for name, data in ("key", der), ("message", message), ("signature", signature):
            with open(f"{folder}/{name}", "wb") as file:
                file.write(data)
        verify = ["openssl", "pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-rawin"]
        files = ["-inkey", "key", "-in", "message", "-sigfile", "signature"]
        return subprocess.run(verify + files, cwd=folder, capture_output=True).returncode == 0


def read_keys(lines):
    """`name+id+base64`; the id is the beginning of a hash over name and key."""
    keys = {}
    for line in lines:
        name, key_id, key = line.split(b"+", 2)
        key = decode(key)
        assert len(key) == 33 and key[0] == 1, "not an Ed25519 key"
        assert hashlib.sha256(name + b"\n" + key).digest()[:4].hex().encode() == key_id, "a mistyped key"
        keys[name, bytes.fromhex(key_id.decode())] = key[1:]
    return keys


def open_checkpoint(note, keys):
    """Origin, size and root, if a known key of that name signed them."""
    text, signatures = note[: note.rindex(b"\n\n") + 1], note[note.rindex(b"\n\n") + 2 :]
    origin, size, root, rest = text.split(b"\n", 3)
    assert not rest and signatures.endswith(b"\n"), "not a checkpoint"
    signed = False
    for line in signatures[:-1].split(b"\n"):
        dash, name, signature = line.split(b" ")
        assert dash == "—".encode(), "not a signature line"
        signature = decode(signature)
        key = keys.get((name, signature[:4]))
        if key:
            assert ed25519_verifies(key, text, signature[4:]), "the signature is wrong"
            signed |= name == origin
    assert signed, "no known key of the log's name signed it"
    root = decode(root)
    assert len(root) == 32, "not a root"
    return origin, number(size), root


def verify_proof(text, keys):
    head, checkpoint = text.split(b"\n\n", 1)
    title, extra, index, *path = head.split(b"\n")
    assert title == b"c2sp.org/tlog-proof@v1" and extra.startswith(b"extra ") and index.startswith(b"index ")
    record, index, path = decode(extra[6:]), number(index[6:]), [decode(line) for line in path]
    assert all(len(step) == 32 for step in path), "not a hash"
    origin, size, root = open_checkpoint(checkpoint, keys)
    assert index < size, "no such record"
    assert root_from_path(leaf_hash(record), index, size, path) == root, "another root"
    return f"record {index} is in {origin.decode()} at {size}: {record.decode()}"


def verify_bundle(text, keys):
    body, checkpoint = text.split(b"\n\n", 1)
    title, announced, count, *records = body.split(b"\n")
    origin, size, root = open_checkpoint(checkpoint, keys)
    assert title == b"colibri/ledger-bundle@v1" and announced == b"origin " + origin, "another log"
    assert count == b"records %d" % size and len(records) == size, "not all records"
    assert root_of([leaf_hash(record) for record in records]) == root, "another root"
    return f"{size} records of {origin.decode()}"


def verify(text, keys):
    if text.startswith(b"c2sp.org/tlog-proof@"):
        return verify_proof(text, keys)
    if text.startswith(b"colibri/ledger-bundle@"):
        return verify_bundle(text, keys)
    origin, size, _ = open_checkpoint(text, keys)
    return f"checkpoint of {origin.decode()} at {size}"


def main(key_path, *paths):
    with open(key_path, "rb") as file:
        keys = read_keys(file.read().splitlines())
    all_hold = True
    for path in paths:
        with open(path, "rb") as file:
            text = file.read()
        try:
            print(f"{path}: valid: {verify(text, keys)}")
        except (AssertionError, ValueError) as error:
            print(f"{path}: refused: {error}")
            all_hold = False
    sys.exit(not all_hold)


if __name__ == "__main__":
    main(*sys.argv[1:])
