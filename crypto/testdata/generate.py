"""Writes the test vectors of package crypto from docs/format.md alone, with an implementation that shares no code with
the package: python3 generate.py (needs the package "cryptography"). Run it again only when a version is added."""

import base64
import hashlib
import hmac
import pathlib

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

HERE = pathlib.Path(__file__).parent
HEAD = "# Written by generate.py. Blocks of name: value lines; binary values are hexadecimal.\n"


def seq(first, n=32):
    return bytes((first + i) % 256 for i in range(n))


def lp(x):
    x = x.encode() if isinstance(x, str) else x
    return len(x).to_bytes(8, "big") + x


def prf(key, label, purpose, *parts):
    return hmac.new(key, b"".join(map(lp, (label, purpose, *parts))), hashlib.sha256).digest()


def token(key, purpose, *parts):
    return prf(key, "ckptd/token/1", purpose, *parts)[:16]


def derive(key, purpose, *parts):
    return prf(key, "ckptd/derive/1", purpose, *parts)


def uvarint(v):
    out = b""
    while v >= 0x80:
        out += bytes([v & 0x7F | 0x80])
        v >>= 7
    return out + bytes([v])


def key_id(key):
    return derive(key, "key id")[:8]


def key_line(key, word="ckptd-key-1", kid=None, text=None):
    text = text or base64.urlsafe_b64encode(key).decode().rstrip("=")
    body = f"{word}:{(kid or key_id(key)).hex()}:{text}"
    return f"{body}:{hashlib.sha256(b'ckptd/keyline/1' + body.encode()).digest()[:4].hex()}"


def wrap(root, store, name, kind, plain, salt):
    info = b"ckptd/wrap/1" + bytes([1, kind]) + key_id(root) + store + lp(name)
    okm = HKDF(hashes.SHA512(), 76, salt, info).derive(root)
    sealed = AESGCM(okm[:32]).encrypt(okm[32:44], plain, None)
    return b"cKks" + bytes([1, kind]) + key_id(root) + salt + okm[44:] + sealed


def wrap2(root, store, name, kind, plain, salt):
    info = b"ckptd/wrap/1" + bytes([2, kind]) + key_id(root) + store + lp(name)
    okm = HKDF(hashes.SHA512(), 64, salt, info).derive(root)
    nonce = hashlib.sha256(salt).digest()[:12]
    return b"cKks" + bytes([2, kind]) + key_id(root) + salt + okm[32:] + nonce + AESGCM(okm[:32]).encrypt(nonce, plain, None)


def seal_key(udk, store, purpose, *scope):
    info = b"ckptd/seal/1" + store + lp(purpose) + b"".join(map(lp, scope))
    return HKDF(hashes.SHA256(), 32, None, info).derive(udk)


def envelope(key, store, typ, generation, nonce, place, plain, version=2):
    head = bytes([version, typ]) + generation.to_bytes(4, "big")
    aad = b"ckptd/2" + head + store + place
    return b"cK" + head + nonce + AESGCM(key).encrypt(nonce, plain, aad)


def write(name, blocks):
    text = HEAD
    for block in blocks:
        text += "\n" + "".join(f"{k}: {v.hex() if isinstance(v, bytes) else v}\n" for k, v in block)
    (HERE / name).write_text(text)


ROOT, STORE, TOKEN_KEY, INDEX_KEY = seq(0), seq(0xA0, 16), seq(0x40), seq(0x80)
STORE_UDK, UDK2, UDK5 = seq(0x60), seq(0xC0), seq(0xE0)
CREATED = 1_760_000_000_000
TENANT, USER = "acme", "alice@example.org"
TENANT_TOKEN = token(TOKEN_KEY, "tenant", TENANT)
NAME = f"{TENANT_TOKEN.hex()}/{token(TOKEN_KEY, 'user', TENANT, USER).hex()}"
GONE = f"{TENANT_TOKEN.hex()}/{token(TOKEN_KEY, 'user', TENANT, 'bob').hex()}"


