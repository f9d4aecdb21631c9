"""The documentation site: generated pages, pictures of the syntax, and hooks of MkDocs."""
