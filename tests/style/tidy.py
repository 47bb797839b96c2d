"""The style guide, as rules that a machine can hold.

A rule is a pure function from one `Source` (a path and its text) to the violations in it, each a line of the form
`path:line: sentence`. Nothing here reads the disk except `sources`, so a planted violation needs no file: the tests
hand a rule a path and a few lines, and see what it says. Rules about the repository as a whole (symlinks, wheel map,
requirements) take what they compare as arguments, for the same reason; they stand in `style/repository.py`.

Names are resolved through the imports of the file, so `from time import monotonic as now` is caught and a parameter
called `time` is not. What cannot be seen this way (a clock that comes in through a third module) is left to review.
"""

import ast
import builtins
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import PurePosixPath

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
MAX_FILE_BYTES = 200_000

BANNED_NAMES = frozenset({"util", "utils", "helper", "helpers", "common", "manager", "managers", "base", "misc"})

# The packages in which everything decides and nothing happens: time and chance come in as arguments.
PURE_PACKAGES = frozenset({"protocol", "storage", "cluster", "coordinator"})
# The package that people speak to: it has a screen, and the files that it opens are theirs, not a broker's.
COMMAND_PACKAGE = "cli"
# The package of brokers for other people's tests: it keeps them in threads, processes and folders of its own.
TESTING_PACKAGE = "testing"
PACKAGES = PURE_PACKAGES | {"archive", "broker", COMMAND_PACKAGE, TESTING_PACKAGE}

ENTRY_POINT = "trioka/__main__.py"
SOCKETS = "broker/network/server.py"
SOCKET_IO = "broker/network/transport.py"
SOCKET_FILES = frozenset(
    {
        SOCKETS,
        SOCKET_IO,
        "broker/network/channel.py",
        "broker/network/tls/handshake_pool.py",
        "broker/network/listener.py",
        "broker/network/tls/handshakes.py",
        "broker/network/tls/transport.py",
        "broker/peers/link.py",
        "broker/peers/tls_socket.py",
        "broker/security/tls/key_stores.py",
        "broker/security/tls/context.py",
        "broker/metadata/schema_ids.py",
        "broker/security/sasl/http_request.py",
        "broker/security/sasl/issuer_keys.py",
        "broker/security/sasl/token_source.py",
        "cli/client/bearer_token.py",
        "cli/client/connection.py",
        "cli/producer/sender.py",
        "cli/node/sd_notify.py",
        "cli/client/registry_client.py",
        "cli/client/tls.py",
        "cli/client/tls_probe.py",
        "cli/cluster/scrub_report.py",
    }
)
# A broker that a test runs as a child process answers its parent on standard output, the only reader.
PRINTING_FILES = frozenset(
    {"cli/terminal/output.py", "cli/node/log_lines.py", "cli/node/server.py", "testing/nodes/subprocess_main.py"}
)
# Who minds signals, and who sends them: the nodes of a cluster on this machine are stopped, killed and paused by one.
# `testing/nodes/process.py` pauses and kills its child, and that leaves Ctrl-C to the test which it serves.
SIGNALS = frozenset(
    {
        "cli/node/server.py",
        "cli/node/run.py",
        "cli/cluster/local_cluster.py",
        "cli/cluster/command.py",
        "cli/producer/sender.py",
        "testing/nodes/process.py",
        "testing/nodes/subprocess_main.py",
    }
)
FILES = "storage/files/disk.py"
STORE_FILES = "broker/security/tls/store_files.py"  # of keys and certificates, which are the operator's
OPERATOR_FILES = "broker/config/operator_files.py"  # secrets that configuration names; the operator's, not the node's
TEMP_DIR_FILES = "testing/temp_dirs.py"  # folders that a broker under test is given, and that are removed with it
ASYNC_STORAGE = "storage/files/sync.py"
DATA_CLASSES = "protocol/lazy_dataclass.py"

