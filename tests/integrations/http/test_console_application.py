"""The console's page of an application, which shows AsyncAPI documents."""

import json
from typing import Any

import pytest

from contrada.integrations.asyncapi import asyncapi_of
from tests.asynchronous import on_loop
from tests.browsers import needs_browser, page_of, serious_findings
from tests.integrations.http.conftest import serving
from tests.integrations.http.console_tour import SHOWN, desk, open_document

pytestmark = [pytest.mark.slow, needs_browser]


@on_loop
async def test_an_application_is_shown_with_its_filters_and_classes() -> None:
    """A team would not see which events another one handles, or with which attributes."""
    document = json.dumps(asyncapi_of(desk(), title="Trading desk", version="2.1")).encode()
    async with serving() as it, page_of(f"{it.gateway.address}/#application") as page:
        shown = page.locator(SHOWN)
        await open_document(shown, document)
        cheap = shown.get_by_role("region", name="Operation cheap")
        await shown.get_by_role("heading", name="Trading desk 2.1").wait_for()
        await cheap.get_by_text("Buys cheap shares.").wait_for()
        await cheap.get_by_text("Durable subscription cheap").wait_for()
        schema = shown.get_by_role("table", name="Attributes of desk.Trade")
        rows = [await each.inner_text() for each in await schema.get_by_role("row").all()]
        assert [each.split("\t")[:3] for each in rows] == [
            ["Name", "Type", "Required"],
            ["symbol", "string", "yes"],
            ["price", "number, double", "yes"],
            ["venues", "list of string", "no"],
            ["limit", "number, double or null", "no"],
        ]
        replier = shown.get_by_role("region", name="Operation price_of")
        await replier.get_by_text("receives requests, and replies").wait_for()
        assert await serious_findings(page) == []
        await cheap.get_by_role("link", name="Try it").click()
        await page.get_by_role("textbox", name="Filter", exact=True).get_by_text("price").wait_for()
        await page.get_by_text("@is.desk.Trade = true and price < 100").first.wait_for()


@on_loop
async def test_a_document_that_is_none_is_refused_with_its_reason() -> None:
    """A page would be empty, or broken by a file of another kind."""
    deep: Any = {"type": "string"}
    for _ in range(200):
        deep = {"anyOf": [deep]}
    lost = {"asyncapi": "3.0.0", "operations": {"a": {"channel": {"$ref": "#/channels/b"}}}}
    cases = (
        (b"{", "is not shown"),
        (b"null", '"asyncapi" is absent, expected "3.0.0"'),
        (b'{"asyncapi": "2.6.0"}', '"asyncapi" is "2.6.0", expected "3.0.0"'),
        (json.dumps(lost).encode(), "#/channels/b: there is no such part"),
        (b" " * 1_000_001, "longer than 1000000 characters"),
    )
    async with serving() as it, page_of(f"{it.gateway.address}/#application") as page:
        shown = page.locator(SHOWN)
        for document, reason in cases:
            await open_document(shown, document)
            await shown.get_by_role("alert").get_by_text(reason).wait_for()
        # A text of a document is no element of the page.
        title = "<img src=x onerror=alert(1)>"
        schemas = {"a": {"title": title, "properties": {title: deep}}}
        info = {"title": title, "description": title}
        hostile = {"asyncapi": "3.0.0", "info": info, "components": {"schemas": schemas}}
        await open_document(shown, json.dumps(hostile).encode())
        await shown.get_by_role("heading", name=title).first.wait_for()
        assert await shown.get_by_role("img").count() == 0
        assert await shown.get_by_role("alert").count() == 0
