"""Queries to sources of data: the `Query` value, its sender, and the sources that answer.

A query travels to the sources whose descriptions it meets, and each source answers with its
items. `routing.query_router` decides the path, `query_client` sends, `query_responder` answers.

Source: CU-CS-948-03.
"""