# An import inside a function hides a cycle or a cost. These do neither: each is a library that most processes never
# need, loaded when the first batch asks for it.
LAZY_IMPORTS: Mapping[tuple[str, str], str] = {
    ("trioka/__main__.py", "trioka"): "a broker's start should not wait for click, nor `trioka --help` for a broker",
    (
        "cli/node/server.py",
        "trioka",
    ): "`trioka serve --help` and a wrong flag should not wait for a broker to be loaded",
    ("cli/node/log_lines.py", "trioka"): "as in `cli/node/server.py`",
    (
        "cli/node/server.py",
        "trio",
    ): "it is half of what a broker's start costs, and `trioka serve --help` needs none of it",
    ("cli/node/server.py", "."): "a broker is loaded by what starts one, and `trioka serve --help` starts none",
    ("cli/node/server.py", ".."): "only a cluster of several nodes needs to know how nodes are started and watched",
    ("storage/files/disk.py", "."): "to count pages takes ctypes, which a start should not wait for",
    (
        "cli/terminal/output.py",
        "rich",
    ): "it draws tables on a terminal, and takes longer to load than a command takes to run",
    (
        "cli/topics/decoding.py",
        "trioka",
    ): "only values with a schema need fastavro or protobuf, which may not be installed",
    ("broker/metadata/schema_ids.py", ".."): "only a broker with a schema registry needs HTTP",
    ("cli/topics/registry_decoding.py", "fastavro"): "only values of this type need it, and it may not be installed",
    ("cli/topics/registry_decoding.py", "google"): "only values of this type need it, and it may not be installed",
    ("cli/client/connection.py", "ssl"): "most connections are plain, and should not pay for loading it",
    ("cli/terminal/failure.py", "difflib"): "only a mistake needs a suggestion",
    ("cli/node/run.py", "ctypes"): "only Linux can end a child with its parent",
    ("cli/topics/decoding.py", "."): "only values with a schema of a registry need Python's HTTP client, slow to load",
    ("cli/topics/decoding.py", ".."): "only values with a schema of a registry need Python's HTTP client, slow to load",
    ("cli/client/settings.py", "."): "only a login needs its hashes",
    ("cli/client/login.py", "."): "only a bearer token needs an HTTP client",
    ("cli/client/settings.py", ".."): "only a client.properties needs the broker's reader of properties",
    ("cli/gateway.py", "."): "only a properties file and TLS need the broker's readers of them",
    ("cli/context.py", "."): "only a context with a client.properties needs the broker's reader of properties",
    ("cli/node/dev_security.py", "."): "only --tls needs cryptography, which may not be installed",
    (
        "cli/node/dev_security.py",
        "..",
    ): "only --tls and second starts need more than the standard library",
    ("testing/secured.py", "trioka"): "only TLS needs cryptography, which may not be installed",
    ("broker/config/providers.py", "re2"): "most configurations have no pattern, and starting is a budget",
    ("cli/options.py", "."): "only a shell that completes the name of a group asks for groups",
    ("cli/configs.py", "."): "only a wrong key needs the declarations of all keys, which take a while to load",
    ("cli/explain.py", "."): "only a config key needs the declarations of all keys, which take a while to load",
    ("testing/broker.py", "."): "a test whose broker is a process of its own should not load one into its own, too",
    (
        "testing/clock.py",
        "trio",
    ): "trio.testing takes longer to load than a broker to start, and few tests travel in time",
    ("testing/plugin.py", "."): "pytest loads the plugin for everyone who has trioka, and most sessions want no broker",
    ("broker/logs/formatters.py", "json"): "most starts have nothing to say, and should not wait for it",
    ("broker/config/validation.py", "difflib"): "only a mistake needs a suggestion",
    ("broker/security/sasl/logins.py", "."): "only OAUTHBEARER needs an HTTP client",
    ("protocol/sasl/jwt.py", "cryptography"): "only bearer tokens need it, and it may not be installed",
    ("protocol/sasl/jwks.py", "cryptography"): "only bearer tokens need it, and it may not be installed",
    ("broker/broker.py", "."): "a broker without groups should not load what coordinates them before it serves",
    ("cluster/controller/controller.py", "."): "most families of decisions are not needed before a broker serves",
    (
        "broker/network/listeners.py",
        ".",
    ): "ssl takes longer to load than a broker has to start, and few listeners use it",
    ("broker/network/listeners.py", ".."): "the same",
    ("broker/network/server.py", "."): "the same",
    ("broker/security/tls/listener_check.py", "."): "the same",
    ("broker/security/tls/key_stores.py", "cryptography"): "only stores in PKCS12 need it, and it may not be installed",
    ("broker/security/tls/principal_mapping.py", "re2"): "most listeners have no rules",
    (
        "coordinator/consumer/subscription_pattern.py",
        "re2",
    ): "most brokers never meet a pattern, and starting is a budget",
    ("archive/store.py", "obstore"): "only an archive that is opened needs it, and it may not be installed",
    ("archive/arrow.py", "pyarrow"): "only tables need it, and it may not be installed",
    ("archive/table_sync.py", "pyiceberg"): "only `trioka table` needs it, and it may not be installed",
    ("cli/table/command.py", "."): "only values with a schema need fastavro, which may not be installed",
    ("storage/directory.py", "concurrent"): "a new directory has no logs that threads could load",
    ("protocol/compression.py", "lz4"): "a broker that meets no lz4 batch should not pay for loading the codec",
    ("protocol/compression.py", "snappy"): "a broker that meets no snappy batch should not pay for loading the codec",
    ("protocol/compression.py", "zstandard"): "a broker that meets no zstd batch should not pay for loading the codec",
}

