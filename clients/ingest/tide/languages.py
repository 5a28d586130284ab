"""Our clients in other languages: how each is built and tested, and the commands of its two examples."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(os.path.dirname(HERE))
CONFORMANCE = os.path.join(HERE, "conformance")


class Language:
    """`store`, `read` and `flood` are words of commands, to which flags are added."""

    def __init__(self, name, store, read, flood, flag):
        self.name, self.store, self.read, self.flood, self.flag = name, store, read, flood, flag

    def words(self, example, **flags):
        """The command of an example; a flag that is true has no value."""
        words = list(example)
        for name, value in flags.items():
            if value:
                words += [self.flag + name] + ([] if value is True else [str(value)])
        return words


class Toolchain:
    """What makes the programs of one or several languages, in a folder of its own."""

    name = ""
    needs = ()

    def __init__(self, built):
        self.built, self.folder = built, os.path.join(HERE, self.name)

    def missing(self):
        return [tool for tool in self.needs if not shutil.which(tool)]

    def run(self, *words, cwd=None):
        subprocess.run(words, check=True, cwd=cwd or self.folder)


class Python(Toolchain):
    name = "python"

    def build(self):
        os.environ["PYTHONPATH"] = os.path.join(self.folder, "src")

        def example(name, *more):
            return [sys.executable, "-B", os.path.join(self.folder, "examples", name), *more]
        names = ("store_lines.py", "read_lines.py", "flood.py")
        return [Language("python", *(example(name) for name in names), "--"),
                Language("python-asyncio", *(example(name, "--async") for name in names), "--")]

    def test(self):
        self.run(sys.executable, "-B", "-m", "unittest", "discover", "-s", "tests")
        if importlib.util.find_spec("mypy"):
            self.run(sys.executable, "-m", "mypy", "--strict", "src", "examples", "--cache-dir", os.path.join(self.built, "mypy"))
        else:
            print("skipped: types of python: there is no mypy")
        if not importlib.util.find_spec("build") or not importlib.util.find_spec("setuptools"):
            print("skipped: the wheel and sdist of python: there is no module build, or no setuptools")
            return
        # Built from a copy: a build leaves files behind.
        copy, out = os.path.join(self.built, "python"), os.path.join(self.built, "dist")
        for old in (copy, out):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(self.folder, copy, ignore=shutil.ignore_patterns("__pycache__"))
        self.run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, cwd=copy)
        self.use(out)

    def use(self, out):
        """The wheel, alone in an environment of its own."""
        wheel = next(os.path.join(out, name) for name in os.listdir(out) if name.endswith(".whl"))
        with tempfile.TemporaryDirectory(prefix="wheel-") as place:
            self.run(sys.executable, "-m", "venv", place)
            python = os.path.join(place, "bin", "python")
            self.run(python, "-m", "pip", "install", "--quiet", "--no-index", wheel)
            here = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
            check = ("import tidewire_ingest, tidewire_ingest.aio, pathlib; "
                     "assert (pathlib.Path(tidewire_ingest.__file__).parent / 'py.typed').exists()")
            subprocess.run([python, "-c", check], check=True, cwd=place, env=here)


class Go(Toolchain):
    name = "go"
    needs = ("go", "gofmt")

    def build(self):
        self.run("go", "build", "-o", self.built + os.sep, "./examples/...")
        return [Language("go", *([os.path.join(self.built, name)] for name in ("store-lines", "read-lines", "flood")), "-")]

    def test(self):
        ugly = subprocess.run(["gofmt", "-l", "."], cwd=self.folder, check=True, capture_output=True, text=True).stdout
        if ugly:
            raise SystemExit(f"gofmt would change:\n{ugly}")
        self.run("go", "vet", "./...")
        self.run("go", "test", "-count=1", "./...")


class Cpp(Toolchain):
    name = "cpp"
    needs = ("cmake", "c++")

    def tree(self, name, *options):
        tree = os.path.join(self.built, name)
        self.run("cmake", "-S", self.folder, "-B", tree, "-DCMAKE_BUILD_TYPE=RelWithDebInfo", *options)
        self.run("cmake", "--build", tree)
        return tree

    def build(self):
        self.main = self.tree("cpp")
        store, read, flood = (os.path.join(self.main, name) for name in ("store_lines", "read_lines", "flood"))
        return [Language("cpp", [store], [read], [flood], "--"), Language("cpp-polling", [store], [read, "--poll"], [flood], "--")]

    def test(self):
        self.run("ctest", "--test-dir", self.main, "--output-on-failure")
        # Without TLS, and with what a compiler can watch at run time.
        watched = self.tree("cpp-watched", "-DTIDEWIRE_INGEST_TLS=OFF",
                            "-DCMAKE_CXX_FLAGS=-fsanitize=address,undefined -fno-sanitize-recover=undefined")
        self.run("ctest", "--test-dir", watched, "--output-on-failure")
        with tempfile.TemporaryDirectory(prefix="installed-") as place:
            prefix, consumer = os.path.join(place, "prefix"), os.path.join(place, "consumer")
            self.run("cmake", "--install", self.main, "--prefix", prefix)
            self.run("cmake", "-S", os.path.join(self.folder, "tests", "consumer"), "-B", consumer, f"-DCMAKE_PREFIX_PATH={prefix}")
            self.run("cmake", "--build", consumer)
            self.run(os.path.join(consumer, "consumer"))


TOOLCHAINS = {kind.name: kind for kind in (Python, Go, Cpp)}


def made(wanted, built):
    """The toolchains that are here, each with its languages; says which are not."""
    os.makedirs(built, exist_ok=True)
    for name in wanted:
        chain = TOOLCHAINS[name](built)
        if chain.missing():
            print(f"skipped: the client in {name}: there is no {' and no '.join(chain.missing())}", flush=True)
        else:
            yield chain, chain.build()


def conforms(language):
    """Whether the examples of a language pass the conformance program."""
    commands = [("client", language.words(language.store, to="{addr}", producer="p") + ["-"]),
                ("reader", language.words(language.read, to="{addr}")),
                ("cursor", language.words(language.read, to="{addr}", cursor="c"))]
    good = True
    for mode, words in commands:
        print(f"== conformance: {language.name}, {mode}", flush=True)
        good &= subprocess.run([sys.executable, "-B", CONFORMANCE, mode, *words]).returncode == 0
    return good
