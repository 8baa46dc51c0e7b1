"""Records -> text and bytes: tables, JSON, CSV, Markdown, sheets and drawings. Computes nothing."""
