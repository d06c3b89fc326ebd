"""The word count of `topo bench word-count` in Apache Storm, tracked: one JVM with threads, in which nothing is serialized.

    python -m benchmarks.storm_words [--seconds 10] [--warm-up 20] [--pending 1000] [--json]

Needs a JDK and Maven, which fetches Storm the first time; what is built lies in `build/storm`. The text is that of `topo bench`,
and a word counts when its sentence is acked, as there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from pathlib import Path

from topo_cli.workloads import sentences

SOURCE = Path(__file__).parent / "storm"
BUILT = Path(__file__).parents[1] / "build" / "storm"


def build(folder: Path) -> str:
    """Fetch Storm and compile the topology; return the class path. Raises SystemExit where that cannot be."""
    missing = [tool for tool in ("mvn", "javac", "java") if shutil.which(tool) is None]
    if missing:
        raise SystemExit(f"Storm needs a JDK and Maven: there is no {', no '.join(missing)} here")
    jars, classes = folder / "jars", folder / "classes"
    if not jars.is_dir():
        fetch = ["mvn", "-q", "-B", "-f", str(SOURCE / "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        _run(fetch, "Storm cannot be fetched")
    classes.mkdir(parents=True, exist_ok=True)
    compile_ = ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), str(SOURCE / "WordCount.java")]
    _run(compile_, "the topology cannot be compiled")
    return f"{classes}:{jars}/*"


def _run(command: list[str], otherwise: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{otherwise}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="measured (%(default)s)")
    parser.add_argument("--warm-up", type=float, default=20.0, help="seconds before, in which the JVM compiles (%(default)s)")
    parser.add_argument("--pending", type=int, default=1_000, help="sentences in flight (%(default)s)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    class_path = build(BUILT)
    text = BUILT / "sentences.txt"
    text.write_text("\n".join(sentences()) + "\n")
    arguments = [str(text), str(options.seconds), str(options.warm_up), str(options.pending)]
    printed = _run(["java", "-cp", class_path, "WordCount", *arguments], "Storm ended with an error")
    # Storm logs to the same stream.
    (line,) = (line for line in printed.splitlines() if line.startswith('{"words_per_second"'))
    found = json.loads(line)
    if found["failed"]:
        raise SystemExit(f"{found['failed']} sentences have failed")
    print(json.dumps(found) if options.json else f"{found['words_per_second'] / 1e6:.2f} M words/s, each acked")


if __name__ == "__main__":
    main()