def keys():
    good = key_line(ROOT)
    typo = good[:40] + ("A" if good[40] != "A" else "B") + good[41:]
    rows = [("ok", good), ("ok", key_line(seq(0xF0))), ("format", typo), ("format", good[:-1]), ("format", good + "0"),
            ("format", good.upper()), ("format", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"), ("format", "ckptd-key-1"),
            ("format", key_line(ROOT[:31])), ("format", key_line(ROOT, kid=bytes(8))), ("format", key_line(ROOT, text="!" * 43)),
            # The last character of 43 has two spare bits, which must be zero.
            ("format", key_line(ROOT, text="AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9")),
            ("newer", key_line(ROOT, word="ckptd-key-2")), ("format", key_line(ROOT, word="ckptd-key-x"))]
    secrets = {rows[0][1]: ROOT, rows[1][1]: seq(0xF0)}
    for want, line in rows:
        extra = [("key", secrets[line]), ("id", key_id(secrets[line]))] if want == "ok" else []
        yield [("want", want), ("line", line), *extra]


def entries(wrap):
    store = b"\x01" + uvarint(CREATED) + STORE + TOKEN_KEY + b"\x01" + (1).to_bytes(4, "big") + STORE_UDK
    user = (b"\x01" + uvarint(CREATED + 1) + uvarint(len(TENANT)) + TENANT.encode() + uvarint(len(USER)) + USER.encode()
            + INDEX_KEY + b"\x02" + (2).to_bytes(4, "big") + UDK2 + (5).to_bytes(4, "big") + UDK5)
    rows = [("store", bytes(16), 1, store, seq(0x11)), (NAME, STORE, 2, user, seq(0x22)),
            (GONE, STORE, 3, b"\x01" + uvarint(CREATED + 2), seq(0x33))]
    for name, bound, kind, plain, salt in rows:
        yield [("name", name), ("kind", str(kind)), ("root", ROOT), ("store", bound), ("salt", salt), ("plain", plain),
               ("entry", wrap(ROOT, bound, name, kind, plain, salt))]


def tokens():
    term = derive(TOKEN_KEY, "term", TENANT)
    rows = [("tenant", [TENANT], TENANT_TOKEN), ("user", [TENANT, USER], token(TOKEN_KEY, "user", TENANT, USER)),
            ("user", ["ac", "me" + USER], token(TOKEN_KEY, "user", "ac", "me" + USER)),
            ("index", [TENANT, "status", "failed"], token(term, "term", "status", "failed")),
            ("index", ["other", "status", "failed"], token(derive(TOKEN_KEY, "term", "other"), "term", "status", "failed")),
            ("thread", ["support-42"], token(INDEX_KEY, "thread", "support-42")),
            ("blind", ["id", "step-7"], token(INDEX_KEY, "id", "step-7")),
            ("blind", ["ab", "c"], token(INDEX_KEY, "ab", "c")), ("blind", ["a", "bc"], token(INDEX_KEY, "a", "bc")),
            ("blind", ["task"], token(INDEX_KEY, "task")), ("blind", ["task", ""], token(INDEX_KEY, "task", "")),
            ("derive", ["commit"], derive(INDEX_KEY, "commit")), ("derive", ["part", "\x00\x01"], derive(INDEX_KEY, "part", "\x00\x01"))]
    for call, args, want in rows:
        yield [("call", call), *(("arg", a.encode()) for a in args), ("want", want)]


def envelopes():
    thread, place, nonce = token(INDEX_KEY, "thread", "support-42"), b"\x01" * 37 + seq(1, 24), seq(0x70, 12)
    k5, k2 = seal_key(UDK5, STORE, "thread", thread), seal_key(UDK2, STORE, "thread", thread)

    def row(want, value, key=k5, plain=b"", typ=0x20, at=place, owner="user", purpose="thread", scope=(thread,)):
        out = [("want", want), ("owner", owner), ("purpose", purpose), *(("scope", s) for s in scope), ("type", bytes([typ])),
               ("key", at), ("value", value)]
        return out + [("derived", key), ("plain", plain)] if want == "ok" else out

    good = envelope(k5, STORE, 0x20, 5, nonce, place, b"hello")
    yield row("ok", good, plain=b"hello")
    yield row("ok", envelope(k5, STORE, 0x20, 5, nonce, place, b""))
    yield row("ok", envelope(k2, STORE, 0x20, 2, nonce, place, b"older"), key=k2, plain=b"older")
    unscoped = seal_key(UDK5, STORE, "directory")
    yield row("ok", envelope(unscoped, STORE, 0x10, 5, nonce, place, b"dir"), key=unscoped, plain=b"dir", typ=0x10,
              purpose="directory", scope=())
    shared = seal_key(STORE_UDK, STORE, "store")
    yield row("ok", envelope(shared, STORE, 0x01, 1, nonce, bytes(37), b"meta"), key=shared, plain=b"meta", typ=0x01,
              at=bytes(37), owner="store", purpose="store", scope=())
    yield row("open", good, at=place[:-1])
    yield row("open", good, purpose="directory", scope=())
    yield row("open", good, scope=(thread, b""))
    yield row("open", envelope(k5, seq(0xA1, 16), 0x20, 5, nonce, place, b"hello"))
    yield row("open", good[:4] + (2).to_bytes(4, "big") + good[8:])
    yield row("envelope", good, typ=0x2F)
    yield row("envelope", good[:35])
    yield row("envelope", b"CK" + good[2:])
    yield row("envelope", envelope(k5, STORE, 0x20, 0, nonce, place, b"hello"))
    yield row("envelope", envelope(k5, STORE, 0x20, 5, nonce, place, b"hello", version=0))
    yield row("older", envelope(k5, STORE, 0x20, 5, nonce, place, b"hello", version=1))
    yield row("newer", envelope(k5, STORE, 0x20, 5, nonce, place, b"hello", version=3))
    yield row("destroyed", envelope(k5, STORE, 0x20, 1, nonce, place, b"hello"))
    yield row("destroyed", envelope(k5, STORE, 0x20, 4, nonce, place, b"hello"))
    yield row("unknown", envelope(k5, STORE, 0x20, 6, nonce, place, b"hello"))


for file, blocks in (("keys.txt", keys()), ("entries1.txt", entries(wrap)), ("entries.txt", entries(wrap2)), ("tokens.txt", tokens()),
                     ("envelopes.txt", envelopes())):
    write(file, blocks)
