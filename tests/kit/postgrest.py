"""As much of a Supabase project as the ``supabase`` package needs: PostgREST's verbs over HTTP, on SQLite.

Rules that matter here are Postgres's: NOT NULL is looked at before ON CONFLICT, times are compared as times, and at
most ``max_rows`` come back at once.
"""

from __future__ import annotations

import json
import math
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from supabase import ClientOptions, create_client

KEY: Final = "service.role.key"
_OPERATORS: Final = {"eq": "=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_SQL_TYPES: Final = {"float": "REAL", "bool": "INTEGER", "int": "INTEGER"}

KNOWLEDGE: Final = {
    "id": ("text", "PRIMARY KEY NOT NULL"),
    "content": ("text", "NOT NULL"),
    "category": ("text", "NOT NULL DEFAULT 'general'"),
    "importance": ("float", "NOT NULL DEFAULT 0.5"),
    "persistent": ("bool", "NOT NULL DEFAULT 0"),
    "ttl_days": ("int", ""),
    "created_at": ("time", "NOT NULL"),
    "updated_at": ("time", "NOT NULL"),
    "metadata": ("json", "NOT NULL DEFAULT '{}'"),
}
"""Column to type and rules, as the documented table has them."""
BLOBS: Final = {
    "key": ("text", "PRIMARY KEY NOT NULL"),
    "data": ("text", "NOT NULL"),
    "updated_at": ("time", "NOT NULL DEFAULT '2026-01-01T00:00:00.000000+00:00'"),
}
USERS: Final = {
    "user_id": ("text", "PRIMARY KEY NOT NULL"),
    "email": ("text", "NOT NULL"),
    "memory_text": ("text", ""),
    "updated_at": ("time", ""),
}


class Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass
class Project:
    """What a test sees of the server, and does to it."""

    url: str = ""
    max_rows: int = 1_000
    requests: list[str] = field(default_factory=list)
    before: Callable[[str], None] = lambda method: None
    after: Callable[[str], None] = lambda method: None
    tables: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    clients: list[httpx.Client] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
        self.sql = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)

    def make(self, table: str, columns: dict[str, tuple[str, str]]) -> None:
        types = {name: _SQL_TYPES.get(kind, "TEXT") for name, (kind, _) in columns.items()}
        defined = ", ".join(f'"{name}" {types[name]} {rules}' for name, (_, rules) in columns.items())
        with self.lock:
            self.sql.execute(f'DROP TABLE IF EXISTS "{table}"')
            self.sql.execute(f'CREATE TABLE "{table}" ({defined})')
            self.tables[table] = columns


    def client(self) -> Any:
        """A client of the package; closed with the server."""
        http = httpx.Client(timeout=30)
        self.clients.append(http)
        return create_client(self.url, KEY, ClientOptions(httpx_client=http))


class Dropped(Exception):
    """A hook of the test ends the connection here."""


@contextmanager
def serving() -> Iterator[Project]:
    """A project with the tables above."""
    project = Project()
    for name, columns in (("knowledge", KNOWLEDGE), ("selectools_knowledge", BLOBS), ("users", USERS)):
        project.make(name, columns)

    class Handler(_Handler):
        of = project

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    project.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield project
    finally:
        for client in project.clients:
            client.close()
        server.shutdown()
        server.server_close()
        thread.join()
        project.sql.close()


