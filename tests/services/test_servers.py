from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import psycopg2
import pymysql
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.services.account import passable_directory, remove_tree
from tests.services.process import base_environment
from tests.services.proxy import Proxy


def rows(server, url: str, statement: str):
    connection = server.connect(url.rsplit("/", 1)[1])
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()
    finally:
        connection.close()


def test_databases_are_separate_and_durable(postgres):
    one, two = postgres.new_database(migrated=False), postgres.new_database(migrated=False)
    postgres.execute("CREATE TABLE only_here (n int)", one.rsplit("/", 1)[1])
    assert rows(postgres, one, "SELECT count(*) FROM only_here") == [(0,)]
    with pytest.raises(psycopg2.errors.UndefinedTable):
        rows(postgres, two, "SELECT * FROM only_here")
    assert rows(postgres, one, "SHOW fsync") == [("on",)]
    postgres.drop_database(one)
    with pytest.raises(psycopg2.OperationalError):
        postgres.connect(one.rsplit("/", 1)[1])


def test_postgres_wants_its_password(postgres):
    with pytest.raises(psycopg2.OperationalError, match="password"):
        psycopg2.connect(host="127.0.0.1", port=postgres.port, user="sandloom", password="wrong", dbname="postgres")


def test_postgres_comes_back_from_a_crash_with_what_was_committed(private_postgres):
    url = private_postgres.new_database(migrated=False)
    name = url.rsplit("/", 1)[1]
    held = private_postgres.connect(name)
    private_postgres.execute("CREATE TABLE kept AS SELECT 7 AS n", name)
    private_postgres.kill()
    assert not private_postgres.running
    with pytest.raises(psycopg2.OperationalError):
        private_postgres.connect(name)
    private_postgres.start()
    assert rows(private_postgres, url, "SELECT n FROM kept") == [(7,)]
    held.close()


def test_mariadb_wants_its_password_and_comes_back_from_a_crash_with_what_was_committed(private_mariadb):
    with pytest.raises(pymysql.OperationalError, match="Access denied"):
        pymysql.connect(host="127.0.0.1", port=private_mariadb.port, user="sandloom", password="wrong")
    private_mariadb.execute("CREATE DATABASE kept")
    private_mariadb.execute("CREATE TABLE kept.kept AS SELECT 7 AS n")
    private_mariadb.kill()
    assert not private_mariadb.running
    private_mariadb.start()
    with private_mariadb.connect("kept") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT n FROM kept")
        assert cursor.fetchone() == (7,)


def test_redis_wants_its_password_and_is_private(redis_server):
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=redis_server.port, retry=Retry(NoBackoff(), 0)).ping()
    assert stat.S_IMODE(os.stat(redis_server.directory).st_mode) == 0o700


def test_redis_urls_point_to_databases_of_their_own(redis_server):
    one, two = redis_server.new_url(), redis_server.new_url()
    with redis.Redis.from_url(one) as first, redis.Redis.from_url(two) as second:
        first.set("key", "value")
        assert second.get("key") is None


def test_redis_restarts_with_its_data_or_empty(private_redis):
    with private_redis.client() as client:
        client.set("key", "value")
        private_redis.restart()
        assert client.get("key") == b"value"
        private_redis.restart(empty=True)
        assert client.get("key") is None


def test_a_directory_for_sandboxes_can_be_passed_and_not_listed(data_dir):
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o711
    assert data_dir.parent == Path("/tmp")


def test_trees_without_permission_bits_are_removed():
    path = passable_directory("sandloom-test")
    (path / "closed" / "inner").mkdir(parents=True)
    (path / "closed" / "inner" / "file").touch()
    (path / "closed" / "inner").chmod(0)
    (path / "closed").chmod(0)
    remove_tree(path)
    assert not path.exists()


@pytest.fixture
def proxied(postgres):
    url = postgres.new_database(migrated=False)
    name = url.rsplit("/", 1)[1]
    postgres.execute("CREATE TABLE t (n int)", name)
    with Proxy(postgres.port) as proxy:
        yield proxy, lambda: _through(proxy, postgres, name), lambda: rows(postgres, url, "SELECT n FROM t")
    postgres.drop_database(url)


def _through(proxy, postgres, name):
    return psycopg2.connect(
        host="127.0.0.1", port=proxy.port, user="sandloom", password=postgres.password, dbname=name, connect_timeout=60
    )


def test_a_dropped_commit_answer_leaves_the_row_and_breaks_the_connection(proxied):
    proxy, connect, committed = proxied
    connection = connect()
    connection.cursor().execute("INSERT INTO t VALUES (1)")
    proxy.drop_answer_to(b"COMMIT")
    with pytest.raises(psycopg2.OperationalError):
        connection.commit()
    assert proxy.dropped.is_set()
    assert committed() == [(1,)]
    again = connect()
    again.cursor().execute("INSERT INTO t VALUES (2)")
    again.commit()
    assert committed() == [(1,), (2,)]
    again.close()


def test_a_cut_breaks_open_connections_and_refuses_new_ones_until_restored(proxied):
    proxy, connect, committed = proxied
    connection = connect()
    proxy.cut()
    with pytest.raises(psycopg2.OperationalError):
        connection.cursor().execute("INSERT INTO t VALUES (1)")
    with pytest.raises(psycopg2.OperationalError):
        connect()
    proxy.restore()
    connect().close()
    assert committed() == []


def test_a_frozen_proxy_passes_nothing_until_thawed(proxied):
    proxy, connect, committed = proxied
    connection = connect()
    connection.autocommit = True
    proxy.freeze()
    done = threading.Event()

    def insert() -> None:
        connection.cursor().execute("INSERT INTO t VALUES (1)")
        done.set()

    thread = threading.Thread(target=insert)
    thread.start()
    assert committed() == []
    assert not done.is_set()
    proxy.thaw()
    assert done.wait(60)
    thread.join()
    assert committed() == [(1,)]
    connection.close()


def test_children_get_no_settings_of_the_developer(monkeypatch):
    monkeypatch.setenv("SANDBOX_INTERNAL_TOKEN", "secret")
    assert "SANDBOX_INTERNAL_TOKEN" not in base_environment()