SOCKET_MODULES = frozenset(
    {"asyncio", "ftplib", "http", "select", "selectors", "smtplib", "socket", "socketserver", "ssl", "urllib.request"}
)
SOCKET_NAMES = re.compile(
    r"os\.sendfile|trio\.(socket\b.*|SocketStream|SocketListener|SSLStream|SSLListener|serve_\w+|open_(tcp|ssl|unix)_\w+)"
)

FILE_MODULES = frozenset({"fcntl", "fileinput", "glob", "mmap", "shutil", "tempfile"})
FILE_NAMES = re.compile(
    r"open|(io|codecs|gzip|bz2|lzma)\.open|io\.FileIO|pathlib\.(Path|PosixPath|WindowsPath)(\..+)?|trio\.(Path|open_file)"
    r"|os\.path\.(exists|lexists|getsize|get.time|isdir|isfile|islink|ismount|realpath|samefile)"
    r"|os\.(open|fdopen|p?(read|write)v?|rename|renames|replace|remove|removedirs|unlink|mkdir|makedirs|rmdir|link|symlink"
    r"|readlink|listdir|scandir|f?walk|[lf]?stat|f?statvfs|access|[lf]?ch(mod|own)|f?truncate|fsync|fdatasync|sync|utime"
    r"|posix_f\w+|copy_file_range|splice|memfd_create|mkfifo|mknod)"
)

CLOCK_NAMES = re.compile(
    r"time\.(time|monotonic|perf_counter|process_time|thread_time|clock_gettime)(_ns)?|time\.(sleep|localtime)"
    r"|datetime\.(datetime|date)\.(now|utcnow|today)|trio\.(current_time|sleep|sleep_until)"
)
RANDOM_MODULES = frozenset({"secrets"})
RANDOM_NAMES = re.compile(r"random\.(?!Random\b)\w+|uuid\.uuid[14]|os\.(urandom|getrandom)")

ARGV_MODULES = frozenset({"argparse", "getopt", "optparse", "signal"})
ARGV_NAMES = re.compile(r"sys\.(orig_)?argv|trio\.open_signal_receiver")

PRINT_NAMES = re.compile(r"print|sys\.(stdout|stderr)")

