"""Where a pair of files comes from: ``PREFIX-mxamp.json``, written beside the pair."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Mapping, NoReturn

from mxamp.errors import DigestMissingError, PolicyError, ReportError
from mxamp.files import StagedFile, existing_file
from mxamp.files.digest import DIGITS
from mxamp.files.json_text import parse_json
from mxamp.model.read_back import ReadBack
from mxamp.model.source_files import HASH_KEYS, FileRecord, SourceFiles
from mxamp.policy.policy import Policy
from mxamp.report.model import Report
from mxamp.version import __version__

FORMAT_VERSION = 2

_READ_VERSIONS = (1, 2)
"""The first had SHA-256 of files and nothing else."""


_ADVICE = "The file is for information only: delete it, or save the model again."


@dataclass(frozen=True)
class PolicyRecord:
    """The policy of a conversion.

    Attributes
    ----------
    name
        ``"default"``, ``"pure"``, or ``"custom"``.
    toml
        The policy as TOML, where it is no built-in one.
    color_function
        The name of the color function, which no file can hold; None without one.
    """

    name: str
    toml: str | None = None
    color_function: str | None = None

    @classmethod
    def of(cls, policy: Policy) -> PolicyRecord:
        """Record a policy."""
        function = policy.color_function
        plain = policy if function is None else policy.with_color_function(None)
        called = None if function is None else getattr(function, "__qualname__", repr(function))
        for name, built_in in (("default", Policy.default), ("pure", Policy.pure)):
            try:
                if plain == built_in(policy.target_dtype):
                    return cls(name, None, called)
            except PolicyError:  # there is none for this dtype
                continue
        return cls("custom", plain.to_toml(), called)


@dataclass(frozen=True)
class History:
    """What is known of a model besides itself.

    Attributes
    ----------
    source
        The files that it was read from, or converted from; None for one that came from memory.
    policy
        The policy that it was converted with; None for one that was not converted.
    arrays_from
        The files that the arrays came from that it was made of, whatever their values are by now.
    """

    source: SourceFiles | None = None
    policy: PolicyRecord | None = None
    arrays_from: SourceFiles | None = None

    @property
    def files(self) -> SourceFiles | None:
        """The files that its values came from, as far as is known."""
        return self.source or self.arrays_from


@dataclass(frozen=True)
class Provenance:
    """Where a pair of files comes from, and what it must hold.

    Nothing in it depends on time or place, but for what was measured (the guard, a profile).

    Attributes
    ----------
    symbol, params
        The pair.
    read_back
        What was checked before the files got their names.
    source_symbol, source_params
        The files that the model was converted (or just loaded) from; None where it came from memory.
    policy
        The policy of the conversion; None where there was none.
    report
        Every decision with its reason; None where the model was not converted.
    mxamp
        The version of mxamp that wrote the pair.
    """

    symbol: FileRecord
    params: FileRecord
    read_back: ReadBack
    source_symbol: FileRecord | None = None
    source_params: FileRecord | None = None
    policy: PolicyRecord | None = None
    report: Report | None = None
    mxamp: str = __version__

    @classmethod
    def of(
        cls,
        symbol_file: StagedFile,
        params_file: StagedFile,
        checked: ReadBack,
        history: History,
        source_params: Future[FileRecord] | None,
        report: Report | None,
    ) -> Provenance:
        """Record a pair that was written and read back.

        Parameters
        ----------
        symbol_file, params_file
            The pair.
        checked
            What reading them back compared.
        history
            What is known of the model.
        source_params
            What :meth:`SourceFiles.hashing` yielded; None without source files.
        report
            What the conversion did.

        Raises
        ------
        ParamsError
            When the source file was changed meanwhile.
        """
        known = history.source is not None and source_params is not None
        return cls(
            symbol=_record(symbol_file),
            params=_record(params_file),
            read_back=checked,
            source_symbol=history.source.symbol if history.source is not None and known else None,
            source_params=source_params.result() if source_params is not None and known else None,
            policy=history.policy,
            report=report,
        )

    @property
    def files(self) -> tuple[FileRecord, FileRecord]:
        """The pair."""
        return self.symbol, self.params

    def to_mapping(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        source: dict[str, Any] = {"kind": "memory"}
        if self.source_symbol is not None and self.source_params is not None:
            source = {
                "kind": "files",
                "symbol": self.source_symbol.to_mapping(),
                "params": self.source_params.to_mapping(),
            }
        return {
            "format": FORMAT_VERSION,
            "mxamp": self.mxamp,
            "written": {"symbol": self.symbol.to_mapping(), "params": self.params.to_mapping()},
            "verified": asdict(self.read_back),
            "source": source,
            "target_dtype": None if self.report is None else self.report.target_dtype,
            "target": None if self.report is None else self.report.target,
            "policy": None if self.policy is None else asdict(self.policy),
            "decisions": None if self.report is None else self.report.to_mapping(),
        }

    def to_json(self) -> str:
        """Return it as JSON; :meth:`from_json` reads it back."""
        return json.dumps(self.to_mapping(), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, *, name: str = "the provenance") -> Provenance:
        """Read it from JSON.

        Parameters
        ----------
        text
            The text.
        name
            How messages call it: a file name.

        Raises
        ------
        ReportError
            When the text is no provenance of this version; the message says where.
        """
        return _Reader(name).provenance(parse_json(text, source=name, error=ReportError, advice=_ADVICE))


class _Reader:
    """Reads a document and believes nothing of it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def provenance(self, document: Any) -> Provenance:
        top = self._object(document, "$")
        version = top.get("format")
        if version not in _READ_VERSIONS or isinstance(version, bool):
            readable = " and ".join(map(str, _READ_VERSIONS))
            self._fail(
                "$.format", f"is {version!r:.40}, and mxamp {__version__} reads formats {readable} alone"
            )
        written = self._object(top.get("written"), "$.written")
        source = self._object(top.get("source"), "$.source")
        has_files = source.get("kind") == "files"
        return Provenance(
            symbol=self._file(written.get("symbol"), "$.written.symbol"),
            params=self._file(written.get("params"), "$.written.params"),
            read_back=self._read_back(top.get("verified")),
            source_symbol=self._file(source.get("symbol"), "$.source.symbol") if has_files else None,
            source_params=self._file(source.get("params"), "$.source.params") if has_files else None,
            policy=self._policy(top.get("policy")),
            report=self._report(top.get("decisions")),
            mxamp=self._text(top.get("mxamp"), "$.mxamp"),
        )

    def _file(self, value: Any, path: str) -> FileRecord:
        record = self._object(value, path)
        algorithm = next((name for name, key in HASH_KEYS.items() if key in record), "SHA-256")
        key = HASH_KEYS[algorithm]
        digest = self._text(record.get(key), f"{path}.{key}")
        if len(digest) != DIGITS or set(digest) - set("0123456789abcdef"):
            self._fail(f"{path}.{key}", f"is no {algorithm} in {DIGITS} hexadecimal digits")
        name = self._text(record.get("name"), f"{path}.name")
        return FileRecord(name, self._count(record.get("bytes"), f"{path}.bytes"), digest, algorithm)

    def _read_back(self, value: Any) -> ReadBack:
        record = self._object(value, "$.verified")
        fields = ("nodes", "tensors", "bytes_compared")
        return ReadBack(**{name: self._count(record.get(name), f"$.verified.{name}") for name in fields})

    def _policy(self, value: Any) -> PolicyRecord | None:
        if value is None:
            return None
        record = self._object(value, "$.policy")
        toml, function = record.get("toml"), record.get("color_function")
        return PolicyRecord(
            self._text(record.get("name"), "$.policy.name"),
            None if toml is None else self._text(toml, "$.policy.toml"),
            None if function is None else self._text(function, "$.policy.color_function"),
        )

    def _report(self, value: Any) -> Report | None:
        if value is None:
            return None
        try:
            report = Report.from_mapping(value)
        except ReportError as error:
            raise ReportError(f"{self._name}: $.decisions is no report: {error} {_ADVICE}") from error
        for name in ("target_dtype", "target"):
            self._text(value[name], f"$.decisions.{name}")
        for number, node in enumerate(value["nodes"]):
            for name in ("name", "op", "reason", "name_after"):
                self._text(node[name], f"$.decisions.nodes[{number}].{name}")
        return report

    def _object(self, value: Any, path: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            self._fail(path, "is missing" if value is None else f"is no object but {value!r:.40}")
        return value

    def _text(self, value: Any, path: str) -> str:
        if not isinstance(value, str):
            self._fail(path, "is missing" if value is None else f"is no text but {value!r:.40}")
        return value

    def _count(self, value: Any, path: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self._fail(path, "is missing" if value is None else f"is no count but {value!r:.40}")
        return value

    def _fail(self, path: str, what: str) -> NoReturn:
        raise ReportError(f"{self._name}: {path} {what}. {_ADVICE}")


def provenance_path(prefix: str | Path, epoch: int = 0) -> Path:
    """Return where a pair's provenance is: ``PREFIX-mxamp.json``, ``PREFIX-mxamp-0007.json`` for epoch 7."""
    return Path(f"{prefix}-mxamp.json" if not epoch else f"{prefix}-mxamp-{epoch:04d}.json")


def read_provenance(prefix: str | Path, epoch: int = 0) -> Provenance | None:
    """Read the provenance of a pair of files; None where there is none.

    Raises
    ------
    ReportError
        When the file is damaged.
    """
    path = provenance_path(prefix, epoch)
    if not path.exists():
        return None
    try:
        text = existing_file(path, "provenance file").read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise ReportError(f"{path} is no UTF-8 text. {_ADVICE}") from None
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror or error}.") from error
    return Provenance.from_json(text, name=str(path))


def recorded_report(source: SourceFiles, prefix: str | Path, epoch: int) -> Report | None:
    """Return what was recorded of the conversion that wrote a pair of files; None where that is not known.

    Parameters
    ----------
    source
        The pair, as it was read. What was recorded of others under its name is not returned.
    prefix, epoch
        Where it is.
    """
    try:
        provenance = read_provenance(prefix, epoch)
        is_known = provenance is not None and source.are_those_of(provenance)
    except (ReportError, DigestMissingError):  # it is for information only; mxamp.verify tells what is wrong
        return None
    return provenance.report if provenance is not None and is_known else None


def _record(file: StagedFile) -> FileRecord:
    return FileRecord(file.display_name, file.size, file.digest, file.algorithm)
