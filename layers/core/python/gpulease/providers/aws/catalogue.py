"""gpuhunt's published catalogue of AWS prices, read within the time that a call has.

gpuhunt itself would load the catalogues of all its providers, without a timeout; the file is its own, and so are the
columns. Source: gpuhunt 0.1.34, `_internal/catalog.py` and `storage.py`.
"""

import csv
import io
import zipfile
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from gpulease.errors import ProviderFacts, ProviderUnavailable, ProviderUnexpected
from gpulease.ports import Log
from gpulease.providers.aws.client import PROVIDER
from gpulease.providers.aws.options import CatalogueRow
from gpulease.providers.http import Transport, TransportError

CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 30.0
MAX_CSV_BYTES = 64 * 1024 * 1024
_FILE = "aws.csv"


def download(transport: Transport, url: str, log: Log) -> list[CatalogueRow]:
    """Rows of all GPU types of all regions. Raises ProviderUnavailable, ProviderUnexpected."""
    version = _get(transport, f"{url}/aws/version").decode("ascii", "replace").strip()
    if not version.replace("-", "").isalnum() or len(version) > 40:
        raise _unexpected("the catalogue has no version")
    return rows_of(_unzipped(_get(transport, f"{url}/aws/{version}/catalog.zip")), log)


def rows_of(text: str, log: Log) -> list[CatalogueRow]:
    """The GPU types of a catalogue file; rows that cannot be read are counted and left out."""
    rows: list[CatalogueRow] = []
    bad = 0
    for each in csv.DictReader(io.StringIO(text)):
        try:
            row = _row(each)
        except (KeyError, ValueError, InvalidOperation, TypeError):
            bad += 1
            continue
        if row.gpu_count > 0 and row.gpu_model and row.price_per_hour_usd > 0:
            rows.append(row)
    if bad:
        log.warning("catalogue_rows_not_read", provider=PROVIDER, rows=bad)
    if not rows:
        raise _unexpected("the catalogue has no GPU types")
    return rows


def _row(each: Mapping[str, str]) -> CatalogueRow:
    count = int(each["gpu_count"])
    return CatalogueRow(
        plan=each["instance_name"],
        region=each["location"],
        price_per_hour_usd=Decimal(each["price"]),
        vcpus=int(each["cpu"]),
        memory_gib=float(each["memory"]),
        gpu_model=each.get("gpu_name") or "",
        gpu_count=count,
        gpu_memory_gib=float(each.get("gpu_memory") or 0) if count else 0.0,
        spot=each["spot"] == "True",
        cpu_arch={"arm": "arm64", "arm64": "arm64"}.get(each.get("cpu_arch") or "", "x86_64"),
    )


def _get(transport: Transport, url: str) -> bytes:
    try:
        answer = transport.send(
            "GET",
            url,
            headers={"User-Agent": "gpulease"},
            body=b"",
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            read_timeout=READ_TIMEOUT_SECONDS,
        )
    except TransportError as error:
        raise ProviderUnavailable(ProviderFacts(PROVIDER, f"the catalogue: {error}", method="GET", path=url)) from None
    if answer.status != 200:
        message = "the catalogue cannot be read"
        raise ProviderUnavailable(ProviderFacts(PROVIDER, message, status=answer.status, method="GET", path=url))
    return answer.body


def _unzipped(content: bytes) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if archive.getinfo(_FILE).file_size > MAX_CSV_BYTES:
                raise _unexpected("the catalogue is too large")
            return archive.read(_FILE).decode("utf-8")
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError):
        raise _unexpected("the catalogue cannot be unpacked") from None


def _unexpected(why: str) -> ProviderUnexpected:
    return ProviderUnexpected(ProviderFacts(PROVIDER, why))
