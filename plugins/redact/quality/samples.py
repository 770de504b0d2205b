"""Generates labelled samples of personal data and of similar-looking text with Faker: one JSON object per line.

Each has a text, the locale, the kind of data in it ("" for none) and, if there is any, the value as it appears in the
text. The script knows nothing about the redactor's rules. The same version of Faker gives the same samples.
"""

import json
import random
import sys

from faker import Faker

LOCALES = ["en_US", "en_GB", "de_DE", "fr_FR", "es_ES", "it_IT", "nl_NL", "pt_BR", "ja_JP", "ru_RU"]

ANY = [
    "The customer wrote that it is {}.",
    "I found {} in the ticket, shall I use that?",
    "user: {}",
    "Please update the profile with {} and tell me when it is done.",
    '{{"role": "tool", "content": "lookup returned {}"}}',
    '{{"messages": [{{"role": "user", "content": "my data: {}, thanks"}}]}}',
    "| 7 | {} | active |",
    "name,value\nfirst,{}\n",
    "- {}\n- see above",
    "({})",
]

PHONE = [
    "You can reach me at {} after five.",
    "Call {} if the flight is late.",
    "My number is {}.",
    '{{"phone": "{}"}}',
    '{{"customer": {{"mobile": "{}", "city": "x"}}}}',
    "Tel: {}",
    "Phone: {}\nFax: none",
    "send an SMS to {} please",
]

NUMBER = {
    "ssn": ["my SSN is {}", '{{"ssn": "{}"}}', "Social Security Number: {}", "The applicant gave {} as social security number."] + ANY,
    "card": ["Card number: {}", '{{"card_number": "{}"}}', "charge it to {} please", "the visa {} was declined"] + ANY,
    "iban": ["IBAN: {}", '{{"iban": "{}"}}', "transfer it to {} today"] + ANY,
    "ip": ["connection from {} refused", '{{"remote_addr": "{}"}}', "ssh root@{}", "http://{}/admin", "ping {}", "{} - - \"GET / HTTP/1.1\" 200"] + ANY,
    "email": ["Contact: {}", '{{"email": "{}"}}', "mailto:{}", "write to <{}>.", "From: {}\nTo: x", "cc {};"] + ANY,
    "mac": ["ether {}", '{{"mac": "{}"}}', "device {} joined"] + ANY,
}

NOTHING = [
    "order {} has shipped", '{{"order_id": "{}"}}', "commit {}", "id: {}", "see {} for details", '{{"id": "{}", "status": "ok"}}', "version {}",
    "build {} failed", "Invoice {} is due.", "tracking number {}", "| {} | done |", "result: {}",
]


def spaced(digits, rng):
    """A card or IBAN in groups of four, as people write it, or in one."""
    form = rng.randrange(3)
    if form == 0:
        return digits
    sep = " " if form == 1 else "-"
    if len(digits) == 15 and digits[:2] in ("34", "37"):
        return sep.join([digits[:4], digits[4:10], digits[10:]])
    return sep.join(digits[i : i + 4] for i in range(0, len(digits), 4))


def values(fake, rng):
    """Pairs of a kind and a value."""
    yield "email", fake.email()
    yield "email", fake.ascii_company_email()
    yield "email", fake.free_email()
    yield "card", spaced(fake.credit_card_number(), rng)
    iban = fake.iban()
    yield "iban", iban if rng.random() < 0.5 else " ".join(iban[i : i + 4] for i in range(0, len(iban), 4))
    yield "ip", fake.ipv4_public() if rng.random() < 0.5 else fake.ipv4_private()
    yield "ip", fake.ipv6()
    yield "mac", fake.mac_address()
    yield "phone", fake.phone_number()
    yield "phone", fake.phone_number()


def lookalikes(fake, rng):
    yield fake.sha1()
    yield fake.sha256()
    yield fake.md5()
    yield fake.uuid4()
    yield ".".join(str(rng.randrange(30)) for _ in range(3))
    yield f"{rng.randrange(9)}.{rng.randrange(20)}.{rng.randrange(20)}-rc.{rng.randrange(9)}+{fake.sha1()[:7]}"
    yield str(rng.randrange(10**7, 10**8))
    yield f"{rng.randrange(100,999)}-{rng.randrange(10**6,10**7)}-{rng.randrange(10**6,10**7)}"
    yield f"ORD-{rng.randrange(10**5,10**9)}"
    yield str(fake.unix_time().__int__())
    yield str(int(fake.unix_time() * 1000))
    yield fake.iso8601()
    yield fake.date("%d.%m.%Y") + " " + fake.time()
    yield f"${rng.randrange(1000, 9999)}.{rng.randrange(10,99)}"
    yield fake.file_path(depth=3)
    yield fake.isbn13()
    yield f"{rng.uniform(-90, 90):.6f}, {rng.uniform(-180, 180):.6f}"
    yield fake.color()
    yield f"logo@{rng.randrange(1, 4)}x.png"
    yield f"@app.route('/{fake.word()}')"
    yield f"std::vector<{fake.word()}>::iterator"
    yield f"for (int i = {rng.randrange(100)}; i < {rng.randrange(10**4)}; i += {rng.randrange(9)})"
    yield f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}"
    yield f"{rng.randrange(100, 999)} {rng.randrange(100, 999)} {rng.randrange(100, 999)} EUR"
    yield f"{fake.word()}-{rng.randrange(10)}.{rng.randrange(20)}.{rng.randrange(20)}.tar.gz"
    yield fake.sentence()
    yield "data:image/png;base64," + fake.sha256() + fake.sha256().upper()


def sample(text, locale, kind, value):
    # Within JSON the value must be encoded as JSON.
    if text.startswith("{{"):
        value = json.dumps(value, ensure_ascii=False)[1:-1]
    return {"text": text.format(value), "locale": locale, "kind": kind, "value": value if kind else ""}


def main():
    rounds = int(sys.argv[1])
    out = []
    for n, locale in enumerate(LOCALES):
        fake, rng = Faker(locale), random.Random(n)
        fake.seed_instance(n)
        for _ in range(rounds):
            for kind, value in values(fake, rng):
                templates = PHONE + ANY if kind == "phone" else NUMBER[kind]
                out.append(sample(rng.choice(templates), locale, kind, value))
            for value in lookalikes(fake, rng):
                out.append(sample(rng.choice(NOTHING), locale, "", value))
    fake, rng = Faker("en_US"), random.Random(99)
    fake.seed_instance(99)
    for _ in range(rounds * len(LOCALES)):
        out.append(sample(rng.choice(NUMBER["ssn"]), "en_US", "ssn", fake.ssn()))
    for s in out:
        print(json.dumps(s, ensure_ascii=False))


main()
