"""JAAS texts, right and wrong: the tests of the parser, and of the comparison with Kafka's own."""

from typing import Final

PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"

# The options of the module; None if Kafka's parser refuses the text.
JAAS_TEXTS: Final[dict[str, dict[str, str] | None]] = {
    f'{PLAIN} required user_alice="secret";': {"user_alice": "secret"},
    f"{PLAIN} required username='ann' password='it\"s';": {"username": "ann", "password": 'it"s'},
    f"{PLAIN} required username=ann password=s3-cr_et$.x;": {"username": "ann", "password": "s3-cr_et$.x"},
    f"{PLAIN} REQUISITE;": {},
    f"{PLAIN} Sufficient a=b;": {"a": "b"},
    f"{PLAIN}\n  required\n  a=b\n  c=d;": {"a": "b", "c": "d"},
    f'{PLAIN} required a="b" /* a comment; */ c="d"; // the end': {"a": "b", "c": "d"},
    f'{PLAIN} required a="x\\"y" b="\\\\" c="\\t\\n\\101\\18\\400";': {
        "a": 'x"y',
        "b": "\\",
        "c": "\t\nA\x018\x200",
    },
    f'{PLAIN} required a="with space;=" b="//no comment";': {"a": "with space;=", "b": "//no comment"},
    f'{PLAIN} required a = "b" ;': {"a": "b"},
    f'{PLAIN} required "a"="b";': {"a": "b"},
    f'{PLAIN} required a="1" a="2";': {"a": "2"},
    f'{PLAIN} required a="Grüße 🔑";': {"a": "Grüße 🔑"},
    f"{PLAIN} required a=Grüße;": {"a": "Grüße"},
    f'{PLAIN} required a="";': {"a": ""},
    f"{PLAIN} required a='unclosed\n;": {"a": "unclosed"},
    f'{PLAIN} required a=b-1 c="-";': {"a": "b-1", "c": "-"},
    f"{PLAIN} required a=/ b\n c;": {"a": "c"},
    f"{PLAIN} required a=12345;": None,
    f"{PLAIN} required a=-5;": None,
    f"{PLAIN} required a=1password;": None,
    f"{PLAIN} required a=pass#word;": None,
    f'{PLAIN} required a="b"': None,
    f"{PLAIN} required a;": None,
    f"{PLAIN} required a=;": None,
    f"{PLAIN} needed a=b;": None,
    f"{PLAIN};": None,
    PLAIN: None,
    "": None,
    "// nothing": None,
    f"{PLAIN} required a==b;": None,
    f'{PLAIN} required a="b",c="d";': None,
}
