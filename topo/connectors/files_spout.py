"""A spout that reads the files of a folder, and those that come later."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Literal

from topo.api.arguments import check_text, options_of, texts_of
from topo.api.context import TaskContext
from topo.api.durations import duration_ms
from topo.api.generator_reader import GeneratorReader, Yielded
from topo.api.partition_values import BadRecord, Partition, PartitionReader, SourceRows, begins_first
from topo.api.partitions import PartitionedSpout
from topo.api.spout import SpoutCollector
from topo.config import parse_size
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.compressed_files import check_is_text, is_compressed, unpacked_file
from topo.connectors.file_ages import FileAges
from topo.connectors.file_folders import FileFolder, check_move, folder_at, is_remote, shown_url
from topo.connectors.file_formats import ReadFile, read_csv, read_lines, read_parquet
from topo.connectors.file_opener import FileOpener
from topo.connectors.followed_file import FollowedFile
from topo.connectors.followed_folder import RotatedNames, followed_rows, line_reader
from topo.connectors.line_reader import LineReader, mark_of
from topo.connectors.named_errors import LISTING, MOVING, READING, REMOVING, naming
from topo.connectors.record_decoder import Decode, decoder_of
from topo.connectors.unread_bytes import UnreadBytes
from topo.durable import local_path
from topo.errors import ConfigError, NotFoundError, TopoEnvironmentError

_MOVE = "move:"
_MOST_OPEN = 16
"""Files that a task reads at the same time."""


class FilesSpout(PartitionedSpout):
    """Emits the records of all files below a folder, and of files that come later. Each file is a partition.

        builder.set_spout("orders", FilesSpout("/data/orders", pattern="*.json.gz", format="json", fields=("id", "cents")), 4)
        builder.set_spout("events", FilesSpout("s3://bucket/events", format="parquet", fields=("user", "at")))

    | delivery | promise |
    | --- | --- |
    | `at_least_once` | no record is missing; some repeat after a recovery |
    | `exactly_once` | reads again from the checkpoint's place in each file |
    | `at_most_once` | a place counts as soon as its record was emitted |

    A file must not change after it is complete: names that begin with "." or "_" are left out, so write under such a name and
    rename. With `follow` files grow and are rotated, as logs are.
    """

    lag_metric = "lag_bytes"

    @checks_arguments
    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        pattern: str = "*",
        format: Literal["lines", "json", "csv", "parquet"] = "lines",
        fields: Sequence[str] | None = None,
        encoding: str = "utf-8",
        discovery_interval: str | timedelta | None = "10s",
        settle: str | timedelta = "2s",
        on_done: str | None = None,
        max_file_age: str | timedelta | None = None,
        on_bad_record: Literal["dead_letter", "fail", "drop"] = "dead_letter",
        max_line: str | int = "8MiB",
        follow: bool = False,
        start: Literal["beginning", "end"] = "beginning",
        rotated: str | None = None,
        rotate_wait: str | timedelta = "5s",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep what to read; nothing is opened yet.

        Args:
            url: a folder of this machine, which all workers with tasks of the spout share; or a URL that fsspec reaches, such as
                "s3://bucket/folder". It may come later, except with discovery_interval=None.
            pattern: which names, such as "*.json.gz". Subfolders are read, too. Names that end with .gz, .bz2 or .xz are those of
                compressed files.
            format: "lines": a text for each line; "json": an object for each line; "csv", whose first record names the columns
                and whose values are text; "parquet".
            fields: keys or columns that become the fields of the tuple; a "?" at the end lets it be missing: it is None then.
                Needed for csv and parquet; without, a line of JSON is one field, `value`, and a line of text is `line`.
            encoding: of lines and csv; of lines one whose line end is one byte, as that of ASCII.
            discovery_interval: how often the folder is listed; None: once, and the input ends with its files.
            settle: how long a file of this machine must not have been written to before it is read.
            on_done: "delete" removes a file when all of it is done; "move:FOLDER" moves it to its path below that folder, of this
                machine or at a URL in the same store.
            max_file_age: a file that is done is forgotten when it is so much older than the newest one, so that the state does
                not grow with each file; a file that comes when it is as old is reported and not read. None: none is.
            on_bad_record: see `PartitionedSpout`.
            max_line: a line of lines, json and csv with more bytes in front of its end is given up as a bad record, in pieces of
                about this size.
            follow: read lines that others append to files of this machine, without an end, and follow their rotation. Each file
                that the pattern matches is a partition, known by its name and its inode; compressed and rotated ones are not.
            start: where to begin, with `follow`, in files that exist when the topology first starts: at their beginning, or
                behind their last whole line.
            rotated: with `follow`: pattern of the names that a file is given when it is rotated, with {name} for its own name;
                None: its name, "." or "-", and a number or a date; of a name without a suffix, such as `worker`, only "." with at
                most three digits, or a date of eight.
            rotate_wait: with `follow`: how long a file that was renamed must be unchanged before it is left.
            storage_options: for fsspec.

        Raises:
            ConfigError: an argument cannot be used.
        """
        path = local_path(url)
        if not is_remote(os.fspath(url)) and "*" in path.name and not path.exists():
            fix = f"give the folder, and pattern={path.name!r}"
            raise ConfigError(f"FilesSpout reads a folder, and {os.fspath(url)!r} is a pattern; {fix}")
        if format in ("csv", "parquet") and not fields:
            raise ConfigError(f"format={format!r} needs fields=, the columns that become the fields of the tuple")
        if "/" in pattern:
            raise ConfigError(f"pattern={pattern!r} is of names, which have no folder; give the folder in the url")
        if format == "lines" and fields is not None:
            raise ConfigError("format='lines' has the one field 'line'; leave fields= out, or take format='json' or 'csv'")
        if on_done is not None and on_done != "delete":
            if not isinstance(on_done, str) or not on_done.startswith(_MOVE):
                raise ConfigError(f"on_done={on_done!r} must be None, 'delete' or 'move:FOLDER'")
            check_move(url, on_done.removeprefix(_MOVE))
        _check_encoding(encoding, format)
        if follow and (format not in ("lines", "json") or on_done is not None or is_remote(os.fspath(url))):
            raise ConfigError(
                "follow=True reads lines or json of files of this machine, which have no end: give no other format, no URL, and "
                "no on_done"
            )
        if follow:
            check_is_text("FilesSpout with follow=True", pattern)
        if max_file_age is not None and (follow or on_done is not None):
            raise ConfigError("max_file_age= is for files that stay, and have an end: give no on_done, and no follow")
        self._max_age_s = None if max_file_age is None else duration_ms(max_file_age) / 1000
        if start not in ("beginning", "end") or (start == "end" and not follow):
            raise ConfigError(f"start={start!r} must be 'beginning', or with follow=True 'end'")
        if rotated is not None and not follow:
            raise ConfigError(f"rotated={rotated!r} is for files that grow; give follow=True, or leave it out")
        given = None if fields is None else texts_of("fields", fields, ("id", "cents"))
        names = ("line",) if format == "lines" else ("value",) if given is None else given
        self.outputs = tuple(name.removesuffix("?") for name in names)
        self.discovery_interval = discovery_interval
        self.on_bad_record = on_bad_record
        self._url, self._pattern, self._format, self._fields = url, pattern, format, given
        self._encoding = encoding
        self._settle_s = duration_ms(settle) / 1000
        self._on_done = on_done
        self._max_line = parse_size(max_line)
        if self._max_line < 1:
            raise ConfigError(f"max_line={max_line!r} must be at least one byte")
        self._follow, self._start = follow, start
        self._rotated, self._rotate_wait_s = RotatedNames(rotated), duration_ms(rotate_wait) / 1000
        self._options = options_of("storage_options", storage_options)
        self._done: set[str] = set()
        """Files of which all is done."""
        self._ages: FileAges | None = None
        self._committed: dict[str, Any] = {}
        self._ends: dict[str, Any] = {}
        """Of the files that were read to their end: the position of their last record."""
        self._identities: dict[str, set[str]] = {}
        """Of these files: the identities that are known, and reported if they are new ones."""
        self._stuck: set[str] = set()
        """Files that are done and could not be put away: it is tried again at each listing, on the same thread."""
        self._missing: set[str] = set()
        """Those of them that the last listing has not found."""
        self._unread = UnreadBytes()
        self._followed: dict[str, FollowedFile] = {}
        self._is_listed = False
        """Whether these are all that there are, or more are on their way."""

    @property
    def is_endless(self) -> bool:
        """Whether it follows files, or looks for new ones."""
        return self._follow or super().is_endless

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Prepare to read.

        Raises:
            ConfigError: a library is missing, or the URL cannot be used.
            NotFoundError: the folder is listed only once, and does not exist.
        """
        if self.discovery_interval is None and not is_remote(os.fspath(self._url)) and not local_path(self._url).exists():
            raise NotFoundError(f"FilesSpout: there is no folder {str(local_path(self._url).absolute())!r}.")
        self._folder: FileFolder = folder_at(self._url, None if self._follow else self._settle_s, self._options)
        self._rotated.know(context.committed_position or ())
        self._read_file = self._reader()
        self._context, self._collector = context, collector
        self._opener = FileOpener(self._folder.open, self._folder.threads if context.has_helper_thread else 0, self._wake)
        if self._max_age_s is not None:
            stored = context.committed_position
            self._ages = FileAges(
                self._max_age_s,
                stored or (),
                lambda name: begins_first(stored, Partition(name)),
                self._done.__contains__,
                self._came_late,
                self._left_out,
            )
        super().open(context, collector)

    def close(self) -> None:
        """Close the reader, and open no more files."""
        super().close()
        if self._loop is not None:
            self._opener.close()

    def _wake(self) -> None:
        if self._context.executor is not None:
            self._context.executor.execute(lambda: None, "a file is open")

    def reader(self, context: TaskContext) -> PartitionReader:
        """Return a reader that has a limited number of files open, but for files without an end."""
        most_open = None if self._follow else _MOST_OPEN
        return GeneratorReader(self.read, self.begin, self.committed, lag=self._lag, most_open=most_open)

    def _lag(self) -> int | None:
        if not self._follow:
            return self._unread.total()
        return sum(file.unread() for file in self._followed.values()) if self._is_listed else None

    def _reader(self) -> ReadFile:
        fields = self._fields or ()
        if self._format == "parquet":
            return read_parquet(fields)
        if self._format == "csv":
            return read_csv(fields, self._encoding, self._max_line)
        return read_lines(
            self._decoder(), max_line=self._max_line, skip_blank=self._format == "json", mark=mark_of(self._text_encoding)
        )

    @property
    def _text_encoding(self) -> str:
        return "utf-8" if self._format == "json" else self._encoding

    def _decoder(self) -> Decode:
        if self._format == "json":
            return decoder_of("json", self._fields)
        encoding = self._encoding
        return lambda line: (line.decode(encoding),)

    def partitions(self) -> Iterator[Partition | str]:
        """Yield the files that are complete; report those that were written to after their end was read."""
        for name in list(self._stuck):
            self._put_away(name)
        with naming(f"{shown_url(self._url)} cannot be listed, and is listed again", LISTING):
            files = list(self._folder.find(self._pattern))
        if self.discovery_interval is None:
            self._report_unsettled()
        if self._ages is not None:
            files = self._ages.kept(files)
        found = {file.name: file.identity for file in files}
        if self._follow:
            self._is_listed = True
            yield from map(self._rotated.partition, self._rotated.live(found))
            return
        self._unread.listed({file.name: file.size for file in files if self._is_mine(file.name)})
        # A copy, since the task reads meanwhile.
        gone = set(self._identities) - found.keys()
        for name in gone & self._missing:
            # It is forgotten, as the partition is: another one of that name would be new.
            self._identities.pop(name, None)
        self._missing = gone
        for name, known in list(self._identities.items()):
            if found.get(name, "") not in ("", *known):
                self._check(name, found[name], known)
        yield from found

    def _check(self, name: str, listed: str, known: set[str]) -> None:
        """Report a file of which the listing has another identity, unless this is only the listing's way to state it."""
        try:
            present = self._folder.identity(name)
        except FileNotFoundError:
            return
        is_changed = present not in known
        known.update((listed, present))
        if is_changed:
            self._report(_changed(name, "after all of it had been read"))

    def _left_out(self, number: int) -> None:
        self._context.logger.info(
            "files that are taken for done: %d; they are older than the newest one by more than max_file_age, and the state has "
            "forgotten them, or they have come while the topology did not run",
            number,
        )

    def _report_unsettled(self) -> None:
        """Report files that no later listing will find settled."""
        left = sorted(filter(self._is_mine, self._folder.unsettled))
        if left:
            self._report(
                TopoEnvironmentError(
                    f"{len(left)} files are not read, since they were written to within the time of settle= and are looked for "
                    f"only once: {', '.join(map(repr, left[:3]))}{', ...' if left[3:] else ''}; set settle='0s' if they are whole"
                )
            )

    def _came_late(self, name: str) -> None:
        if self._is_mine(name):
            self._report(
                TopoEnvironmentError(
                    f"file {name!r} is not read: it has come when it was older than the newest file by more than max_file_age; "
                    "raise it, or write the file again"
                )
            )

    def _is_mine(self, name: str) -> bool:
        file = Partition(name)
        return file.can_be_stored and file.owner(self._context.parallelism) == self._context.task_index

    def _report(self, error: TopoEnvironmentError) -> None:
        """Report an error of a listing, on the task's thread."""
        report = partial(self._collector.report_error, error)
        executor = self._context.executor
        if executor is None:
            report()
        else:
            executor.execute(report, "files were looked for")

    def read(self, partition: Partition, position: Any) -> Iterator[Yielded]:
        """Yield the records of a file behind (place, identity of the file)."""
        if self._follow:
            return self._lines(partition, position)
        # Other places are no offsets in the stored file.
        is_offset = position is not None and self._format in ("lines", "json") and not is_compressed(partition.name)
        self._unread.reached(partition.name, position[0] if is_offset else 0)
        return self._records(partition, position)

    def _records(self, partition: Partition, position: Any) -> Iterator[Yielded]:
        name = partition.name
        unreadable = f"file {name!r} of {shown_url(self._url)} cannot be read"
        opening = self._opener.open(name)
        try:
            while not opening.done():
                yield None
            with naming(unreadable, READING):
                opened = opening.result()
        finally:
            opening.cancel()
        identity = opened.identity
        last = position
        with naming(unreadable, READING), opened.file as file:
            place, known = (0, identity) if position is None else position
            if identity != known:
                raise _changed(name, f"after it had been read up to place {place}")
            for chunk in self._read_file(unpacked_file(file, name), place):
                if self._format != "parquet":
                    self._unread.reached(name, file.tell())
                if chunk.rows:
                    positions = [(one, identity) for one in chunk.places]
                    last = positions[-1]
                    yield SourceRows(chunk.rows, positions)
                elif chunk.bad is None:
                    # A file is passed over up to its place, which is to hold up nothing.
                    yield None
                if chunk.bad is not None:
                    at, record, error = chunk.bad
                    last = (at, identity)
                    yield BadRecord(record, last, error)
        # A file that was removed meanwhile was read to its end.
        with naming(unreadable, READING), suppress(FileNotFoundError):
            if not opened.is_whole and self._folder.identity(name) != identity:
                raise _changed(name, "while it was read")
        self._unread.ended(name)
        self._ends[name] = last
        self._identities[name] = {identity}
        self._finish(name)

    def begin(self, partition: Partition, found_later: bool) -> Any:
        """Return where a new file begins: with `start="end"` behind its last whole line."""
        if self._start == "beginning" or found_later:
            return None
        file, reader = self._open_followed(partition)
        file.skip_to_end()
        reader.close()
        return file.position if file.position[0] else None

    def _open_followed(self, partition: Partition) -> tuple[FollowedFile, LineReader]:
        path = local_path(self._url) / partition.name
        reader = line_reader(self._max_line, mark_of(self._text_encoding))
        report = self._collector.report_error
        return FollowedFile(path, reader, self._rotated.of(path.name), self._rotate_wait_s, report, "FilesSpout"), reader

    def _lines(self, partition: Partition, position: Any) -> Iterator[Yielded]:
        file, reader = self._open_followed(partition)
        self._followed[partition.name] = file
        try:
            if position is not None:
                file.go_to(position)
            yield from followed_rows(file, reader, self._decoder(), self._format == "json", self._max_line)
        finally:
            # It still counts, should another attempt have to follow.
            reader.close()

    def committed(self, positions: Mapping[str, Any]) -> None:
        """Remove or move the files of which all is done, or let them be forgotten, if that is wanted."""
        if self._on_done is not None or self._ages is not None:
            self._committed |= positions
            for name in positions:
                self._finish(name)

    def _finish(self, name: str) -> None:
        is_wanted = self._on_done is not None or self._ages is not None
        if not is_wanted or name not in self._ends or self._committed.get(name) != self._ends[name]:
            return
        del self._ends[name]
        self._committed.pop(name, None)
        if self._on_done is None:
            self._done.add(name)
            return
        self._context.run_beside(lambda: self._put_away(name))

    def _put_away(self, name: str) -> None:
        assert self._on_done is not None
        what = f"file {name!r} of {shown_url(self._url)} is done and cannot be removed, and it is tried again"
        try:
            with naming(what, REMOVING if self._on_done == "delete" else MOVING), suppress(FileNotFoundError):
                if self._on_done == "delete":
                    self._folder.remove(name)
                else:
                    self._folder.move(name, self._on_done.removeprefix(_MOVE))
        except Exception as error:
            if name not in self._stuck:
                self._stuck.add(name)
                self._context.logger.warning("%s", error)
            return
        self._stuck.discard(name)


def _check_encoding(encoding: str, format: str) -> None:
    check_text("encoding", encoding, "utf-8")
    try:
        codecs.lookup(encoding)
        line_end = "\n".encode(encoding)
    except LookupError as error:
        raise ConfigError(f"encoding={encoding!r} is no text encoding that Python knows; give one such as 'utf-8'") from error
    if format == "lines" and line_end != b"\n":
        raise ConfigError(f"encoding={encoding!r} is one whose line ends are not one byte; give one such as 'utf-8' for lines")


def _changed(name: str, when: str) -> TopoEnvironmentError:
    return TopoEnvironmentError(
        f"file {name!r} was written again {when}, so the records behind it are unknown; give new contents a new name"
    )
