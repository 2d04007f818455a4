"""A shop's API on this machine: pages of items, and orders since a moment."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "lily-of-the-shop-42"
ITEMS = """
version: 6.0.0
type: DeclarativeSource
check: {type: CheckStream, stream_names: [items]}
streams:
  - type: DeclarativeStream
    name: items
    primary_key: [id]
    schema_loader:
      type: InlineSchemaLoader
      schema: {type: object, properties: {id: {type: integer}, name: {type: [string, "null"]}}}
    retriever:
      type: SimpleRetriever
      requester:
        type: HttpRequester
        url_base: "http://127.0.0.1:{{ config['port'] }}"
        path: /items
        http_method: GET
        authenticator: {type: BearerAuthenticator, api_token: "{{ config['token'] }}"}
      record_selector: {type: RecordSelector, extractor: {type: DpathExtractor, field_path: [data]}}
      paginator:
        type: DefaultPaginator
        page_token_option: {type: RequestOption, inject_into: request_parameter, field_name: page}
        page_size_option: {type: RequestOption, inject_into: request_parameter, field_name: limit}
        pagination_strategy: {type: PageIncrement, page_size: 2, start_from_page: 1}
spec:
  type: Spec
  connection_specification:
    type: object
    required: [port, token]
    properties: {port: {type: integer}, token: {type: string, airbyte_secret: true}}
"""
ORDERS = """
version: 6.0.0
type: DeclarativeSource
check: {type: CheckStream, stream_names: [orders]}
streams:
  - type: DeclarativeStream
    name: orders
    primary_key: [id]
    schema_loader:
      type: InlineSchemaLoader
      schema:
        type: object
        properties:
          id: {type: integer}
          at: {type: string, format: date-time}
          total: {type: integer}
    incremental_sync:
      type: DatetimeBasedCursor
      cursor_field: at
      datetime_format: "%Y-%m-%dT%H:%M:%SZ"
      cursor_granularity: PT1S
      step: P10Y
      start_datetime: "2026-01-01T00:00:00Z"
      start_time_option: {type: RequestOption, inject_into: request_parameter, field_name: since}
    retriever:
      type: SimpleRetriever
      requester:
        type: HttpRequester
        url_base: "http://127.0.0.1:{{ config['port'] }}"
        path: /orders
        http_method: GET
      record_selector: {type: RecordSelector, extractor: {type: DpathExtractor, field_path: []}}
spec:
  type: Spec
  connection_specification: {type: object, required: [port], properties: {port: {type: integer}}}
"""


@dataclass
class Shop:
    items: list[dict[str, Any]] = field(default_factory=list)
    orders: list[dict[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    port: int = 0

    def answer(self, path: str, authorization: str) -> tuple[int, Any]:
        self.requests.append(path)
        url = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/orders":
            return 200, [one for one in self.orders if one["at"] >= query.get("since", "")]
        if authorization != f"Bearer {TOKEN}":
            return 401, {"error": "who are you?"}
        page, limit = int(query.get("page", 1)), int(query.get("limit", 2))
        return 200, {"data": self.items[(page - 1) * limit : page * limit]}


@contextmanager
def served() -> Iterator[Shop]:
    """A shop that answers on a port of its own."""
    shop = Shop()

    class ShopAnswers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, body = shop.answer(self.path, self.headers.get("Authorization", ""))
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), ShopAnswers)
    shop.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield shop
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
