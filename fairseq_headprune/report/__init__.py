"""Rendering results: tables for terminals, READMEs and papers, figures, and the report page."""