class _Handler(BaseHTTPRequestHandler):
    of: Project
    protocol_version = "HTTP/1.1"
    timeout = 60
    wbufsize = -1  # headers and body in one packet: two would wait for the delayed acknowledgement of the first

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PATCH(self) -> None:
        self._answer("PATCH")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.of.requests.append(f"{method} {self.path}")
        headers: dict[str, str] = {}
        try:
            self.of.before(method)
            if self.headers.get("apikey") != KEY:
                raise Refused(401, "PGRST301", "no such key")
            with self.of.lock:
                status, value = self._run(method, body, headers)
            self.of.after(method)
        except Dropped:
            self.close_connection = True
            return
        except Refused as error:
            status, value = error.status, {"code": error.code, "message": str(error), "details": None, "hint": None}
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def _run(self, method: str, body: bytes, headers: dict[str, str]) -> tuple[int, object]:
        address = urlsplit(self.path)
        table = address.path.removeprefix("/rest/v1/")
        if table not in self.of.tables:
            raise Refused(404, "PGRST205", f"no table {table}")
        query = parse_qsl(address.query, keep_blank_values=True)
        where, values = self._where(table, query)
        match method:
            case "GET":
                return self._select(table, dict(query), where, values, headers)
            case "POST":
                return 201, [self._insert(table, dict(query), json.loads(body))]
            case "PATCH":
                changes = self._columns(table, json.loads(body))
                sets = ", ".join(f'"{name}" = ?' for name in changes)
                sql = f'UPDATE "{table}" SET {sets} WHERE {where} RETURNING *'
                return 200, self._rows(table, sql, [*changes.values(), *values])
            case _:
                if not values:
                    raise Refused(400, "21000", "DELETE requires a WHERE clause")
                return 200, self._rows(table, f'DELETE FROM "{table}" WHERE {where} RETURNING *', values)

    def _select(
        self, table: str, query: dict[str, str], where: str, values: list[Any], headers: dict[str, str]
    ) -> tuple[int, object]:
        order = ", ".join(
            f'"{name}" {"DESC" if way == "desc" else "ASC"}'
            for name, _, way in (part.partition(".") for part in query.get("order", "").split(",") if part)
        )
        limit = min(int(query.get("limit", self.of.max_rows)), self.of.max_rows)
        sql = f'SELECT * FROM "{table}" WHERE {where} {f"ORDER BY {order}" if order else ""} LIMIT {limit}'
        rows = self._rows(table, sql, values)
        if "count=exact" in self.headers.get("Prefer", ""):
            total = self.of.sql.execute(f'SELECT count(*) FROM "{table}" WHERE {where}', values).fetchone()[0]
            headers["Content-Range"] = f"0-{len(rows) - 1}/{total}" if rows else f"*/{total}"
        if (wanted := query.get("select", "*")) != "*":
            rows = [{name: row[name] for name in wanted.split(",")} for row in rows]
        return 200, rows

    def _insert(self, table: str, query: dict[str, str], value: dict[str, Any]) -> dict[str, Any]:
        row = self._columns(table, value)
        names = ", ".join(f'"{name}"' for name in row)
        conflict = ""
        if "resolution=merge-duplicates" in self.headers.get("Prefer", ""):
            key = query.get("on_conflict") or next(iter(self.of.tables[table]))
            sets = ", ".join(f'"{name}" = excluded."{name}"' for name in row)
            conflict = f'ON CONFLICT ("{key}") DO UPDATE SET {sets}'
        marks = ", ".join("?" * len(row))
        sql = f'INSERT INTO "{table}" ({names}) VALUES ({marks}) {conflict} RETURNING *'
        return self._rows(table, sql, list(row.values()))[0]

    def _where(self, table: str, query: list[tuple[str, str]]) -> tuple[str, list[Any]]:
        parts, values = ["1"], []
        for name, condition in query:
            if name in ("select", "order", "limit", "on_conflict", "columns"):
                continue
            operator, _, value = condition.partition(".")
            if operator == "in":
                several = [one.strip('"') for one in value.strip("()").split(",")]
                parts.append(f'"{name}" IN ({", ".join("?" * len(several))})')
                values += several
            else:
                parts.append(f'"{name}" {_OPERATORS[operator]} ?')
                values.append(self._stored(table, name, value))
        return " AND ".join(parts), values

    def _columns(self, table: str, row: dict[str, Any]) -> dict[str, Any]:
        return {name: None if value is None else self._stored(table, name, value) for name, value in row.items()}

    def _stored(self, table: str, name: str, value: Any) -> Any:
        """A value of JSON or of a filter as its column has it."""
        if name not in self.of.tables[table]:
            raise Refused(400, "PGRST204", f"no column {name}")
        match self.of.tables[table][name][0]:
            case "float":
                return float(value)
            case "bool":
                return int(str(value).lower() == "true")
            case "int":
                return int(value)
            case "time":
                return datetime.fromisoformat(value).astimezone(UTC).isoformat(timespec="microseconds")
            case "json":
                return json.dumps(value)
            case _:
                if "\0" in value:
                    raise Refused(400, "22P05", "unsupported Unicode escape sequence")
                return value

    def _rows(self, table: str, sql: str, values: list[Any]) -> list[dict[str, Any]]:
        try:
            cursor = self.of.sql.execute(sql, values)
            names = [column[0] for column in cursor.description]
            return [
                {name: self._shown(table, name, value) for name, value in zip(names, row, strict=True)}
                for row in cursor.fetchall()
            ]
        except sqlite3.IntegrityError as error:
            not_null = str(error).startswith("NOT NULL")
            raise Refused(400 if not_null else 409, "23502" if not_null else "23505", str(error)) from error

    def _shown(self, table: str, name: str, value: Any) -> Any:
        kind = self.of.tables[table][name][0]
        if value is None or kind in ("text", "int"):
            return value
        if kind == "time":
            head, _, zone = value.partition("+")
            return f"{head.rstrip('0').rstrip('.') if '.' in head else head}+{zone}"
        if kind == "float":
            return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
        return bool(value) if kind == "bool" else json.loads(value)


@pytest.fixture
def project() -> Iterator[Project]:
    """A project of the test's own."""
    with serving() as one:
        yield one