# The bracketed letters keep these patterns from finding themselves.
UNFINISHED = re.compile(r"\b(TO[D]O|FIX[M]E|X[X]X|HAC[K])\b")
LEAKS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?<![\w.~])/(wor[k]|roo[t])/"), "a path of a developer's machine"),
    (re.compile(r"(?<![\w.~])/(hom[e]|User[s])/\w+"), "a path of a home directory"),
    (re.compile(r"(?<![\w.~])/tm[p]/(?!kafka|connect)\w"), "a scratch path of a developer's machine"),
    (re.compile(r"(artif[a]ctory|n[e]xus|jfro[g]|devp[i])[\w-]*[./:]", re.I), "the host of a private registry"),
    (re.compile(r"//[\w.-]+\.(inter[n]al|cor[p]|intra[n]et|la[n])\b", re.I), "a host of a private network"),
    (re.compile(r"\bC[E]O\b"), "a word about how the work is organised"),
)
# Kafka's own examples and defaults name /tm[p]/kafka-logs, which is why a scratch path that starts so is no leak.

LONGER = re.compile(r"#\s*tidy: longer because (\w+\W+){3,}")


class Source:
    """One file of the repository: its path from the root, with slashes, and its text."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree; empty when the file does not parse, which `it_parses` reports by itself."""
        try:
            return ast.parse(self.text)
        except (SyntaxError, UnicodeEncodeError):  # the latter for a file that is no text
            return ast.Module(body=[], type_ignores=[])

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def package(self) -> str | None:
        """The package that the file is in, if it is in one."""
        first = PurePosixPath(self.path).parts[0]
        return first if first in PACKAGES and self.is_python else None

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    @cached_property
    def origins(self) -> dict[str, str]:
        """What each imported name stands for: `{"now": "time.monotonic"}` after `from time import monotonic as now`."""
        found: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname:
                        found[alias.asname] = alias.name
                    else:
                        found[alias.name.split(".")[0]] = alias.name.split(".")[0]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                for alias in node.names:
                    found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return found

    @cached_property
    def own_names(self) -> set[str]:
        """Names that the file binds itself: a function called `open` is not the built-in one."""
        return {
            name
            for node in self.tree.body
            for name in (
                [node.name]
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                else _targets(node)
            )
        }

    def violation(self, line: int, sentence: str) -> str:
        return f"{self.path}:{line}: {sentence}"


Rule = Callable[[Source], Iterator[str]]


