from __future__ import annotations

import sqlalchemy


def test_both_kinds_of_database_hold_the_schema_and_start_empty(db):
    def look(connection: sqlalchemy.Connection) -> tuple[bool, int]:
        tables = sqlalchemy.inspect(connection).get_table_names()
        return "execs" in tables, connection.execute(sqlalchemy.text("SELECT count(*) FROM execs")).scalar_one()

    assert db.read(look) == (True, 0)
