"""usage: database_client.py psycopg|psycopg2|asyncpg|sqlalchemy|django PORT [HOST OR FOLDER]

A row of a table by its key; psycopg2 may find the server's unix socket in a folder."""

import asyncio
import sys

import clock

kind, port = sys.argv[1], int(sys.argv[2])
URL = f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable"
TABLE = "create table if not exists item (id integer primary key, name text)"
ROW = "insert into item values (1, 'thing') on conflict do nothing"
QUERY = "select name from item where id = 1"


def drive_psycopg() -> None:
    import psycopg

    with psycopg.connect(URL, autocommit=True) as connection:
        connection.execute(TABLE)
        connection.execute(ROW)

        def one() -> None:
            assert connection.execute(QUERY).fetchone() == ("thing",)

        clock.repeat(one)


def drive_psycopg2() -> None:
    import psycopg2

    connection = psycopg2.connect(URL, **({"host": sys.argv[3]} if len(sys.argv) > 3 else {}))
    connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute(TABLE)
    cursor.execute(ROW)

    def one() -> None:
        cursor.execute(QUERY)
        assert cursor.fetchone() == ("thing",)

    clock.repeat(one)


async def drive_asyncpg() -> None:
    import asyncpg

    connection = await asyncpg.connect(URL)
    await connection.execute(TABLE)
    await connection.execute(ROW)

    async def one() -> None:
        assert await connection.fetchval(QUERY) == "thing"

    await clock.repeat_tasks([one])
    await connection.close()


def drive_sqlalchemy() -> None:
    from sqlalchemy import create_engine, text
    from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

    class Base(DeclarativeBase):
        pass

    class Item(Base):
        __tablename__ = "item"
        id: Mapped[int] = mapped_column(primary_key=True)
        name: Mapped[str]

    engine = create_engine(URL.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(text(TABLE))
        connection.execute(text(ROW))

    def one() -> None:
        with Session(engine) as session:
            item = session.get(Item, 1)
            assert item is not None
            assert item.name == "thing"

    clock.repeat(one)


def drive_django() -> None:
    import django
    from django.conf import settings

    database = {"ENGINE": "django.db.backends.postgresql", "HOST": "127.0.0.1", "PORT": port}
    settings.configure(DATABASES={"default": {**database, "NAME": "postgres", "USER": "postgres"}})
    django.setup()
    from django.db import connection, models

    class Item(models.Model):
        id = models.IntegerField(primary_key=True)
        name = models.TextField()

        class Meta:
            app_label = "bench"
            db_table = "item"

    with connection.cursor() as cursor:
        cursor.execute(TABLE)
        cursor.execute(ROW)

    def one() -> None:
        assert Item.objects.get(pk=1).name == "thing"

    clock.repeat(one)


if kind == "asyncpg":
    asyncio.run(drive_asyncpg())
else:
    drives = {"psycopg": drive_psycopg, "psycopg2": drive_psycopg2, "sqlalchemy": drive_sqlalchemy}
    {**drives, "django": drive_django}[kind]()
