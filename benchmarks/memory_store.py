"""As much of S3 as an object-store client asks for, in memory: a server that costs little beside what is measured.

    Request ──► MemoryStore.answer ──► status, headers, body

No signatures, no buckets of their own, lists in one page.

    python benchmarks/memory_store.py DELAY [PORT]     serves until its input ends, behind a proxy that waits so many
                                                       seconds, or serves what is at PORT; tells of requests for a line
"""

import hashlib
import sys
from bisect import bisect_right, insort
from email.utils import formatdate
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

NAMESPACE: Final = "{http://s3.amazonaws.com/doc/2006-03-01/}"
Answer = tuple[int, dict[str, str], bytes]


class _Object(NamedTuple):
    body: bytes
    etag: str
    when: str


class MemoryStore:
    """Objects by path, in one bucket; each answer is one request's."""

    def __init__(self) -> None:
        self._objects: dict[str, _Object] = {}
        self._names: list[str] = []
        self._uploads: dict[str, dict[int, bytes]] = {}

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        """Do what a request asks for."""
        path, _, query = target.partition("?")
        parameters = dict(parse_qsl(query, keep_blank_values=True))
        name = unquote(path).partition("/")[2].partition("/")[2]
        match method:
            case "PUT" if "uploadId" in parameters:
                self._uploads[parameters["uploadId"]][int(parameters["partNumber"])] = body
                return 200, {"etag": f'"{parameters["partNumber"]}"'}, b""
            case "PUT":
                return self._put(name, headers, body)
            case "POST" if "delete" in parameters:
                return self._delete(body)
            case "POST" if "uploads" in parameters:
                upload = str(len(self._uploads))
                self._uploads[upload] = {}
                text = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
                return 200, {}, text.encode()
            case "POST":
                parts = self._uploads.pop(parameters["uploadId"])
                done = self._put(name, headers, b"".join(parts[number] for number in sorted(parts)))
                etag = done[1].get("etag", "")
                text = f"<CompleteMultipartUploadResult><ETag>{escape(etag)}</ETag></CompleteMultipartUploadResult>"
                return done[0], {}, text.encode()
            case "DELETE":
                self._objects.pop(name, None)
                return 204, {}, b""
            case "GET" if "list-type" in parameters:
                return 200, {}, self._listed(parameters)
            case _:
                return self._get(name, headers)

    def _put(self, name: str, headers: dict[str, str], body: bytes) -> Answer:
        if "if-none-match" in headers and name in self._objects:
            return 412, {}, b""
        if name not in self._objects:
            insort(self._names, name)
        etag = f'"{hashlib.blake2b(body[:4096], digest_size=8).hexdigest()}{len(body)}"'
        self._objects[name] = _Object(body, etag, formatdate(usegmt=True))
        return 200, {"etag": etag}, b""

    def _get(self, name: str, headers: dict[str, str]) -> Answer:
        stored = self._objects.get(name)
        if stored is None:
            return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"
        told = {"etag": stored.etag, "last-modified": stored.when, "accept-ranges": "bytes"}
        if "range" not in headers:
            return 200, told, stored.body
        first, _, last = headers["range"].removeprefix("bytes=").partition("-")
        size = len(stored.body)
        begin = int(first) if first else max(size - int(last), 0)
        end = min(int(last) + 1, size) if first and last else size
        return 206, {**told, "content-range": f"bytes {begin}-{end - 1}/{size}"}, stored.body[begin:end]

    def _delete(self, body: bytes) -> Answer:
        names = [
            element.text or "" for element in ET.fromstring(body).iter() if element.tag.removeprefix(NAMESPACE) == "Key"
        ]
        for name in names:
            self._objects.pop(name, None)
        gone = "".join(f"<Deleted><Key>{escape(name)}</Key></Deleted>" for name in names)
        return 200, {}, f"<DeleteResult>{gone}</DeleteResult>".encode()

    def _listed(self, parameters: dict[str, str]) -> bytes:
        prefix, after, mark = (
            parameters.get("prefix", ""),
            parameters.get("start-after", ""),
            parameters.get("delimiter"),
        )
        self._names = [name for name in self._names if name in self._objects]
        keys, folders = [], dict[str, None]()
        for name in self._names[bisect_right(self._names, max(after, prefix[:-1])) :]:
            if not name.startswith(prefix):
                if name > prefix:
                    break
                continue
            rest = name.removeprefix(prefix)
            if mark and mark in rest:
                folders[prefix + rest.partition(mark)[0] + mark] = None
                continue
            stored = self._objects[name]
            keys.append(
                f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00Z</LastModified>"
                f"<ETag>{escape(stored.etag)}</ETag><Size>{len(stored.body)}</Size></Contents>"
            )
        keys += [f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in folders]
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(keys)}</ListBucketResult>".encode()


def main() -> None:
    """Serve, and tell of the requests since the last line that came in."""
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.s3_proxy import running

    delay_s, *ports = sys.argv[1:]
    with running(int(ports[0]) if ports else MemoryStore().answer, delay_s=float(delay_s)) as (port, proxy):
        print(port, flush=True)
        for _ in sys.stdin:
            requests, proxy.requests[:] = list(proxy.requests), []
            print(len(requests))
            for request in requests:
                print(request.method, request.path, f"{request.begun_s:.4f} {request.ended_s:.4f}", len(request.body))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
