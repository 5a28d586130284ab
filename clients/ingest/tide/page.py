"""The programs of docs/howto/from-your-language.md, run as they stand against a server."""

import os
import re
import subprocess
import sys
import tempfile

from .languages import HERE, ROOT
from .rounds import Server
from .wire import expect

PAGE = os.path.join(ROOT, "docs", "howto", "from-your-language.md")
# What each language's programs print, together.
READ = ["0 web-7 GET /", "1 web-7 GET /robots.txt", "2 web-7 GET /favicon.ico"]
PRINTED = {
    "python": ["durable up to 3", "durable up to 1", "stored up to byte 3893", *READ, "3 web-8 GET /about"],
    "go": ["durable up to 3", "stored up to byte 3893", *READ],
    "cpp": ["durable up to 3", "stored up to byte 3893", *READ],
}


class World:
    host, within, options = "127.0.0.1", (), ()

    def __init__(self, tidewire, place):
        self.tidewire = tidewire
        self.data, self.errors = os.path.join(place, "log"), os.path.join(place, "errors")


def program(language, place, number, text):
    """The command that runs a block."""
    folder = os.path.join(place, f"block-{number}")
    os.mkdir(folder)
    path = os.path.join(folder, "main." + {"python": "py"}.get(language, language))
    with open(path, "w") as file:
        file.write(text)
    if language == "python":
        return [sys.executable, "-B", path]
    out = os.path.join(folder, "program")
    if language == "go":
        module = "github.com/tidewire/tidewire/clients/ingest/go"
        with open(os.path.join(folder, "go.mod"), "w") as file:
            file.write(f"module block\n\ngo 1.24\n\nrequire {module} v0.0.0\n\nreplace {module} => {os.path.join(HERE, 'go')}\n")
        subprocess.run(["go", "build", "-o", out, "."], cwd=folder, check=True)
    else:
        include = os.path.join(HERE, "cpp", "include")
        subprocess.run(["c++", "-std=c++17", "-Wall", "-Werror", "-I", include, path, "-o", out], check=True)
    return [out]


def runs(language, tidewire):
    """Every program of the page in a language, one after the other; what they print is what is due."""
    with open(PAGE) as file:
        blocks = [text for kind, text in re.findall(r"^```(\S*)\n(.*?)^```", file.read(), re.M | re.S) if kind == language]
    expect(len(blocks) >= 3, f"the page has {len(blocks)} programs in {language}")
    printed = []
    with tempfile.TemporaryDirectory(prefix="page-") as place:
        with open(os.path.join(place, "app.log"), "w") as file:
            file.writelines(f"{n}\n" for n in range(1, 1001))
        server = Server(World(tidewire, place))
        try:
            addr = "%s:%d" % server.addr()
            for number, text in enumerate(blocks):
                words = program(language, place, number, text.replace("127.0.0.1:7400", addr))
                done = subprocess.run(words, cwd=place, capture_output=True, text=True)
                expect(done.returncode == 0, f"program {number + 1} in {language} ended with {done.returncode}: {done.stderr}")
                printed += done.stdout.splitlines()
        finally:
            server.kill()
    expect(printed == PRINTED[language], f"the programs in {language} print {printed}")
