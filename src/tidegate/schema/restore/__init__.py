"""DDL texts as TiCDC sends them: each statement is read with TiDB's grammar and printed back in one form.

    text ──lexer──► tokens ──reader──► statement ─► table ─► column, key, partition ─► expression ─► text

Every rule reads what it knows and returns the text of it; nothing is kept between.  Most are templates: the printed
form itself, which says what is read, too (`template.py`).  Start at `statement.restore_ddl`.
"""