def _targets(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def imports(source: Source) -> Iterator[tuple[int, str]]:
    """Every absolute import as (line, dotted name); `from a import b` counts as `a.b`, for `b` may be a module."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def uses(source: Source) -> Iterator[tuple[int, str]]:
    """Every name that comes from an import or is built in, as (line, dotted name): `time.monotonic`, `open`."""
    inner: set[ast.AST] = set()
    for node in source.nodes:  # a walk meets the whole `a.b.c` before its part `a.b`, which must not count again
        if isinstance(node, ast.Attribute):
            inner.add(node.value)
        if node not in inner and isinstance(node, ast.Attribute | ast.Name):
            name = _resolve(source, node)
            if name is not None:
                yield node.lineno, name


def _resolve(source: Source, node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        before = _resolve(source, node.value)
        return None if before is None else f"{before}.{node.attr}"
    if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
        return None
    if node.id in source.origins:
        return source.origins[node.id]
    return node.id if hasattr(builtins, node.id) and node.id not in source.own_names else None


def _reaches(source: Source, modules: frozenset[str], names: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Imports of one of the modules, and uses or imports of one of the names: (line, what)."""
    seen: set[tuple[int, str]] = set()
    for line, name in [*imports(source), *uses(source)]:
        for start in _starts(name):
            if (start in modules or names.fullmatch(start)) and (line, start) not in seen:
                seen.add((line, start))
                yield line, start
                break


def _starts(name: str) -> Iterator[str]:
    """`a`, `a.b`, `a.b.c`: a call of `sys.argv.copy` is a use of `sys.argv`."""
    for end, letter in enumerate(name):
        if letter == ".":
            yield name[:end]
    yield name


def it_parses(source: Source) -> Iterator[str]:
    if source.is_python:
        try:
            ast.parse(source.text)
        except SyntaxError as error:
            yield source.violation(error.lineno or 1, f"this is not Python: {error.msg}.")


def a_file_has_at_most_600_lines(source: Source) -> Iterator[str]:
    exempt = any(LONGER.search(line) for line in source.lines[:40])
    if source.is_python and len(source.lines) > MAX_FILE_LINES and not exempt:
        yield source.violation(
            MAX_FILE_LINES + 1,
            f"a file has at most {MAX_FILE_LINES} lines, this one {len(source.lines)}; find the second noun in it.",
        )


def a_function_fits_a_screen(source: Source) -> Iterator[str]:
    """Sixty lines from `def` to its end. A table that must be long says so on the `def` line or the one above it."""
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            near = "\n".join(source.lines[max(0, node.lineno - 2) : node.lineno])
            if length > MAX_FUNCTION_LINES and not LONGER.search(near):
                yield source.violation(
                    node.lineno, f"a function has at most {MAX_FUNCTION_LINES} lines, {node.name} has {length}."
                )


def a_file_is_named_after_a_noun(source: Source) -> Iterator[str]:
    for part in PurePosixPath(source.path).with_suffix("").parts:
        if source.is_python and re.split(r"[_-]", part)[-1] in BANNED_NAMES:
            yield source.violation(1, f"'{part}' is a drawer, not a noun; name the file after what is in it.")


def the_own_package_is_imported_relatively(source: Source) -> Iterator[str]:
    """`from .batch import …` at home, `from trioka.protocol.batch import …` next door, never `import protocol`."""
    for line, name in imports(source):
        if name.split(".")[0] in PACKAGES:
            yield source.violation(
                line, f"import '{name}' as 'trioka.{name}': a package is only ever known by its full name."
            )
        if source.package and f"{name}.".startswith(f"trioka.{source.package}."):
            yield source.violation(line, f"'{name}' is of this very package: import it relatively.")
    depth = len(PurePosixPath(source.path).parts) - 1
    for node in source.nodes:
        if source.package and isinstance(node, ast.ImportFrom) and node.level > depth:
            yield source.violation(
                node.lineno, "a relative import stays in its package: say 'trioka.<package>' for another."
            )


def an_import_is_at_the_top(source: Source) -> Iterator[str]:
    if source.package or source.path == ENTRY_POINT:
        for line, library in sorted(lazy_imports(source)):
            if (source.path, library) not in LAZY_IMPORTS:
                yield source.violation(
                    line, f"'{library}' is imported inside a function; move it to the top of the file."
                )


def lazy_imports(source: Source) -> set[tuple[int, str]]:
    """The imports inside functions: (line, the library's name, or the dots of a relative import)."""
    found: set[tuple[int, str]] = set()
    for function in source.nodes:
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    found |= {(node.lineno, alias.name.split(".")[0]) for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    found.add((node.lineno, "." * node.level or (node.module or "").split(".")[0]))
    return found


def except_star_is_not_used(source: Source) -> Iterator[str]:
    """Before Python 3.11.4, which not every distribution has, what `except*` raises again is a group."""
    for node in source.nodes:
        if source.package and isinstance(node, ast.TryStar):
            yield source.violation(
                node.lineno, "what `except*` raises is a group in Python 3.11.3; catch the group itself."
            )


def only_the_network_touches_sockets(source: Source) -> Iterator[str]:
    if source.package and source.path not in SOCKET_FILES:
        allowed = {"os.sendfile"} if source.path == FILES else set()  # to nowhere, which is no socket
        for line, what in _reaches(source, SOCKET_MODULES, SOCKET_NAMES):
            if what not in allowed:
                yield source.violation(
                    line, f"'{what}' is a matter of {SOCKETS}; take a stream or a Network as an argument."
                )


def only_the_disk_opens_files(source: Source) -> Iterator[str]:
    if (
        source.package
        and source.package != COMMAND_PACKAGE
        and source.path not in (FILES, STORE_FILES, TEMP_DIR_FILES, OPERATOR_FILES)
    ):
        allowed = {"os.sendfile"} if source.path == SOCKET_IO else set()
        for line, what in _reaches(source, FILE_MODULES, FILE_NAMES):
            if what not in allowed:
                yield source.violation(line, f"'{what}' is a matter of {FILES}; take a Disk as an argument.")


def pure_packages_read_no_clock(source: Source) -> Iterator[str]:
    if source.package in PURE_PACKAGES:
        for line, what in _reaches(source, frozenset(), CLOCK_NAMES):
            yield source.violation(line, f"'{what}' reads a clock; take `now` as an argument.")


def pure_packages_use_no_unseeded_random(source: Source) -> Iterator[str]:
    """`random.Random` as a type or with a seed is fine: then chance comes in from outside."""
    if source.package in PURE_PACKAGES:
        for line, what in _reaches(source, RANDOM_MODULES, RANDOM_NAMES):
            yield source.violation(line, f"'{what}' is chance; take a Random as an argument.")
        for node in source.nodes:
            if not isinstance(node, ast.Call) or node.args or node.keywords:
                continue
            if _resolve(source, node.func) == "random.Random":
                yield source.violation(node.lineno, "a Random without a seed is chance; take a Random as an argument.")


def only_the_entry_point_reads_argv_and_signals(source: Source) -> Iterator[str]:
    if source.package and source.path not in SIGNALS:
        for line, what in _reaches(source, ARGV_MODULES, ARGV_NAMES):
            yield source.violation(line, f"'{what}' is a matter of the entry point; take what it says as an argument.")


def pure_packages_do_not_import_trio(source: Source) -> Iterator[str]:
    if source.package in PURE_PACKAGES and source.path != ASYNC_STORAGE:
        for line, what in _reaches(source, frozenset({"trio"}), re.compile(r"(?!)")):
            yield source.violation(
                line, f"'{what}' has no place in {source.package}; return data and let the broker wait."
            )


def data_classes_come_from_lazy_dataclass(source: Source) -> Iterator[str]:
    if source.package and source.path != DATA_CLASSES:
        for line, what in _reaches(source, frozenset(), re.compile(r"dataclasses\.(make_)?dataclass")):
            yield source.violation(
                line, f"'{what}' compiles six functions at each start; say `frozen` of {DATA_CLASSES}."
            )


def a_package_does_not_print(source: Source) -> Iterator[str]:
    if source.package and source.path not in PRINTING_FILES:
        for line, what in _reaches(source, frozenset(), PRINT_NAMES):
            yield source.violation(line, f"'{what}': a package has no screen; return it, raise it or log it.")


def a_module_has_a_docstring(source: Source) -> Iterator[str]:
    if source.package and not (ast.get_docstring(source.tree) or "").strip():
        yield source.violation(1, "a file of a package begins with a docstring that says what it is.")


def nothing_is_left_unfinished(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.lines, 1):
        if found := UNFINISHED.search(line):
            yield source.violation(number, f"'{found[0]}': do it, or say in docs/SKIPPED.md that it is not done.")


def nothing_leaks(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.lines, 1):
        for pattern, what in LEAKS:
            if found := pattern.search(line):
                yield source.violation(number, f"'{found[0]}' looks like {what}.")


def a_file_is_small_enough_to_read(source: Source) -> Iterator[str]:
    size = len(source.text.encode("utf-8", "surrogateescape"))
    # A lock file is a list of hashes, written and read by programs.
    is_lock = source.path.startswith("requirements/") and source.path.endswith(".txt")
    if size > MAX_FILE_BYTES and not is_lock:
        yield source.violation(
            1, f"a file has at most {MAX_FILE_BYTES:,} bytes, this one {size:,}; fetch or generate it."
        )


RULES: tuple[Rule, ...] = (
    it_parses,
    a_file_has_at_most_600_lines,
    a_function_fits_a_screen,
    a_file_is_named_after_a_noun,
    the_own_package_is_imported_relatively,
    an_import_is_at_the_top,
    except_star_is_not_used,
    only_the_network_touches_sockets,
    only_the_disk_opens_files,
    pure_packages_read_no_clock,
    pure_packages_use_no_unseeded_random,
    only_the_entry_point_reads_argv_and_signals,
    pure_packages_do_not_import_trio,
    data_classes_come_from_lazy_dataclass,
    a_package_does_not_print,
    a_module_has_a_docstring,
    nothing_is_left_unfinished,
    nothing_leaks,
    a_file_is_small_enough_to_read,
)
